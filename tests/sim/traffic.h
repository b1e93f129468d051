// Queue pairs and their use. Traffic creates, connects and destroys them in any state, and posts
// work. The checkers get the completions.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/sim/endpoint.h"

namespace rdmaemu::sim {

// Bytes before the payload of a received datagram: ib_grh (struct ibv_grh).
inline constexpr uint32_t kGrhBytes = 40;

class Traffic {
 public:
  explicit Traffic(World& world)
      : world_(world),
        completions_(world.verdict()),
        delivery_(world.verdict()),
        atomics_(world.verdict()),
        events_(world.verdict()),
        huge_left_(world.plan().huge),
        huge_queues_left_(world.plan().huge) {}

  AtomicChecker& atomics() { return atomics_; }
  EventChecker& events() { return events_; }

  // ---- creation and destruction
  Endpoint* Create(Program& program, ibv_qp_type type, bool shared);
  void ToInit(Endpoint& endpoint);
  // Moves both to RTS without the CM. The second end becomes ready later when `late` is not 0.
  void Connect(Endpoint& a, Endpoint& b, const Link& link, Duration late);
  Link DrawLink(bool same_machine);
  // Moves a UD queue pair to RTS.
  void MakeDatagramReady(Endpoint& endpoint);
  // Changes that connection management needs in addition.
  int Modify(Endpoint& endpoint, int mask, const ibv_qp_attr& attr);
  void ToError(Endpoint& endpoint);
  // Drain moves from RTS to SQD. Undrain moves back once it has drained.
  void Drain(Endpoint& endpoint);
  void Undrain(Endpoint& endpoint);
  // Moves to RESET, which ends all its earlier work. Returns the same queue pair as a new endpoint,
  // in RESET.
  Endpoint* Reset(Endpoint& endpoint);
  void Destroy(Endpoint& endpoint);
  // Destroys all of the program's queue pairs and its shared receive queue, in order.
  void DestroyAll(Program& program);
  // Frees the owner's window, even if requests still use it.
  void FreeWindow(Endpoint& owner);
  // Ends or moves the regions of messages that have arrived before the program polls them.
  void EndRegionsOfArrived(Program& program);
  // The program or its host has ended.
  void Abandon(Program& program);
  void Disturb(Machine& machine);

  // ---- work
  // Posts at most `most` receives, as far as the queue has room.
  void PostReceives(Endpoint& endpoint, uint32_t most);
  // Posts about `most` random requests, sometimes more. Returns false when nothing could be posted.
  bool PostRequests(Endpoint& endpoint, uint32_t most);
  // Posts a WRITE or a READ alone to each of the program's idle QPs whose peer is on its machine.
  // Returns the number of requests.
  uint32_t PostAwaited(Program& program);
  // Takes all completions of the program's queues.
  void Harvest(Program& program);
  // Checks that receivers that have polled since have the messages whose sends completed.
  void CheckAcknowledged();

  // ---- the end
  // While true, receives are posted as soon as they are used up, so that no sender waits for one.
  void KeepReceiving() { keep_receiving_ = true; }
  std::deque<std::unique_ptr<Endpoint>>& endpoints() { return endpoints_; }
  // The number of requests that must still complete, and the time limit for them from now on.
  size_t Outstanding() const;
  Duration Bound() const;
  // Complains unless all requests have ended.
  void ExpectAllEnded();

 private:
  static constexpr uint32_t kQkey = 0x11111111;

  // A message that identifies its sender, for queues whose order does not.
  struct Tagged {
    Endpoint *from, *to;
    std::vector<std::byte> content;
    bool solicited;
  };

  std::shared_ptr<ReceiveQueue> MakeReceives(Program& program, ibv_qp_type type, bool shared);
  void OpenQueues(Endpoint& endpoint);
  int ToReadyToReceive(Endpoint& endpoint, uint32_t psn);
  int ToReadyToSend(Endpoint& endpoint, uint32_t psn);
  void MakeReady(Endpoint& endpoint, uint32_t receive_psn, uint32_t send_psn);
  void MayFlush(Endpoint& endpoint);
  void End(Endpoint& endpoint);
  bool MustEnd(const Endpoint& endpoint) const;
  void Say(const Program& program, const std::string& what);

  // Posts a random request; returns false when nothing could be posted.
  bool PostRequest(Endpoint& endpoint);
  // Posts the prepared requests by one of the library's ways.
  void PostPrepared(Endpoint& endpoint);
  int PostByBuilders(Endpoint& endpoint, std::vector<Prepared>& all);
  bool PostSend(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostDatagram(Endpoint& endpoint);
  bool PostWrite(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostRead(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostFenced(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostAtomic(Endpoint& endpoint, Request request, ibv_send_wr wr);
  // Posts a request that must fail.
  bool PostMisuse(Endpoint& endpoint, Request request, ibv_send_wr wr);
  // Makes the next step of a memory window of the connection.
  bool PostWindow(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool BindWindow(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool UseWindow(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool InvalidateWindow(Endpoint& owner, Endpoint& by, Request request, ibv_send_wr wr);
  // Bind a window of type 1 to other bytes or to nothing.
  bool ChangeType1(Endpoint& endpoint, Request request);
  bool RebindWindow(Endpoint& endpoint, Request request);
  bool UnbindWindow(Endpoint& endpoint, Request request);
  // Binds the window anew or invalidates it while the peer writes through it.
  void ChangeWindowInUse(Endpoint& owner);
  // Posts by ibv_bind_mw. A `length` of 0 unbinds the window.
  bool PostBind(Endpoint& endpoint, Request request, const Piece& piece);
  // The owner's peer may lose the right of its WRITEs through the window, or loses it.
  void MayLoseWindow(Endpoint& owner);
  void LoseWindow(Endpoint& owner);
  void WindowMoves(Endpoint& endpoint, const Request& request, bool done);
  // A WRITE to a region that exists for it alone. The region ends or moves at any moment.
  bool PostToLease(Endpoint& endpoint, Request request, ibv_send_wr wr);
  void EndLease(Lease& lease);
  void OwnRegion(Program& program, Receive& receive, std::vector<ibv_sge>& sges);
  void EndRegion(Program& program, Receive& receive);
  // The right to write the target ends now, or may have ended at the peer already.
  void MayLoseRight(Endpoint& endpoint, Request& request);
  void LoseRight(Endpoint& endpoint, Request& request);
  // The endpoint's requests may move its peer's QP to ERR.
  void PeerMayFail(Endpoint& endpoint);
  // No request after this one may arrive.
  void Wall(Endpoint& endpoint);
  bool Post(Endpoint& endpoint, Request request, ibv_send_wr wr, const std::vector<ibv_sge>& sges,
            const std::vector<std::byte>& inline_bytes);
  std::vector<std::byte> Gather(Endpoint& endpoint, uint32_t length, Request& request,
                                std::vector<ibv_sge>& sges);
  bool Scatter(Endpoint& endpoint, std::span<const std::byte> bytes, Request& request,
               std::vector<ibv_sge>& sges);
  void Drop(Program& program, Request& request);
  std::vector<uint32_t> Split(uint32_t length);
  uint32_t DrawLength(uint32_t most);

  // These return whether a queue that is armed for solicited completions raises its event.
  bool Completed(Program& program, const ibv_wc& wc);
  bool RequestCompleted(Endpoint& endpoint, const ibv_wc& wc);
  void Settle(Endpoint& endpoint, Request& request, std::optional<ibv_wc_status> status);
  void JudgeStatus(const Endpoint& endpoint, const Request& request, ibv_wc_status status);
  bool RetriesExcused(const Endpoint& endpoint) const;
  bool ReceiveCompleted(Endpoint& endpoint, const ibv_wc& wc);
  bool Arrived(Endpoint& endpoint, Receive& receive, const ibv_wc& wc);
  bool TaggedArrived(Endpoint& endpoint, Receive& receive, const ibv_wc& wc, Message message);
  void Place(Program& program, Receive& receive, std::span<const std::byte> content,
             bool rest_may_change);
  std::vector<std::byte> BytesOf(Program& program, const Receive& receive, uint32_t length);
  void GiveBack(Program& program, Receive& receive);

  World& world_;
  CompletionChecker completions_;
  DeliveryChecker delivery_;
  AtomicChecker atomics_;
  EventChecker events_;
  std::deque<std::unique_ptr<Endpoint>> endpoints_;
  std::map<std::pair<Program*, uint32_t>, Endpoint*> by_qpn_;
  std::map<Program*, std::shared_ptr<ReceiveQueue>> shared_receives_;
  std::deque<std::unique_ptr<Lease>> leases_;
  std::unordered_map<uint64_t, Tagged> tagged_;  // only for lookup
  uint64_t last_swap_ = 0;
  uint32_t last_tag_ = 0;
  // Messages whose send completions say that they have arrived.
  struct Acknowledged {
    DeliveryChecker::Stream stream;
    uint64_t number;
    Program* receiver;
    uint64_t harvest;  // the receiver's next
  };
  std::vector<Acknowledged> acknowledged_;
  bool keep_receiving_ = false;
  // Messages of kHugeBytes, and queues with receives of this size, that the run may still draw.
  uint32_t huge_left_, huge_queues_left_;
};

}  // namespace rdmaemu::sim
