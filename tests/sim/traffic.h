// Queue pairs and what is done with them: made, connected, posted to, taken down in any state; and
// what comes back, handed to the checkers.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "tests/sim/endpoint.h"

namespace rdmaemu::sim {

class Traffic {
 public:
  explicit Traffic(World& world)
      : world_(world), completions_(world.verdict()), delivery_(world.verdict()) {}

  // A queue pair in INIT; nullptr when the host refused.
  Endpoint* Create(Program& program, ibv_qp_type type);
  // Both to RTS, by hand. The second end becomes ready later when `late` is not 0.
  void Connect(Endpoint& a, Endpoint& b, const Link& link, Duration late);
  Link DrawLink(bool same_machine);

  // Posts what its queue has room for, up to `most`.
  void PostReceives(Endpoint& endpoint, uint32_t most);
  // A random request; false when nothing could be posted.
  bool PostRequest(Endpoint& endpoint);

  void ToError(Endpoint& endpoint);
  void Destroy(Endpoint& endpoint);
  // The program or its host has gone.
  void Abandon(Program& program);
  void Disturb(Machine& machine);

  // Takes all completions of the program's queues.
  void Harvest(Program& program);
  // After all programs of a machine were harvested: what their senders were told must be true.
  void CheckAcknowledged();

  // While true, receives are posted as soon as they are used up, so that nobody waits for one.
  void KeepReceiving() { keep_receiving_ = true; }
  std::deque<std::unique_ptr<Endpoint>>& endpoints() { return endpoints_; }
  // Requests that must still complete, and how long that may take from now on.
  size_t Outstanding() const;
  Duration Bound() const;
  // All must have ended.
  void ExpectAllEnded();

 private:
  struct Chosen;

  ibv_qp_attr PathTo(const Endpoint& from, const Endpoint& to, const Link& link);
  int Modify(Endpoint& endpoint, int mask, const ibv_qp_attr& attr);
  int ToReadyToReceive(Endpoint& endpoint, uint32_t psn);
  int ToReadyToSend(Endpoint& endpoint, uint32_t psn);
  void MayFlush(Endpoint& endpoint);
  bool MustEnd(const Endpoint& endpoint) const;

  bool PostSend(Endpoint& endpoint, Request request, rxe_send_wr wr);
  bool PostWrite(Endpoint& endpoint, Request request, rxe_send_wr wr);
  bool PostRead(Endpoint& endpoint, Request request, rxe_send_wr wr);
  bool Post(Endpoint& endpoint, Request request, rxe_send_wr wr, const std::vector<rxe_sge>& sges,
            const std::vector<std::byte>& inline_bytes);
  std::vector<std::byte> Gather(Endpoint& endpoint, uint32_t length, Request& request,
                                std::vector<rxe_sge>& sges);
  std::vector<uint32_t> Split(uint32_t length);
  uint32_t DrawLength(uint32_t most);

  void Completed(Program& program, const ib_uverbs_wc& wc);
  void RequestCompleted(Endpoint& endpoint, const ib_uverbs_wc& wc);
  void Settle(Endpoint& endpoint, Request& request, std::optional<ibv_wc_status> status);
  void JudgeStatus(const Endpoint& endpoint, const Request& request, ibv_wc_status status);
  bool RetriesExcused(const Endpoint& endpoint, const Request& request) const;
  void ReceiveCompleted(Endpoint& endpoint, const ib_uverbs_wc& wc);
  void Arrived(Endpoint& endpoint, Receive& receive, const ib_uverbs_wc& wc);
  void GiveBack(Program& program, Receive& receive);

  World& world_;
  CompletionChecker completions_;
  DeliveryChecker delivery_;
  std::deque<std::unique_ptr<Endpoint>> endpoints_;
  std::map<std::pair<Program*, uint32_t>, Endpoint*> by_qpn_;
  // Messages whose senders were told that they have arrived.
  std::vector<std::pair<DeliveryChecker::Stream, uint64_t>> acknowledged_;
  bool keep_receiving_ = false;
};

}  // namespace rdmaemu::sim
