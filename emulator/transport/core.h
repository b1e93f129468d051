// State and functions that requester, responder and completer share. They transmit trains, queue
// trains between local QPs, keep timers, schedule QPs with work, push completions and write traces.
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
#include "emulator/transport/form_fills.h"
#include "emulator/transport/form_targets.h"
#include "emulator/transport/lanes.h"
#include "emulator/transport/lent_permits.h"
#include "emulator/transport/payload_owner.h"
#include "emulator/transport/permits.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"

namespace rdmaemu::transport {

// The most payload bytes of one train between local QPs. This limit bounds the cost of one step of
// work.
inline constexpr uint64_t kMaxTrainBytes = 256 * 1024;
// Limits of the queue of trains between local QPs. New requests leave room for responses. An ACK
// that finds no room is lost, as on a wire.
inline constexpr size_t kMaxLocalRequests = 4096;
inline constexpr size_t kMaxLocalReads = 6144;
inline constexpr size_t kMaxLocalTrains = 8192;
// The most PSNs that a sender may have unacknowledged at a QP of its own host.
inline constexpr uint32_t kLocalWindowPackets = 65536;
// Limits for one QP before the next QP's turn.
inline constexpr uint32_t kTrainsPerTurn = 16;
inline constexpr uint32_t kWirePacketsPerTurn = 64;
// Limits for one call of Work.
inline constexpr uint32_t kTurnsPerWork = 64;
inline constexpr uint32_t kWirePacketsPerWork = 256;
inline constexpr uint32_t kTrainsPerWork = 512;
inline constexpr uint64_t kLocalBytesPerWork = 4 * 1024 * 1024;
// Limit for one UC or UD queue pair in one call of SendPosted.
inline constexpr uint32_t kTurnsPerSendPosted = 4096;
// The most deadlines that one call of Expire handles. The engine does other work between two calls.
inline constexpr uint32_t kExpirationsPerCall = 4096;

// Returns an RNIC's event for a local error of this status. Nothing for a peer's errors and
// flushes.
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
        payloads(env.memory, doors),
        fills(env.memory, payloads),
        targets(env.verbs, env.memory, payloads),
        permits(env, payloads, counters),
        lent_permits(env, payloads, counters),
        lanes(*this) {}

  Engine::Environment env;
  const DoorFlags& doors;
  PayloadOwner payloads;
  FormFills fills;
  FormTargets targets;
  bool is_wire_full = false;  // a form found no room since the flag was cleared
  bool sends_now = false;     // forms wait for room, and the host copies their payload
  EngineCounters counters;
  Permits permits;
  LentPermits lent_permits;
  Lanes lanes;

  // Ends all permits of this host's programs, and those that it lends. Closes all lanes.
  void EndPermits() {
    lanes.EndAll();
    permits.EndAll();
    lent_permits.EndAll();
  }
  // The QP begins another life, or is destroyed. Call EndPermits before.
  void ForgetPermits(QpContext& context) {
    permits.Forget(context);
    lent_permits.Forget(context);
    lanes.Forget(context);
  }

  // Returns the QP's context. Creates the context if there is none.
  QpContext& ContextOf(QueuePair& qp);
  QpContext* Find(Handle qp);  // nullptr: the QP was destroyed
  void Forget(QueuePair& qp);
  void BeginLife(QpContext& context) { context.epoch = ++last_epoch_; }

  // Moves the QP to ERR, once.
  void FailQp(Time now, QueuePair& qp) {
    if (qp.state() != IBV_QPS_ERR) env.verbs.FailQp(now, qp);
  }

  // Moves the QP to ERR after an error without a completion. Raises `event` on devices whose
  // profile says so.
  void FailQp(Time now, QueuePair& qp, ibv_event_type event) {
    if (qp.state() == IBV_QPS_ERR) return;
    if (qp.device->profile.raises_qp_fatal) env.verbs.RaiseQp(qp, event);
    env.verbs.FailQp(now, qp);
  }

  // Moves the QP to ERR after a local error with a completion of this `status`. Some devices also
  // raise an event.
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

  // Sets or clears the QP's deadline for Expire.
  void SetDeadline(QpContext& context, std::optional<Time> deadline);
  // Returns the next deadline, which may be too early. A QP's timer stays armed when its deadline
  // is cleared or moved to a later time.
  std::optional<Time> NextDeadline() const { return timers_.Next(); }
  // Disarms the earliest timers until the first one has a current deadline.
  void DropStaleDeadlines();
  // Returns true when a QP waits for its peer's application to post a receive.
  bool AwaitsReceive() const;
  // Returns the next QP whose deadline is not after `now`, and clears that deadline. nullptr: none.
  QpContext* PopExpired(Time now);

  // Resolves `length` bytes of a scatter/gather list from `offset` on to local memory. Returns
  // IBV_WC_SUCCESS, or rxe's status for a request whose gather fails.
  ibv_wc_status ResolveSges(const QueuePair& qp, std::span<const rxe_sge> sges, uint64_t offset,
                            uint64_t length, int access, Pieces& out);

  // Does the same for a receive of the QP's queue or of its SRQ.
  ibv_wc_status ResolveReceive(const QueuePair& qp, const RecvWqe& receive, uint64_t offset,
                               uint64_t length, Pieces& out);

  // Sends a train to the local queue, or to the sink. EFAULT: the payload could not be read.
  // EAGAIN: the local queue holds `limit` trains, or there is no room for a form.
  Status Transmit(Time now, Device& from, const Train& train, bool local, size_t limit);
  // Does the same without a copy of a local train. After success `train` is another train, with any
  // content.
  Status Transmit(Time now, Device& from, std::unique_ptr<Train>& train, bool local, size_t limit);
  // Returns true when the train's source has a working link. Counts the train as sent by its
  // device, or as dropped.
  bool Leaves(Device& from, const Train& train);
  // Returns true when the QP's requests must fail now instead of being lost. Some devices fail them
  // when the port is down or the address was removed. Packets of a removed device are lost
  // (measured on rxe).
  bool FailsSends(const QueuePair& qp) const {
    return !env.verbs.Carries(qp) && qp.device->present &&
           qp.device->profile.fails_sends_without_link;
  }
  // Applies the doors to each packet, and calls `hand_on` for each part of the train that continues
  // unchanged. Returns the first error of `hand_on`, which ends the loop.
  using HandOn = std::function<Status(Train&)>;
  Status PassDoors(Time now, const Train& train, bool local, const HandOn& hand_on);
  bool LocalRoom(size_t limit) const { return local_.size() < limit; }
  bool HasLocal() const { return !local_.empty(); }
  // Returns how many trains were ever queued. LocalTaken returns how many of them were taken from
  // the queue.
  uint64_t LocalQueued() const { return local_taken_ + local_.size(); }
  uint64_t LocalTaken() const { return local_taken_; }
  // Removes and returns the oldest local train. The caller must return the train with GiveBack.
  std::unique_ptr<Train> TakeLocal();
  void GiveBack(std::unique_ptr<Train> train);
  // Records that the program owns a region's memory again. Requests in transit inside the host must
  // then not read the memory by its key. Records nothing when no train is in transit (`any_on_way`
  // is false and the local queue is empty).
  void RegionEnded(uint32_t lkey, bool any_on_way);
  // Returns true when any region has ended since the train was queued.
  bool HasRegionEndedSince(const Train& train) const {
    return train.regions_ended != regions_ended_;
  }
  // Returns true when the region with this key has ended since the train was queued.
  bool HasEndedSince(const Train& train, uint32_t lkey) const;
  // Counts a train that stays in the host, and writes its packets to the capture.
  void NoteLocal(Time now, const Train& train);

  // Push completions. Return false when the queue overran.
  bool CompleteSend(Time now, QpContext& context, const SendWqe& request);
  bool CompleteReceive(Time now, QpContext& context, CqEntry& entry, bool solicited);
  void TraceRetry(Time now, const QpContext& context, const char* why);

 private:
  static constexpr DoorFlags kNoDoors = {};

  ibv_wc_status ResolveIn(const ProtectionDomain& pd, std::span<const rxe_sge> sges,
                          uint64_t offset, uint64_t length, int access, Pieces& out);
  // Sends a train to another host, as forms if the host takes them, else as packets.
  Status SendToWire(Time now, const Train& train);
  Status CutToWire(Time now, const Train& train);
  // Returns false if the destination takes no form of the train. Sets `status` to the result of
  // reading the payload.
  bool SendForm(Time now, const Train& train, Status& status);
  void QueueLocal(Time now, const Train& train);
  std::unique_ptr<Train> SpareTrain();
  bool AskDoors(Time now, const Train& train, uint32_t index, bool local);
  std::vector<std::byte> DatagramOf(const Train& train, uint32_t index);

  std::unordered_map<Handle, QpContext*> contexts_;
  uint64_t last_epoch_ = 0;
  TimerQueue<Handle> timers_;
  Fifo<std::unique_ptr<Train>> local_;
  uint64_t local_taken_ = 0;
  // Keys of the latest regions that ended while trains were in transit, oldest first. The last key
  // has the number `regions_ended_`. Older keys are deleted. HasEndedSince then returns true for
  // any key.
  static constexpr size_t kMaxEndedRegions = 1024;
  std::deque<uint32_t> ended_regions_;
  uint64_t regions_ended_ = 0;
  std::vector<std::unique_ptr<Train>> spare_;
  std::vector<std::byte> wire_buffer_;
};

// Makes `train` an empty packet of the QP's connection. The caller fills it.
void AddressRc(const QpContext& context, wire::Operation operation, Train& train);

}  // namespace rdmaemu::transport
