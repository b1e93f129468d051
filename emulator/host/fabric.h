// Sends the packets of a host's engine and connection manager. The fabric writes each packet's ICRC
// and gives the packet to the network. CM messages between two of the host's own addresses are
// queued, and the next Work delivers them.
#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/base/time.h"
#include "emulator/cm/cm.h"
#include "emulator/host/faults/packet_exit.h"
#include "emulator/host/host.h"
#include "emulator/trace/trace.h"
#include "emulator/transport/engine.h"
#include "emulator/transport/train.h"
#include "emulator/wire/packet.h"

namespace rdmaemu {

// Counts the fabric's packets, and its drops by reason. `rdmaemu hosts --json` shows the counters.
struct FabricCounters {
  uint64_t datagrams_sent = 0, datagrams_received = 0, bytes_sent = 0, bytes_received = 0;
  uint64_t dropped_network_full = 0, dropped_bad_icrc = 0, dropped_gsi_key = 0,
           dropped_not_ours = 0, dropped_gsi_queue = 0, dropped_no_link = 0;
  std::array<uint64_t, 5> dropped_unparsed{};      // by wire::ParseError
  std::array<uint64_t, 6> dropped_unparsed_mad{};  // by wire::CmParseError
};

class Fabric final : public transport::DatagramSink, public PacketExit {
 public:
  // Limit of the CM messages in the queue for local delivery. Further messages are lost, as on a
  // full GSI receive queue.
  static constexpr size_t kMaxLocalMessages = 65536;

  // `sends_forms`: AllocateForm may return buffers.
  Fabric(Network& network, trace::Sink& trace, bool sends_forms)
      : network_(network), trace_(trace), sends_forms_(sends_forms) {}

  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                size_t bytes) override;
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) override;
  std::optional<std::span<std::byte>> AllocateForm(const transport::Train& train,
                                                   bool may_wait) override;
  void Commit(Time now) override;
  std::unique_ptr<UnfilledForm> CommitUnfilled(Time now, size_t payload_bytes) override;
  bool takes_unfilled() const override { return network_.takes_unfilled(); }
  bool OfferPermit(const wire::UdpFlow& flow, std::span<const std::byte> offer) override {
    return sends_forms_ && !captures() && network_.SendOffer(flow, offer);
  }
  std::shared_ptr<const int> OpenCounter(const NetAddress& peer, int fd) override {
    return network_.OpenCounter(peer, fd);
  }
  void AddToCounter(const NetAddress& peer, int fd) override { network_.AddToCounter(peer, fd); }
  void CountExchanged(const Exchanged& exchanged) override;

  // Act as Network::JoinGroup and LeaveGroup.
  Status JoinGroup(const NetAddress& local, const NetAddress& group) {
    return network_.JoinGroup(local, group);
  }
  void LeaveGroup(const NetAddress& local, const NetAddress& group) {
    network_.LeaveGroup(local, group);
  }

  void SendSealed(Time now, const wire::UdpFlow& flow, uint8_t traffic_class,
                  std::span<const std::byte> datagram) override;
  void CountBadIcrc() override { counters_.dropped_bad_icrc++; }
  // Sends a CM message to another host, as a UD packet between the two GSIs.
  void SendMad(Time now, const cm::CmRoute& route, const wire::CmMessage& message, uint16_t pkey);
  // Queues a CM message to one of the host's own addresses.
  void QueueLocal(Time now, const cm::CmRoute& route, const wire::CmMessage& message,
                  uint16_t pkey);
  // Delivers the messages that were queued before the call. Messages queued meanwhile wait for the
  // next call. Returns true when messages are left.
  template <class Deliver>
  bool DeliverLocal(Deliver&& deliver) {
    if (local_.empty()) return false;
    std::vector<LocalMessage> messages = std::exchange(local_, std::move(spare_));
    for (const LocalMessage& each : messages) deliver(each.route, each.message);
    messages.clear();
    if (messages.capacity() <= kMaxSpareMessages) spare_ = std::move(messages);
    return !local_.empty();
  }
  // Checks a received datagram, counts it, writes it to the capture, and parses it to `packet`.
  // Returns false for a datagram that a device drops, because its ICRC is wrong or it is no RoCE v2
  // packet.
  bool CheckReceived(Time now, const wire::UdpFlow& flow, std::span<const std::byte> udp_payload,
                     wire::Packet& packet);
  // Counts the packets of a train that another host sent as a form. Returns the train, which is
  // valid until the next call. Returns nullptr for an impossible form, and counts it as a datagram
  // that cannot be parsed.
  transport::Train* CheckReceivedForm(const wire::UdpFlow& flow, std::span<const std::byte> form);
  // Returns true when captures need the datagrams of each packet.
  bool captures() const { return trace_.wants_packets(); }

  FabricCounters& counters() { return counters_; }
  const FabricCounters& counters() const { return counters_; }

 private:
  static constexpr size_t kMaxSpareMessages = 256;  // memory for more messages is freed
  struct LocalMessage {
    cm::CmRoute route;
    wire::CmMessage message;
  };
  void CountForm();
  size_t BuildMad(const wire::CmMessage& message, uint16_t pkey, std::span<std::byte> out);

  Network& network_;
  trace::Sink& trace_;
  FabricCounters counters_;
  std::vector<LocalMessage> local_;
  std::vector<LocalMessage> spare_;  // empty; memory for `local_`
  wire::IcrcCache sent_icrc_, received_icrc_;
  wire::UdpFlow pending_flow_{};
  std::vector<std::span<std::byte>> pending_;  // rooms that Commit seals and sends
  struct PendingForm {
    uint32_t packets = 0;  // 0: none
    uint64_t bytes = 0;    // of the packets as datagrams
  };
  const bool sends_forms_;
  PendingForm pending_form_;
  transport::Train parsed_;  // a member, because it is large
  uint32_t gsi_psn_ = 0;
};

}  // namespace rdmaemu
