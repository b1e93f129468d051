// Queue pairs and what is done with them: made, connected, posted to, taken down in any state; and
// what comes back, handed to the checkers.
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
        events_(world.verdict()) {}

  AtomicChecker& atomics() { return atomics_; }
  EventChecker& events() { return events_; }

  // ---- life
  // A queue pair in RESET; nullptr when the host refused. `shared`: it may take its receives from a
  // queue that several share.
  Endpoint* Create(Program& program, ibv_qp_type type, bool shared);
  void ToInit(Endpoint& endpoint);
  // Both to RTS, by hand. The second end becomes ready later when `late` is not 0.
  void Connect(Endpoint& a, Endpoint& b, const Link& link, Duration late);
  Link DrawLink(bool same_machine);
  // A UD queue pair to RTS.
  void MakeDatagramReady(Endpoint& endpoint);
  // What else the connection manager's ways need.
  int Modify(Endpoint& endpoint, int mask, const ibv_qp_attr& attr);
  void ToError(Endpoint& endpoint);
  // RTS to SQD, and back once it has drained.
  void Drain(Endpoint& endpoint);
  void Undrain(Endpoint& endpoint);
  // To RESET: what it was is over; answers the same queue pair as a new endpoint, in RESET.
  Endpoint* Reset(Endpoint& endpoint);
  void Destroy(Endpoint& endpoint);
  // All of the program's queue pairs and its shared receive queue, in order.
  void DestroyAll(Program& program);
  // The owner frees its window, whatever is on its way through it.
  void FreeWindow(Endpoint& owner);
  // Ends or moves the regions of messages that have arrived, before the program polls them.
  void EndRegionsOfArrived(Program& program);
  // The program or its host has gone.
  void Abandon(Program& program);
  void Disturb(Machine& machine);

  // ---- work
  // Posts what its queue has room for, up to `most`.
  void PostReceives(Endpoint& endpoint, uint32_t most);
  // Random requests, at most so many and now and then more; false when nothing could be posted.
  bool PostRequests(Endpoint& endpoint, uint32_t most);
  // Takes all completions of the program's queues.
  void Harvest(Program& program);
  // What senders were told must be true for receivers that have looked since.
  void CheckAcknowledged();

  // ---- the end
  // While true, receives are posted as soon as they are used up, so that nobody waits for one.
  void KeepReceiving() { keep_receiving_ = true; }
  std::deque<std::unique_ptr<Endpoint>>& endpoints() { return endpoints_; }
  // Requests that must still complete, and how long that may take from now on.
  size_t Outstanding() const;
  Duration Bound() const;
  // All must have ended.
  void ExpectAllEnded();

 private:
  static constexpr uint32_t kQkey = 0x11111111;

  // A message that tells by itself who sent it, for where the order does not.
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

  // A random request; false when nothing could be posted.
  bool PostRequest(Endpoint& endpoint);
  // Hands what was prepared to the library, in one of its ways.
  void PostPrepared(Endpoint& endpoint);
  int PostByBuilders(Endpoint& endpoint, std::vector<Prepared>& all);
  bool PostSend(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostDatagram(Endpoint& endpoint);
  bool PostWrite(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostRead(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostFenced(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool PostAtomic(Endpoint& endpoint, Request request, ibv_send_wr wr);
  // Something that must fail.
  bool PostMisuse(Endpoint& endpoint, Request request, ibv_send_wr wr);
  // The next step in the life of a memory window of the connection.
  bool PostWindow(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool BindWindow(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool UseWindow(Endpoint& endpoint, Request request, ibv_send_wr wr);
  bool InvalidateWindow(Endpoint& owner, Endpoint& by, Request request, ibv_send_wr wr);
  void WindowMoves(Endpoint& endpoint, const Request& request, bool done);
  // A WRITE to a region that is there for it alone, and ends or moves at any moment.
  bool PostToLease(Endpoint& endpoint, Request request, ibv_send_wr wr);
  void EndLease(Lease& lease);
  void OwnRegion(Program& program, Receive& receive, std::vector<ibv_sge>& sges);
  void EndRegion(Program& program, Receive& receive);
  // The right to write the target ends now, or may have ended at the peer already.
  void MayLoseRight(Endpoint& endpoint, Request& request);
  void LoseRight(Endpoint& endpoint, Request& request);
  // The endpoint's requests may move its peer's QP to ERR.
  void PeerMayFail(Endpoint& endpoint);
  // Nothing behind this request may arrive.
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

  // These answer whether a queue that is armed for solicited completions raises its event.
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
  std::unordered_map<uint64_t, Tagged> tagged_;  // looked up only
  uint64_t last_swap_ = 0;
  uint32_t last_tag_ = 0;
  // Messages whose senders were told that they have arrived.
  struct Acknowledged {
    DeliveryChecker::Stream stream;
    uint64_t number;
    Program* receiver;
    uint64_t harvest;  // the receiver's next
  };
  std::vector<Acknowledged> acknowledged_;
  bool keep_receiving_ = false;
};

}  // namespace rdmaemu::sim
