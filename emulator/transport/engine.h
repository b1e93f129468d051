// The transports of one host: RC, UC and UD for all its QPs. Work comes in by doorbells, packets
// and deadlines; packets for other hosts go out through a DatagramSink, packets between two QPs of
// this host as trains (train.h) that are never serialised.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "emulator/base/memory.h"
#include "emulator/base/random.h"
#include "emulator/base/time.h"
#include "emulator/trace/trace.h"
#include "emulator/transport/doors.h"
#include "emulator/verbs/objects.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

// Where bytes for UDP go. The engine fills what Allocate gave, up to but not including the ICRC.
class DatagramSink {
 public:
  virtual ~DatagramSink() = default;
  // Room for one UDP payload of `bytes` including 4 for the ICRC; empty when the network takes no
  // more now (the packet is then lost, as in a full transmit queue).
  virtual std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                        size_t bytes) = 0;
  // Room for several payloads of one flow that leave one after the other, in `rooms`, so that one
  // read of the program's memory fills them all. Answers how many got room: the first ones, as
  // many as fit now; 0 as Allocate. `rooms` is as long as `bytes`.
  virtual size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                             std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) {
    rooms[0] = Allocate(flow, traffic_class, bytes[0]);
    return rooms[0].empty() ? 0 : 1;
  }
  // Seals (ICRC) and sends what the last Allocate or AllocateRun gave.
  virtual void Commit(Time now) = 0;
};

// Counters of what was dropped and why, and of what went through; `rdmaemu hosts --json`.
struct EngineCounters {
  uint64_t messages_sent = 0, bytes_sent = 0;       // completed requests of local QPs
  uint64_t packets_sent = 0, packets_received = 0;  // on the wire
  uint64_t local_packets = 0;                       // PSNs that stayed in this host
  uint64_t retransmissions = 0, rnr_naks = 0, naks = 0, duplicates = 0;
  // Packets that were thrown away; what each means to a user stands in docs/counters.md. A packet
  // that was answered with a NAK, or that failed its QP, counts there and not here.
  uint64_t dropped_no_qp = 0, dropped_wrong_state = 0, dropped_wrong_address = 0,
           dropped_wrong_pkey = 0, dropped_wrong_qkey = 0, dropped_no_receive = 0,
           dropped_bad_opcode = 0, dropped_own_multicast = 0, dropped_no_group = 0,
           dropped_out_of_sequence = 0, dropped_wrong_length = 0, dropped_no_access = 0,
           dropped_no_memory = 0, dropped_old_request = 0, dropped_old_answer = 0,
           dropped_unexpected_answer = 0, dropped_answer_gap = 0, dropped_bad_syndrome = 0,
           dropped_answer_queue_full = 0, dropped_sender_gone = 0, dropped_above_mtu = 0,
           dropped_no_link = 0;
};

// Told of QPs that connection management may have connected.
class QpEndListener {
 public:
  virtual ~QpEndListener() = default;
  // The QP went to ERR or RESET, or is being destroyed; what waited in it has been flushed.
  virtual void QpEnded(Time now, QueuePair& qp) = 0;
};

class Engine : public TransportHooks {
 public:
  struct Environment {
    VerbsDirectory& verbs;
    Memory& memory;
    Random& random;
    DatagramSink& sink;
    trace::Sink& trace;
    QpEndListener* qp_ends = nullptr;  // nobody where nothing connects
    Doors* doors = nullptr;
  };
  explicit Engine(Environment environment);
  ~Engine() override;

  // The program posted sends (ibv_post_send).
  void Doorbell(Time now, QueuePair& qp);
  // What the group has posted leaves, up to a bound (of RC what one turn sends): to be called
  // before something goes that it may need. It has left rdma_rxe when ibv_post_send returns
  // (rxe_post_send runs the requester), so that there are programs that do not wait for it.
  void SendPosted(Time now, GroupId group);
  // Packets from the wire whose ICRC holds, in the order of their arrival; never one for QP 1.
  // What each does is what it would do alone, but for acknowledgements, of which a QP sends one a
  // call, and the payloads of consecutive packets, which move together. `at`: the own address by
  // which packets to a multicast group came, which says the device they are for; nullptr: any.
  void Receive(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets,
               const NetAddress* at = nullptr);
  void Receive(Time now, const wire::UdpFlow& flow, const wire::Packet& packet) {
    Receive(now, flow, {&packet, 1});
  }
  // A packet between two QPs of this host that a door kept back. To a multicast group it is for the
  // receivers on this host, which have not had it yet.
  void ReceiveKept(Time now, const wire::UdpFlow& flow, const wire::Packet& packet);
  void Expire(Time now);
  // May be too early, unless DropStaleDeadlines was called: timers of answered requests stay armed.
  std::optional<Time> NextDeadline() const;
  void DropStaleDeadlines();
  // A QP was told RNR: its deadline runs against the application that has no receive posted.
  bool AwaitsApplication() const;
  // Does up to a bounded amount of work that is ready (trains between local QPs, windows that
  // opened); true when some is left.
  bool Work(Time now);
  // Programs copy for this host, and say nothing when they have: look again soon.
  bool AwaitsCopies() const;

  void QpStateChanged(Time now, QueuePair& qp, ibv_qp_state from) override;
  void QpAttributesChanged(Time now, QueuePair& qp, int attr_mask) override;
  void QpDestroyed(Time now, QueuePair& qp) override;
  void Quiesce(const PayloadScope& scope) override;

  const EngineCounters& counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rdmaemu::transport
