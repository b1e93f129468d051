// One process's end of the benchmark's RDMA connections: a device, one registered buffer, one CQ,
// and RC queue pairs that are connected by rdma_cm.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/rdma/base.h"

namespace rdma_bench {

constexpr unsigned kMostQps = 32;
constexpr uint32_t kSendDepth = 256;
// Shared out among the QPs: what a sender can send before the receiver's next time slice.
constexpr uint32_t kReceivesInAll = 8192;
constexpr uint32_t kMostReceives = 4096;  // of one QP
constexpr int kCqEntries = 32767;  // rdma_rxe's limit; more than all sends and receives of a side
constexpr uint32_t kInlineBytes = 64;
constexpr uint8_t kReadsInFlight = 16;

// Throws Failure when `event` is not what was expected.
std::unique_ptr<rdma_cm_event, decltype(&rdma_ack_cm_event)> ExpectEvent(
    rdma_event_channel* channel, rdma_cm_event_type expected);

class Endpoint {
 public:
  // Takes the device that has this IPv4 address.
  Endpoint(const std::string& address, size_t buffer_bytes, Pages pages);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void Listen();
  uint16_t listen_port() const { return ntohs(rdma_get_src_port(own_id_)); }
  // Both sides call theirs; queue pairs have the same index on both.
  void Accept(unsigned qps);
  void Connect(const std::string& peer, uint16_t port, unsigned qps);
  // The client's Disconnect and the server's Disconnected belong together.
  void Disconnect();
  void Disconnected();

  // Keeps receives of this size posted on every QP from here on.
  void PostReceives(size_t message_bytes);
  // One receive of this QP was used up. Reposts as lists.
  void ReceiveUsed(unsigned qp);

  // Waits for completions, by polling or by events, and throws Failure when one is bad.
  unsigned NextCompletions(std::span<ibv_wc> completions, bool block_on_events);

  // For connections beside those above.
  void CreateQp(rdma_cm_id* id, uint32_t send_depth, uint32_t receive_depth);
  rdma_cm_id* NewId();
  rdma_event_channel* channel() const { return channel_; }
  sockaddr_in own_address() const { return address_; }

  ibv_qp* qp(unsigned index) const { return ids_[index]->qp; }
  unsigned qps() const { return static_cast<unsigned>(ids_.size()); }
  const Buffer& buffer() const { return buffer_; }
  ibv_mr* mr() const { return mr_; }
  const char* device_name() const { return ibv_get_device_name(own_id_->verbs->device); }

 private:
  void PostReceiveList(unsigned qp, uint32_t count);
  void DestroyConnections();

  Buffer buffer_;
  sockaddr_in address_;
  rdma_event_channel* channel_;
  rdma_cm_id* own_id_;  // bound to the address; the server listens on it
  ibv_pd* pd_;
  ibv_mr* mr_;
  ibv_comp_channel* completion_channel_;
  ibv_cq* cq_;
  std::vector<rdma_cm_id*> ids_;
  std::vector<uint32_t> receives_used_;
  size_t receive_bytes_ = 0;
  Walk receive_walk_{1, 1};
};

// Of a connection whose both sides want the most RDMA READs in flight.
rdma_conn_param ConnectionParameters();
sockaddr_in Ipv4Address(const std::string& text, uint16_t port);

}  // namespace rdma_bench
