// What requester, responder and completer share: the way out for trains, the queue of trains
// between local QPs, timers, the round of QPs with something to do, completions and traces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/base/timer_queue.h"
#include "emulator/transport/engine.h"
#include "emulator/transport/fifo.h"
#include "emulator/transport/payload_owner.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

// Payload of one train between local QPs at most; bounds what one step of work costs.
inline constexpr uint64_t kMaxTrainBytes = 256 * 1024;
// Trains that may wait between local QPs: new requests leave room for answers, and an ACK that
// finds no room is lost as it would be on a wire.
inline constexpr size_t kMaxLocalRequests = 4096;
inline constexpr size_t kMaxLocalReads = 6144;
inline constexpr size_t kMaxLocalTrains = 8192;
// PSNs that a sender may have unacknowledged towards a QP of its own host.
inline constexpr uint32_t kLocalWindowPackets = 65536;
// What one QP does before it is another's turn.
inline constexpr uint32_t kTrainsPerTurn = 16;
inline constexpr uint32_t kWirePacketsPerTurn = 64;
// What one call of Work does.
inline constexpr uint32_t kTurnsPerWork = 64;
inline constexpr uint32_t kWirePacketsPerWork = 256;
inline constexpr uint32_t kTrainsPerWork = 512;
inline constexpr uint64_t kLocalBytesPerWork = 4 * 1024 * 1024;
// What one call of SendPosted does for a UC or UD queue pair.
inline constexpr uint32_t kTurnsPerSendPosted = 4096;
// Deadlines that one call of Expire handles before it lets others work.
inline constexpr uint32_t kExpirationsPerCall = 4096;

// The event of an RNIC for a local error with this status; nothing for a peer's errors and flushes.
constexpr std::optional<ibv_event_type> EventOfLocalError(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_LEN_ERR:
      return IBV_EVENT_QP_FATAL;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_GENERAL_ERR:
      return IBV_EVENT_QP_ACCESS_ERR;
    default:
      return std::nullopt;
  }
}

class Core {
 public:
  explicit Core(Engine::Environment environment)
      : env(environment),
        doors(env.doors == nullptr ? kNoDoors : env.doors->flags),
        payloads(env.memory, doors) {}

  Engine::Environment env;
  const DoorFlags& doors;
  PayloadOwner payloads;
  EngineCounters counters;

  // The QP's context, made when it has none.
  QpContext& ContextOf(QueuePair& qp);
  QpContext* Find(Handle qp);  // nullptr when it is gone
  void Forget(QueuePair& qp);
  void BeginLife(QpContext& context) { context.epoch = ++last_epoch_; }

  // Takes the QP into ERR, once.
  void FailQp(Time now, QueuePair& qp) {
    if (qp.state() != IBV_QPS_ERR) env.verbs.FailQp(now, qp);
  }

  // The same for a fault that no completion tells of; devices that have the habit raise the event.
  void FailQp(Time now, QueuePair& qp, ibv_event_type event) {
    if (qp.state() == IBV_QPS_ERR) return;
    if (qp.device->profile.raises_qp_fatal) env.verbs.RaiseQp(qp, event);
    env.verbs.FailQp(now, qp);
  }

  // The same for a local error that a completion tells of: some devices raise an event as well.
  // `status` is the completion's.
  void FailQpAfter(Time now, QueuePair& qp, ibv_wc_status status) {
    if (qp.state() == IBV_QPS_ERR) return;
    const Profile& profile = qp.device->profile;
    const std::optional<ibv_event_type> event = EventOfLocalError(status);
    if (event && profile.raises_qp_fatal && profile.raises_rnic_events) {
      env.verbs.RaiseQp(qp, *event);
    }
    env.verbs.FailQp(now, qp);
  }

  void MakeReady(QpContext& context) { round.Push(context); }
  Round round;

  // Sets or clears when Expire must look at the QP.
  void SetDeadline(QpContext& context, std::optional<Time> deadline);
  // May be too early: a QP's timer stays armed when its deadline is cleared or moved.
  std::optional<Time> NextDeadline() const { return timers_.Next(); }
  // Disarms the first timers until the first one is a deadline.
  void DropStaleDeadlines();
  // A QP waits until its peer's application has posted a receive.
  bool AwaitsReceive() const;
  // The next QP whose deadline has really come; nullptr when there is none.
  QpContext* PopExpired(Time now);

  // Local bytes of a scatter/gather list from `offset` on. IBV_WC_SUCCESS, or the status that rxe
  // gives a request whose gather fails.
  ibv_wc_status ResolveSges(const QueuePair& qp, std::span<const rxe_sge> sges, uint64_t offset,
                            uint64_t length, int access, Pieces& out);

  // Hands a train on: to the local queue, or cut into packets to the sink. EFAULT when its payload
  // could not be read; EAGAIN when the local queue holds `limit` trains.
  Status Transmit(Time now, const Train& train, bool local, size_t limit);
  // False, and counted: the train's source has no way out.
  bool Leaves(const Train& train);
  // The QP's requests fail now instead of being lost: its port is down or its address has gone,
  // and its device has the habit. What a removed device sends is lost (measured on rxe).
  bool FailsSends(const QueuePair& qp) const {
    return !env.verbs.Carries(qp) && qp.device->present &&
           qp.device->profile.fails_sends_without_link;
  }
  // Asks the doors about each packet, and hands on the parts of the train that pass. The first
  // error of `hand_on` ends it.
  using HandOn = std::function<Status(Train&)>;
  Status PassDoors(Time now, const Train& train, bool local, const HandOn& hand_on);
  bool LocalRoom(size_t limit) const { return local_.size() < limit; }
  bool HasLocal() const { return !local_.empty(); }
  // The oldest local train; the caller gives it back.
  std::unique_ptr<Train> TakeLocal();
  void GiveBack(std::unique_ptr<Train> train);
  // The region's memory is the program's again: requests that are on their way inside the host must
  // not be read by its key. With none (`any_on_way` false) nothing needs to be kept.
  void RegionEnded(uint32_t lkey, bool any_on_way);
  // A region has ended since the train was queued.
  bool HasRegionEndedSince(const Train& train) const {
    return train.regions_ended != regions_ended_;
  }
  // It is one of those.
  bool HasEndedSince(const Train& train, uint32_t lkey) const;
  // Counts a train that stays in the host, and writes its packets into the capture.
  void NoteLocal(Time now, const Train& train);

  // Completions. False: the queue overran.
  bool CompleteSend(Time now, QpContext& context, const SendWqe& request);
  bool CompleteReceive(Time now, QpContext& context, CqEntry& entry, bool solicited);
  void TraceRetry(Time now, const QpContext& context, const char* why);

 private:
  static constexpr DoorFlags kNoDoors = {};

  Status CutToWire(Time now, const Train& train);
  void QueueLocal(Time now, const Train& train);
  bool AskDoors(Time now, const Train& train, uint32_t index, bool local);
  std::vector<std::byte> DatagramOf(const Train& train, uint32_t index);

  std::unordered_map<Handle, QpContext*> contexts_;
  uint64_t last_epoch_ = 0;
  TimerQueue<Handle> timers_;
  Fifo<std::unique_ptr<Train>> local_;
  // The keys of the latest regions that ended while trains were on their way, oldest first; the
  // last one is number `regions_ended_`. Of older ones only the number is known: they count as any
  // key.
  static constexpr size_t kMaxEndedRegions = 1024;
  std::deque<uint32_t> ended_regions_;
  uint64_t regions_ended_ = 0;
  std::vector<std::unique_ptr<Train>> spare_;
  std::vector<std::byte> wire_buffer_;
};

// Makes `train` an empty packet of the QP's connection, to be filled.
void AddressRc(const QpContext& context, wire::Operation operation, Train& train);

}  // namespace rdmaemu::transport
