// Completions. Each is compared with the posted work, and its memory with the model.
#include <algorithm>

#include "emulator/transport/copy_jobs.h"
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

const char* StatusName(uint32_t status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "success";
    case IBV_WC_LOC_LEN_ERR:
      return "LOC_LEN_ERR";
    case IBV_WC_LOC_QP_OP_ERR:
      return "LOC_QP_OP_ERR";
    case IBV_WC_LOC_PROT_ERR:
      return "LOC_PROT_ERR";
    case IBV_WC_WR_FLUSH_ERR:
      return "WR_FLUSH_ERR";
    case IBV_WC_MW_BIND_ERR:
      return "MW_BIND_ERR";
    case IBV_WC_REM_INV_REQ_ERR:
      return "REM_INV_REQ_ERR";
    case IBV_WC_REM_ACCESS_ERR:
      return "REM_ACCESS_ERR";
    case IBV_WC_REM_OP_ERR:
      return "REM_OP_ERR";
    case IBV_WC_RETRY_EXC_ERR:
      return "RETRY_EXC_ERR";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "RNR_RETRY_EXC_ERR";
    default:
      return "another error";
  }
}

constexpr uint32_t kMostAPoll = 4;

CompletionChecker::Ended EndedWith(uint32_t status) {
  if (status == IBV_WC_SUCCESS) return CompletionChecker::Ended::kSuccess;
  return status == IBV_WC_WR_FLUSH_ERR ? CompletionChecker::Ended::kFlushed
                                       : CompletionChecker::Ended::kError;
}

}  // namespace

void Traffic::Harvest(Program& program) {
  if (!program.Lives()) return;
  const Process::Entered entered(program.process());
  std::vector<std::pair<CompletionQueueOf*, ibv_wc>> taken;
  for (const auto& queue : program.queues()) {
    ibv_wc found[kMostAPoll];
    int count;
    while ((count = ibv_poll_cq(queue->cq, 1 + static_cast<int>(world_.random().Below(kMostAPoll)),
                                found)) > 0) {
      for (int i = 0; i < count; i++) taken.emplace_back(queue.get(), found[i]);
    }
  }
  // Must run before any call. A call may execute posted requests, whose events would then precede
  // their completions.
  const std::vector<CompletionQueueOf*> raised = program.TakeEvents();
  // An error on one queue explains what was flushed on another.
  for (const auto& [queue, wc] : taken) {
    if (EndedWith(wc.status) != CompletionChecker::Ended::kError) continue;
    const auto found = by_qpn_.find({&program, wc.qp_num});
    if (found != by_qpn_.end()) MayFlush(*found->second);
  }
  for (const auto& [queue, wc] : taken) {
    const bool solicited = Completed(program, wc) || wc.status != IBV_WC_SUCCESS;
    if (queue->events) events_.Completed(*queue->events, solicited);
  }
  for (const CompletionQueueOf* queue : raised) events_.Raised(*queue->events);
  program.CountHarvest();
  completions_.Settled();
  events_.Settled();
}

void Traffic::CheckAcknowledged() {
  std::erase_if(acknowledged_, [this](const Acknowledged& one) {
    if (one.receiver->Lives() && one.receiver->harvests() < one.harvest) return false;
    if (one.receiver->Lives()) delivery_.Acknowledged(one.stream, one.number);
    return true;
  });
}

bool Traffic::Completed(Program& program, const ibv_wc& wc) {
  world_.tally().Count(std::string("status.") + StatusName(wc.status));
  const auto found = by_qpn_.find({&program, wc.qp_num});
  if (found == by_qpn_.end()) {
    world_.verdict().Complain(
        "completions", program.name() + ": a completion (wr_id " + std::to_string(wc.wr_id) +
                           ") of qp " + std::to_string(wc.qp_num) + ", which does not exist");
    return false;
  }
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), program.name(),
                          found->second->name() + (Program::IsReceive(wc.wr_id) ? " receive" : "") +
                              " wr_id " + std::to_string(wc.wr_id) +
                              " completes: " + StatusName(wc.status));
  }
  return Program::IsReceive(wc.wr_id) ? ReceiveCompleted(*found->second, wc)
                                      : RequestCompleted(*found->second, wc);
}

bool Traffic::RequestCompleted(Endpoint& endpoint, const ibv_wc& wc) {
  completions_.Complete(endpoint.sends_checked, wc.wr_id, EndedWith(wc.status));
  const auto found = std::ranges::find(endpoint.sends, uint64_t{wc.wr_id}, &Request::wr_id);
  if (found == endpoint.sends.end()) return false;
  const auto status = static_cast<ibv_wc_status>(wc.status);
  if (status != IBV_WC_SUCCESS) {
    JudgeStatus(endpoint, *found, status);
    endpoint.stage = endpoint.stage == Stage::kGone ? Stage::kGone : Stage::kError;
    MayFlush(endpoint);
    if (endpoint.peer != nullptr) endpoint.peer->disturbed = true;
  }
  // Completions arrive in the order of posting. Earlier unsignalled requests have therefore
  // succeeded.
  while (endpoint.sends.front().wr_id != wc.wr_id) {
    Settle(endpoint, endpoint.sends.front(), IBV_WC_SUCCESS);
    endpoint.sends.pop_front();
  }
  Settle(endpoint, endpoint.sends.front(), status);
  endpoint.sends.pop_front();
  return false;
}

bool Traffic::RetriesExcused(const Endpoint& endpoint) const {
  if (endpoint.disturbed) return true;
  if (endpoint.SameMachine()) return false;
  if (!world_.network().perfect()) return true;
  // A stopped thread that has taken a copy holds its form, and all behind it, until its host looks.
  const Link& link = endpoint.link;
  return world_.tally().Of("thread.stopped") > 0 &&
         (link.retry_count + 1) * AckTimeout(link.timeout) < 2 * transport::kLookAfter;
}

void Traffic::JudgeStatus(const Endpoint& endpoint, const Request& request, ibv_wc_status status) {
  const auto complain = [&](const char* why) {
    world_.verdict().Complain("status", endpoint.name() + ", wr_id " +
                                            std::to_string(request.wr_id) + " ended with " +
                                            StatusName(status) + ": " + why);
  };
  if (status == IBV_WC_WR_FLUSH_ERR) return;  // the order shows if it is allowed
  if (request.planted == status) return;
  if (status == IBV_WC_REM_ACCESS_ERR && request.may_lose_right) return;
  if (status == IBV_WC_RETRY_EXC_ERR) {
    if (!RetriesExcused(endpoint)) complain("nothing kept the peer from answering");
    if (endpoint.link.retry_count == 7 && world_.plan().endless_retries) {
      complain("seven retries have no end in this profile");
    }
    return;
  }
  if (status == IBV_WC_RNR_RETRY_EXC_ERR) {
    if (endpoint.link.rnr_retry == 7) complain("seven RNR retries have no end");
    if (request.opcode == IBV_WR_RDMA_WRITE || request.opcode == IBV_WR_RDMA_READ ||
        request.atomic) {
      complain("it asks for no receive");
    }
    return;
  }
  complain("nothing that the programs did explains it");
}

// The request has ended. Without a status its result is unknown.
void Traffic::Settle(Endpoint& endpoint, Request& request, std::optional<ibv_wc_status> status) {
  Program& program = *endpoint.program;
  const bool done = status == IBV_WC_SUCCESS;
  if (done && request.planted) {
    world_.verdict().Complain(
        "status", endpoint.name() + ", wr_id " + std::to_string(request.wr_id) +
                      " succeeded, and ought to fail with " + StatusName(*request.planted));
  }
  if (done && request.length == kHugeBytes) {
    world_.tally().Count(request.opcode == IBV_WR_RDMA_READ ? "huge.read"
                         : request.message                  ? "huge.message"
                                                            : "huge.write");
  }
  WindowMoves(endpoint, request, done);
  if (done && request.lease != nullptr) request.lease->is_written = true;
  if (done && request.message && endpoint.peer != nullptr) {
    Program& receiver = *endpoint.peer->program;
    acknowledged_.push_back(
        {endpoint.stream, *request.message, &receiver, receiver.harvests() + 1});
  }
  if (done && request.atomic && program.Lives()) {
    uint64_t original;
    std::memcpy(&original, program.bytes().data() + request.sinks[0].offset, sizeof original);
    atomics_.Ended(request.atomic->word, request.atomic->operation, world_.now(), original);
  }
  if (program.Lives()) {
    for (size_t i = 0; i < request.sinks.size(); i++) {
      if (done) {
        program.model().Done(request.sink_claims[i]);
      } else {
        program.model().Undecided(request.sink_claims[i]);
      }
      if (!request.keeps_sinks) program.heap().Give(request.sinks[i]);
    }
    for (const Piece& piece : request.sources) {
      // The piece is used again at once, so that a late read of it shows as an error.
      program.model().Store(piece.offset, program.Fresh(piece.length));
      program.heap().Give(piece);
    }
  }
  if (request.whole_when_right_ended) {
    if (done && !*request.whole_when_right_ended) {
      world_.verdict().Complain(
          "memory", endpoint.name() + ", wr_id " + std::to_string(request.wr_id) +
                        " succeeded, and wrote after the right to its target had ended");
    }
    return;
  }
  // A failed WRITE's packets may arrive late, so its target is never used again.
  if (request.target_program != nullptr && done && endpoint.type == IBV_QPT_RC &&
      request.target_program->Lives()) {
    request.target_program->model().Done(request.target_claim);
    if (request.window == Request::Window::kNone && request.lease == nullptr) {
      request.target_program->heap().Give(request.target);
    }
  }
}

void Traffic::GiveBack(Program& program, Receive& receive) {
  EndRegion(program, receive);
  for (size_t i = 0; i < receive.claims.size(); i++) {
    program.model().Undecided(receive.claims[i]);
    if (receive.pieces[i].length > 0) program.heap().Give(receive.pieces[i]);
  }
}

bool Traffic::ReceiveCompleted(Endpoint& endpoint, const ibv_wc& wc) {
  ReceiveQueue& queue = *endpoint.receives;
  completions_.Complete(queue.checked, wc.wr_id, EndedWith(wc.status));
  const auto found = std::ranges::find(queue.posted, uint64_t{wc.wr_id}, &Receive::wr_id);
  if (found == queue.posted.end()) return false;
  Receive receive = std::move(*found);
  queue.posted.erase(found);
  if (receive.when_region_ended &&
      *receive.when_region_ended != BytesOf(*endpoint.program, receive, receive.length)) {
    world_.verdict().Complain("memory", endpoint.name() + ", receive wr_id " +
                                            std::to_string(receive.wr_id) +
                                            ": bytes changed after their region had ended");
  }
  EndRegion(*endpoint.program, receive);
  bool solicited = true;
  if (wc.status == IBV_WC_SUCCESS) {
    solicited = Arrived(endpoint, receive, wc);
  } else {
    if (wc.status != IBV_WC_WR_FLUSH_ERR && !endpoint.receives_may_fail) {
      world_.verdict().Complain("status", endpoint.name() + ", a receive ended with " +
                                              StatusName(wc.status) +
                                              ", and nothing that its peer did explains it");
    }
    if (endpoint.stage != Stage::kGone) endpoint.stage = Stage::kError;
    if (queue.srq == 0) queue.dead = true;
    MayFlush(endpoint);
    if (endpoint.peer != nullptr) endpoint.peer->disturbed = true;
    GiveBack(*endpoint.program, receive);
  }
  if (keep_receiving_) PostReceives(endpoint, 2);
  return solicited;
}

// Returns the received bytes of all pieces in order.
std::vector<std::byte> Traffic::BytesOf(Program& program, const Receive& receive, uint32_t length) {
  std::vector<std::byte> bytes;
  for (const Piece& piece : receive.pieces) {
    const auto here = program.bytes().subspan(
        piece.offset, std::min<size_t>(piece.length, length - bytes.size()));
    bytes.insert(bytes.end(), here.begin(), here.end());
  }
  return bytes;
}

void Traffic::Place(Program& program, Receive& receive, std::span<const std::byte> content,
                    bool rest_may_change) {
  for (size_t i = 0; i < receive.claims.size(); i++) {
    const Piece& piece = receive.pieces[i];
    const size_t here = std::min<size_t>(content.size(), piece.length);
    program.model().DoneLent(receive.claims[i], content.first(here), rest_may_change);
    content = content.subspan(here);
    if (piece.length > 0) program.heap().Give(piece);
  }
}

bool Traffic::Arrived(Endpoint& endpoint, Receive& receive, const ibv_wc& wc) {
  Message message;
  message.length = wc.byte_len;
  message.write = wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) message.immediate = wc.imm_data;
  if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) message.invalidated = wc.invalidated_rkey;
  if (endpoint.type != IBV_QPT_RC) return TaggedArrived(endpoint, receive, wc, message);
  if (endpoint.peer == nullptr) {
    world_.verdict().Complain("delivery", endpoint.name() + " received without a peer");
    GiveBack(*endpoint.program, receive);
    return false;
  }
  Endpoint& sender = *endpoint.peer;
  const uint64_t number = delivery_.arrived(sender.stream);
  if (const Message* next = delivery_.Next(sender.stream)) {
    message.tag = next->tag;
    message.solicited = next->solicited;
  }
  delivery_.Arrived(sender.stream, message);
  std::vector<std::byte> content;
  if (number < sender.contents.size()) content = std::move(sender.contents[number]);
  Place(*endpoint.program, receive, content, false);
  return message.solicited;
}

// UC and UD: the first bytes identify the message, or the immediate data of a WRITE does.
bool Traffic::TaggedArrived(Endpoint& endpoint, Receive& receive, const ibv_wc& wc,
                            Message message) {
  Program& program = *endpoint.program;
  std::vector<std::byte> header;
  uint64_t tag = message.immediate.value_or(0);
  if (!message.write) {
    const uint32_t skip = endpoint.type == IBV_QPT_UD ? 40 : 0;
    std::vector<std::byte> bytes = BytesOf(program, receive, wc.byte_len);
    if (bytes.size() < skip + sizeof tag) {
      world_.verdict().Complain("delivery", endpoint.name() + " received less than was ever sent");
      GiveBack(program, receive);
      return false;
    }
    std::memcpy(&tag, bytes.data() + skip, sizeof tag);
    header.assign(bytes.begin(), bytes.begin() + skip);
    message.length -= skip;
  }
  message.tag = tag;
  const auto found = tagged_.find(tag);
  if (found == tagged_.end() || found->second.to != &endpoint ||
      (endpoint.type == IBV_QPT_UD && wc.src_qp != found->second.from->qpn)) {
    world_.verdict().Complain(
        "delivery", endpoint.name() + ", wr_id " + std::to_string(wc.wr_id) + ", received " +
                        std::to_string(message.length) + " bytes" +
                        (message.write ? " of a WRITE" : "") + " that nobody sent to it (tag " +
                        std::to_string(tag) + (found == tagged_.end() ? ")" : ", another's)"));
    GiveBack(program, receive);
    return false;
  }
  const Tagged& sent = found->second;
  const SimNetwork& network = world_.network();
  if (network.unreliable_copies() > 0 || network.unreliable_reordered()) {
    delivery_.Excuse(sent.from->stream);
  }
  delivery_.Arrived(sent.from->stream, message);
  world_.tally().Count(endpoint.type == IBV_QPT_UD ? "arrived.UD" : "arrived.UC");
  std::vector<std::byte> content = std::move(header);
  content.insert(content.end(), sent.content.begin(), sent.content.end());
  // On UC the receive may contain the beginning of an aborted message.
  Place(program, receive, content, endpoint.type == IBV_QPT_UC);
  return sent.solicited;
}

bool Traffic::MustEnd(const Endpoint& endpoint) const {
  if (endpoint.stage == Stage::kGone || !endpoint.program->Runs()) return false;
  // The QP retries for ever without an answer.
  const bool endless = endpoint.link.retry_count == 7 && world_.plan().endless_retries;
  return !(endless && endpoint.disturbed) && endpoint.stage != Stage::kMade;
}

size_t Traffic::Outstanding() const {
  size_t sum = 0;
  for (const auto& endpoint : endpoints_) {
    if (MustEnd(*endpoint)) sum += completions_.Outstanding(endpoint->sends_checked);
  }
  return sum;
}

// Each request may wait for one timeout for each retry of the request before it, and for a receive.
// Packets are sent at a rate of at least half a window per round trip.
Duration Traffic::Bound() const {
  Duration longest{};
  const Duration round_trip = 2 * (world_.plan().latency + world_.plan().jitter) +
                              2 * world_.plan().cpu_delay + std::chrono::microseconds(10);
  for (const auto& endpoint : endpoints_) {
    if (!MustEnd(*endpoint) || endpoint->sends.empty()) continue;
    constexpr auto kLongestRnr = std::chrono::milliseconds(656);
    Duration sum = (endpoint->link.retry_count + 2) * AckTimeout(endpoint->link.timeout);
    for (const Request& request : endpoint->sends) {
      sum += round_trip * (4 + request.length / 256 / 32) + kLongestRnr;
      sum += AckTimeout(endpoint->link.timeout);
    }
    longest = std::max(longest, sum);
  }
  return longest + world_.plan().most_delay;
}

void Traffic::ExpectAllEnded() {
  for (const auto& endpoint : endpoints_) {
    if (MustEnd(*endpoint)) completions_.ExpectAllEnded(endpoint->sends_checked);
  }
}

}  // namespace rdmaemu::sim
