// The transports of one host: RC, UC and UD for all its QPs. Doorbells, packets and deadlines give
// the engine work. The engine sends packets for other hosts to a DatagramSink. Packets between two
// QPs of this host stay trains (train.h) and are never serialised.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "emulator/base/memory.h"
#include "emulator/base/random.h"
#include "emulator/base/time.h"
#include "emulator/base/unfilled_form.h"
#include "emulator/trace/trace.h"
#include "emulator/transport/doors.h"
#include "emulator/transport/permit_offer.h"
#include "emulator/verbs/objects.h"
#include "emulator/wire/icrc.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::transport {

struct Train;

// Sends UDP datagrams. The engine fills the buffers of Allocate, except for the ICRC.
class DatagramSink {
 public:
  virtual ~DatagramSink() = default;
  // Returns a buffer for one UDP payload of `bytes`, of which 4 are for the ICRC. Returns an empty
  // span when the network is full. The packet is then lost, as in a full transmit queue.
  virtual std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                        size_t bytes) = 0;
  // Allocates `rooms` for consecutive payloads of one flow, so that one read of program memory can
  // fill all of them. Returns how many payloads fit now, counted from the first one. 0: the network
  // is full. `rooms` is as long as `bytes`.
  virtual size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                             std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms) {
    rooms[0] = Allocate(flow, traffic_class, bytes[0]);
    return rooms[0].empty() ? 0 : 1;
  }
  // Allocates a buffer for the form of a train (train_form.h), which replaces its packets. Returns
  // nothing if the destination takes no forms. The caller must then send packets. Returns an empty
  // span if there is no room now, unless `may_wait`.
  virtual std::optional<std::span<std::byte>> AllocateForm(const Train&, bool /*may_wait*/) {
    return std::nullopt;
  }
  // Writes the ICRC and sends the buffers of the last Allocate or AllocateRun. Sends the form of
  // the last AllocateForm.
  virtual void Commit(Time now) = 0;
  // Sends the form of the last AllocateForm before its payload is there. `payload_bytes` is the
  // length of the payload at the form's end.
  virtual std::unique_ptr<UnfilledForm> CommitUnfilled(Time /*now*/, size_t /*payload_bytes*/) {
    return nullptr;
  }
  // Returns true if CommitUnfilled works for the form of the last AllocateForm.
  virtual bool takes_unfilled() const { return false; }
  // Sends the offer of a permit (permit_offer.h). Acts as Network::SendOffer.
  virtual bool OfferPermit(const wire::UdpFlow&, std::span<const std::byte> /*offer*/) {
    return false;
  }
  // Act as those of Network.
  virtual std::shared_ptr<const int> OpenCounter(const NetAddress&, int /*fd*/) { return nullptr; }
  virtual void AddToCounter(const NetAddress&, int /*fd*/) {}
  // Counts the packets of requests that a program has executed itself (permits.h), which were
  // neither sent nor received.
  struct Exchanged {
    uint64_t sent_packets, sent_bytes, received_packets, received_bytes;
  };
  virtual void CountExchanged(const Exchanged&) {}
};

// Counters of traffic and of dropped packets by reason (`rdmaemu hosts --json`).
struct EngineCounters {
  uint64_t messages_sent = 0, bytes_sent = 0;  // completed requests of local QPs
  // Those of messages_sent that programs have executed, by permits and by lanes.
  uint64_t messages_by_permit = 0, messages_by_lane = 0;
  uint64_t packets_sent = 0, packets_received = 0;  // on the wire
  uint64_t local_packets = 0;                       // PSNs between QPs of this host
  uint64_t retransmissions = 0, rnr_naks = 0, naks = 0, duplicates = 0;
  // Dropped packets. docs/counters.md explains each counter to users. A packet that causes a NAK or
  // fails its QP is counted there instead.
  uint64_t dropped_no_qp = 0, dropped_wrong_state = 0, dropped_wrong_address = 0,
           dropped_wrong_pkey = 0, dropped_wrong_qkey = 0, dropped_no_receive = 0,
           dropped_bad_opcode = 0, dropped_own_multicast = 0, dropped_no_group = 0,
           dropped_out_of_sequence = 0, dropped_wrong_length = 0, dropped_no_access = 0,
           dropped_no_memory = 0, dropped_old_request = 0, dropped_old_answer = 0,
           dropped_unexpected_answer = 0, dropped_answer_gap = 0, dropped_bad_syndrome = 0,
           dropped_answer_queue_full = 0, dropped_sender_gone = 0, dropped_above_mtu = 0,
           dropped_no_link = 0;
};

// Called at the end of QPs that connection management may have connected.
class QpEndListener {
 public:
  virtual ~QpEndListener() = default;
  // Called after the QP moved to ERR or RESET, or while it is being destroyed. The engine has
  // flushed its work.
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
    QpEndListener* qp_ends = nullptr;  // nullptr: nothing connects QPs
    Doors* doors = nullptr;
    // `memory` without its door, for captures: these reads are none of the device. nullptr: the
    // same as `memory`.
    Memory* memory_of_captures = nullptr;
    // Returns true while programs may execute requests themselves (permits.h). None: they may not.
    std::function<bool()> permits = nullptr;
    SharedMemory* lanes = nullptr;  // for lanes (lanes.h). nullptr: there are none
  };
  explicit Engine(Environment environment);
  ~Engine() override;

  // Handles the doorbell of a program that posted sends (ibv_post_send).
  void Doorbell(Time now, QueuePair& qp);
  // Transmits the group's posted work (bounded: one scheduling turn per RC QP). Call this before
  // destroying anything that the work may reference. rdma_rxe sends within ibv_post_send
  // (rxe_post_send runs the requester), so some programs do not wait before they destroy it.
  void SendPosted(Time now, GroupId group);
  // Handles packets from the wire in the order of their arrival. Their ICRC must be valid, and none
  // may be for QP 1. The result is that of single packets, with two exceptions. A QP sends one
  // acknowledgement per call, and the payloads of consecutive packets are moved together. `at`: the
  // own address that received packets of a multicast group, which selects the device. nullptr: any
  // device.
  void Receive(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets,
               const NetAddress* at = nullptr);
  // Does the same with trains that another host of this user has sent as forms (train_form.h).
  // `next` returns each train, which is valid until the next call, and then nullptr. `are_placed`:
  // the payloads are where Direct has named a place. They have the right lengths, but no content.
  using NextTrain = std::function<Train*()>;
  void ReceiveTrains(Time now, const NextTrain& next, bool are_placed);
  // Receives the offer of another host to lend it a permit. `page_of` acts as Network::OpenJobPage.
  using OpenJobPage = std::function<std::shared_ptr<JobPage>(const JobReference&)>;
  void TakeOffer(const wire::UdpFlow& flow, const PermitOffer& offer, const OpenJobPage& page_of);
  // Receives the offer of another host to open a lane. `open_lane` acts as Network::OpenLane.
  using OpenLane = std::function<Result<Segment>(const JobReference&)>;
  void TakeLaneOffer(Time now, const wire::UdpFlow& flow, const PermitOffer& offer,
                     const OpenLane& open_lane);
  // Acts as Host::Direct, for a train whose payload is missing.
  Naming Direct(const Train& train, const std::shared_ptr<DirectForm>& form);
  // Reads the payload of a train that was copied to the place that Direct has named.
  Status ReadPlaced(const Train& train, std::span<std::byte> payload);
  void Receive(Time now, const wire::UdpFlow& flow, const wire::Packet& packet) {
    Receive(now, flow, {&packet, 1});
  }
  // Handles a packet between two QPs of this host that a door delayed. A multicast packet goes to
  // the receivers on this host only. They have not received it yet.
  void ReceiveKept(Time now, const wire::UdpFlow& flow, const wire::Packet& packet);
  void Expire(Time now);
  // Returns the next deadline. The returned deadline may be too early, because timers of answered
  // requests stay armed. Call DropStaleDeadlines first for an exact one.
  std::optional<Time> NextDeadline() const;
  void DropStaleDeadlines();
  // Returns true when a QP waits after an RNR NAK. Its deadline then depends on an application that
  // must post a receive.
  bool AwaitsApplication() const;
  // Does a bounded amount of ready work: it delivers trains between local QPs, and sends requests
  // into windows that have room again. Returns true when work is left.
  bool Work(Time now);
  // The two halves of Work. Take takes posted work from the queues, and returns true when Deliver
  // has work. Deliver executes requests for QPs of this host. Deliver returns as Work does.
  bool Take(Time now);
  bool Deliver(Time now);
  // Returns true while programs copy for this host. A copy's end makes no call, so the caller must
  // poll soon.
  bool AwaitsCopies() const;
  // Returns true while a program's thread copies the payload of a sent train. The thread rings the
  // doorbell of a sleeping host at the end. HasFilledForms returns true if a copy has ended.
  bool AwaitsForms() const;
  bool HasFilledForms();
  // Finishes sent trains whose payload a program's thread still copies. Call this before the host
  // waits for another host.
  void FinishForms();
  // Does the same, and takes back the named destinations of received trains (Direct). No thread
  // copies between hosts afterwards.
  void StopCopies();

  // Ends the permits of programs to execute requests themselves (permits.h). Call this before
  // anything begins to look at packets, completions or memory. StopCopies and Quiesce do it, too.
  void EndPermits();
  // Counts the requests that programs have executed. Call this before someone reads the counters of
  // a device.
  void CountExecuted();

  void QpStateChanged(Time now, QueuePair& qp, ibv_qp_state from) override;
  void QpAttributesChanged(Time now, QueuePair& qp, int attr_mask) override;
  void QpDestroyed(Time now, QueuePair& qp) override;
  void Quiesce(const PayloadScope& scope) override;
  void CloseLanes() override;
  void TakeFromLane(CompletionQueue& cq) override;
  SegmentId LaneOf(QueuePair& qp, bool receives) override;
  LaneCounter LaneCounterOf(QueuePair& qp) override;
  void RaiseLaneEvent(QueuePair& qp) override;
  void CloseSentLane(Time now, QueuePair& qp) override;
  void ReadPsns(QueuePair& qp, ibv_qp_attr& attr) override;

  const EngineCounters& counters() const;
  // Returns how many SENDs DirectSends has executed in all.
  uint64_t direct_sends() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rdmaemu::transport
