// One process's end of the benchmark's RDMA connections: a device, one registered buffer, one CQ,
// and RC queue pairs connected by rdma_cm.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/rdma/base.h"
#include "bench/rdma/options.h"

namespace rdma_bench {

constexpr unsigned kMostQps = 32;
constexpr uint32_t kSendDepth = 256;
// The receives of all QPs: as many as a sender can use before the receiver's next time slice.
constexpr uint32_t kReceivesInAll = 8192;
constexpr uint32_t kMostReceives = 4096;  // of one QP
constexpr int kCqEntries = 32767;  // rdma_rxe's limit; more than all sends and receives of a side
constexpr uint32_t kInlineBytes = 64;
constexpr uint8_t kReadsInFlight = 16;

// Throws Failure if the next event is not `expected`.
std::unique_ptr<rdma_cm_event, decltype(&rdma_ack_cm_event)> ExpectEvent(
    rdma_event_channel* channel, rdma_cm_event_type expected);

class Endpoint {
 public:
  // Uses the device that has the IPv4 address of the options.
  explicit Endpoint(const Options& options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  void Listen();
  uint16_t listen_port() const { return ntohs(rdma_get_src_port(own_id_)); }
  // The server calls Accept and the client Connect. Queue pairs have the same index on both sides.
  void Accept(unsigned qps);
  void Connect(const std::string& peer, uint16_t port, unsigned qps);
  // When the client calls Disconnect, the server must call Disconnected.
  void Disconnect();
  void Disconnected();

  // From now on keeps receives of this size posted on every QP.
  void PostReceives(size_t message_bytes);
  // Counts a used receive of this QP. Reposts receives as lists.
  void ReceiveUsed(unsigned qp);

  // Waits for completions, by polling or by events. Throws Failure on an error completion.
  unsigned NextCompletions(std::span<ibv_wc> completions, bool block_on_events);

  // For connections other than those above.
  void CreateQp(rdma_cm_id* id, uint32_t send_depth, uint32_t receive_depth);
  rdma_cm_id* NewId();
  rdma_event_channel* channel() const { return channel_; }
  sockaddr_in own_address() const { return address_; }

  ibv_qp* qp(unsigned index) const { return ids_[index]->qp; }
  unsigned qps() const { return static_cast<unsigned>(ids_.size()); }
  const Buffer& buffer() const { return *buffer_; }
  ibv_mr* mr() const { return mr_; }
  const char* device_name() const { return ibv_get_device_name(own_id_->verbs->device); }

 private:
  void PostReceiveList(unsigned qp, uint32_t count);
  void DestroyConnections();

  std::unique_ptr<Buffer> buffer_;
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

// The parameters of a connection on which both sides use the maximum of RDMA READs in flight.
rdma_conn_param ConnectionParameters();
sockaddr_in Ipv4Address(const std::string& text, uint16_t port);

}  // namespace rdma_bench
