// Posting receives and random requests.
#include <algorithm>

#include "emulator/transport/copy_jobs.h"
#include "shim/verbs/objects.h"
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

// Longer messages only cost time, and on a slow network they would outlast the run.
constexpr uint32_t kMostBytes = 24 * 1024;
// Copies that hosts offer to threads are so much longer than the least, at most.
constexpr uint32_t kMostOfCopies = 3 * 4096;
// Sizes at which the code changes its path. The last one is rare.
constexpr uint32_t kThresholds[] = {0, 1, 255, 256, 257, 4095, 4096, 4097, 65536};
constexpr uint32_t kTagBytes = sizeof(uint64_t);

const char* NameOf(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
      return "SEND";
    case IBV_WR_SEND_WITH_IMM:
      return "SEND_WITH_IMM";
    case IBV_WR_SEND_WITH_INV:
      return "SEND_WITH_INV";
    case IBV_WR_RDMA_WRITE:
      return "WRITE";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "WRITE_WITH_IMM";
    case IBV_WR_RDMA_READ:
      return "READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "CMP_AND_SWP";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "FETCH_AND_ADD";
    case IBV_WR_LOCAL_INV:
      return "LOCAL_INV";
    case IBV_WR_BIND_MW:
      return "BIND_MW";
    default:
      return "?";
  }
}

}  // namespace

// Splits a length into at most four parts. Some parts are empty.
std::vector<uint32_t> Traffic::Split(uint32_t length) {
  Random& random = world_.random();
  std::vector<uint32_t> parts;
  const bool is_whole = world_.plan().converses && random.Below(8) != 0;
  const uint32_t count = !is_whole && random.Below(3) == 0 ? 2 + random.Below(3) : 1;
  for (uint32_t i = 1; i < count; i++) {
    const uint32_t part = random.Below(length + 1);
    parts.push_back(part);
    length -= part;
  }
  parts.push_back(length);
  return parts;
}

uint32_t Traffic::DrawLength(uint32_t most) {
  Random& random = world_.random();
  if (huge_left_ > 0 && most >= kHugeBytes && random.Below(16) == 0) {
    huge_left_--;
    return kHugeBytes;
  }
  if (world_.plan().converses && random.Below(4) != 0) {
    return random.Below(std::min(most, 300u) + 1);
  }
  if (world_.plan().directs && random.Below(2) == 0) {
    return std::min(most,
                    static_cast<uint32_t>(transport::kMinJobBytes) + random.Below(kMostOfCopies));
  }
  switch (random.Below(8)) {
    case 0:
    case 1: {
      const bool longest = random.Below(16) == 0;
      return std::min(most, longest ? std::end(kThresholds)[-1]
                                    : kThresholds[random.Below(std::size(kThresholds) - 1)]);
    }
    case 2:
      return random.Below(std::min(most, kMostBytes) + 1);
    default:
      return random.Below(std::min(most, 300u) + 1);
  }
}

void Traffic::PostReceives(Endpoint& endpoint, uint32_t most) {
  Program& program = *endpoint.program;
  ReceiveQueue& queue = *endpoint.receives;
  if (!program.Runs() || queue.dead || endpoint.stage == Stage::kGone) return;
  if (endpoint.qp == nullptr) return;
  // In a shared queue, a QP that was destroyed may have consumed a receive.
  if (endpoint.in_reset && queue.srq == nullptr) return;
  const Process::Entered entered(program.process());
  const auto waiting = [&queue]() -> size_t {
    return queue.srq != nullptr ? shim::Of(queue.srq)->ring.Count() : queue.posted.size();
  };
  for (uint32_t i = 0; i < most && waiting() < queue.depth; i++) {
    Receive receive;
    receive.wr_id = program.NextWrId(true);
    std::vector<ibv_sge> sges;
    for (const uint32_t part : Split(queue.buffer_bytes)) {
      Piece piece;
      if (part > 0) {
        const auto taken = program.heap().Take(part);
        if (!taken) break;
        piece = *taken;
      }
      receive.pieces.push_back(piece);
      receive.claims.push_back(program.model().Lend(piece.offset, piece.length));
      receive.length += piece.length;
      sges.push_back(
          {program.region().Iova(piece.offset), piece.length, program.region().mr->lkey});
    }
    if (receive.length < queue.buffer_bytes) return GiveBack(program, receive);
    if (queue.srq == nullptr && world_.random().Below(world_.plan().converses ? 16 : 4) == 0) {
      OwnRegion(program, receive, sges);
    }
    ibv_recv_wr wr{receive.wr_id, nullptr, sges.data(), static_cast<int>(sges.size())};
    ibv_recv_wr* bad = nullptr;
    const int error = queue.srq != nullptr ? ibv_post_srq_recv(queue.srq, &wr, &bad)
                                           : ibv_post_recv(endpoint.qp, &wr, &bad);
    if (error != 0) {
      world_.verdict().Complain("verbs", endpoint.name() +
                                             " cannot post the receives that it was granted, "
                                             "errno " +
                                             std::to_string(error));
      return GiveBack(program, receive);
    }
    completions_.Post(queue.checked, receive.wr_id, true);
    queue.posted.push_back(std::move(receive));
    world_.tally().Count("op.receive");
  }
}

// Returns bytes to send, from places that never change or from places that are used again at once.
std::vector<std::byte> Traffic::Gather(Endpoint& endpoint, uint32_t length, Request& request,
                                       std::vector<ibv_sge>& sges) {
  Program& program = *endpoint.program;
  std::vector<std::byte> bytes;
  for (const uint32_t part : Split(length)) {
    Piece piece{};
    std::optional<Piece> own;
    if (part > 0 && world_.random().Below(3) != 0) own = program.TakeFilled(part);
    if (own) {
      piece = *own;
      request.sources.push_back(piece);
    } else {
      piece = program.Constant(std::min(part, program.LongestConstant()));
    }
    sges.push_back({program.region().Iova(piece.offset), piece.length, program.region().mr->lkey});
    const auto from = program.bytes().subspan(piece.offset, piece.length);
    bytes.insert(bytes.end(), from.begin(), from.end());
  }
  return bytes;
}

bool Traffic::Post(Endpoint& endpoint, Request request, ibv_send_wr wr,
                   const std::vector<ibv_sge>& sges, const std::vector<std::byte>& inline_bytes) {
  Program& program = *endpoint.program;
  wr.wr_id = request.wr_id;
  wr.opcode = request.opcode;
  if (request.signalled && !endpoint.signal_all) wr.send_flags |= IBV_SEND_SIGNALED;
  request.posted = world_.now();
  completions_.Post(endpoint.sends_checked, request.wr_id, request.signalled);
  world_.tally().Count(std::string("op.") + NameOf(request.opcode));
  if (request.length == kHugeBytes ||
      std::ranges::find(kThresholds, request.length) != std::end(kThresholds)) {
    world_.tally().Count("size." + std::to_string(request.length));
  }
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), program.name(),
                          endpoint.name() + " posts " + NameOf(request.opcode) + " of " +
                              std::to_string(request.length) + " bytes, wr_id " +
                              std::to_string(request.wr_id) +
                              ((wr.send_flags & IBV_SEND_FENCE) != 0 ? ", fenced" : "") +
                              (request.signalled ? "" : ", unsignalled"));
  }
  endpoint.prepared.push_back({wr, sges, inline_bytes, request.sources});
  endpoint.sends.push_back(std::move(request));
  return true;
}

bool Traffic::PostRequests(Endpoint& endpoint, uint32_t most) {
  bool posted = false;
  while (most-- > 0 && PostRequest(endpoint)) posted = true;
  PostPrepared(endpoint);
  return posted;
}

uint32_t Traffic::PostAwaited(Program& program) {
  Random& random = world_.random();
  uint32_t posted = 0;
  for (const auto& endpoint : endpoints_) {
    if (endpoint->program != &program || endpoint->type != IBV_QPT_RC || !endpoint->Usable() ||
        !(endpoint->SameMachine() || world_.plan().directs) || endpoint->draining ||
        !endpoint->sends.empty() || (endpoint->peer->rights & IBV_ACCESS_REMOTE_WRITE) == 0) {
      continue;
    }
    Request request;
    request.wr_id = program.NextWrId(false);
    request.signalled = endpoint->signal_all || random.Below(4) != 0 || endpoint->depth == 1;
    const bool sends = world_.plan().converses && random.Below(16) != 0;
    const bool reads = random.Below(3) == 0;
    request.opcode = sends   ? random.Below(4) == 0 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND
                     : reads ? IBV_WR_RDMA_READ
                             : IBV_WR_RDMA_WRITE;
    ibv_send_wr wr{};
    if (random.Below(8) == 0) wr.send_flags |= IBV_SEND_FENCE;
    if (!(sends   ? PostSend(*endpoint, std::move(request), wr)
          : reads ? PostRead(*endpoint, std::move(request), wr)
                  : PostWrite(*endpoint, std::move(request), wr))) {
      continue;
    }
    // The peer's program takes part in a lane once it has posted a receive.
    if (sends && random.Below(3) != 0) PostReceives(*endpoint->peer, 1 + random.Below(3));
    PostPrepared(*endpoint);
    posted++;
  }
  return posted;
}

bool Traffic::PostRequest(Endpoint& endpoint) {
  Random& random = world_.random();
  if (!endpoint.Usable() || endpoint.sends.size() >= endpoint.depth) return false;
  if (endpoint.type == IBV_QPT_UD) return PostDatagram(endpoint);
  Request request;
  request.wr_id = endpoint.program->NextWrId(false);
  // The last request that fits is signalled. Unsignalled requests occupy the queue until a later
  // one completes.
  request.signalled =
      endpoint.signal_all || random.Below(3) != 0 || endpoint.sends.size() + 1 >= endpoint.depth;
  ibv_send_wr wr{};
  if (random.Below(5) == 0) wr.send_flags |= IBV_SEND_SOLICITED;
  if (random.Below(8) == 0) wr.send_flags |= IBV_SEND_FENCE;
  const bool is_rc = endpoint.type == IBV_QPT_RC;
  const bool writes = (endpoint.peer->rights & IBV_ACCESS_REMOTE_WRITE) != 0;
  if (random.Below(1000) < world_.plan().misuse || (!writes && random.Below(20) == 0)) {
    return is_rc && PostMisuse(endpoint, std::move(request), wr);
  }
  if (is_rc && writes && world_.plan().directs && random.Below(2) == 0) {
    request.opcode = IBV_WR_RDMA_WRITE;
    return PostWrite(endpoint, std::move(request), wr);
  }
  const uint32_t what = writes ? random.Below(is_rc ? 13 : 6) : random.Below(3);
  switch (what) {
    case 0:
    case 1:
      request.opcode = IBV_WR_SEND;
      return PostSend(endpoint, std::move(request), wr);
    case 2:
      request.opcode = IBV_WR_SEND_WITH_IMM;
      return PostSend(endpoint, std::move(request), wr);
    case 3:
    case 4:
      request.opcode = IBV_WR_RDMA_WRITE;
      return PostWrite(endpoint, std::move(request), wr);
    case 5:
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      return PostWrite(endpoint, std::move(request), wr);
    case 6:
    case 7:
      request.opcode = IBV_WR_RDMA_READ;
      return PostRead(endpoint, std::move(request), wr);
    case 8:
      return PostWindow(endpoint, std::move(request), wr);
    case 9:
      return random.Below(3) == 0 ? PostToLease(endpoint, std::move(request), wr)
                                  : PostFenced(endpoint, std::move(request), wr);
    default:
      return PostAtomic(endpoint, std::move(request), wr);
  }
}

bool Traffic::PostSend(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Random& random = world_.random();
  const bool is_rc = endpoint.type == IBV_QPT_RC;
  const uint32_t most = endpoint.peer->receives->buffer_bytes;
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inline_bytes;
  const bool is_inline = endpoint.inline_bytes >= kTagBytes && random.Below(3) == 0;
  request.length = DrawLength(is_inline ? std::min(most, endpoint.inline_bytes) : most);
  Message message;
  message.tag = request.wr_id;
  std::vector<std::byte> bytes;
  if (!is_rc) {
    // The order does not identify the message, but its first bytes do.
    request.length = std::max(request.length, kTagBytes);
    bytes = endpoint.program->Fresh(request.length);
    std::memcpy(&message.tag, bytes.data(), kTagBytes);
    const auto place = endpoint.program->heap().Take(request.length);
    if (!is_inline && !place) return false;
    if (is_inline) {
      if (place) endpoint.program->heap().Give(*place);
    } else {
      endpoint.program->model().Store(place->offset, bytes);
      request.sources.push_back(*place);
      const Region& region = endpoint.program->region();
      sges.push_back({region.Iova(place->offset), request.length, region.mr->lkey});
    }
  } else if (is_inline) {
    bytes = endpoint.program->Fresh(request.length);
  } else {
    bytes = Gather(endpoint, request.length, request, sges);
    request.length = static_cast<uint32_t>(bytes.size());
  }
  if (is_inline) {
    wr.send_flags |= IBV_SEND_INLINE;
    inline_bytes = bytes;
    world_.tally().Count("op.inline");
  }
  message.length = request.length;
  if (request.opcode == IBV_WR_SEND_WITH_IMM) {
    message.immediate = wr.imm_data = random.Next32();
  } else if (request.opcode == IBV_WR_SEND_WITH_INV) {
    message.invalidated = wr.invalidate_rkey;
  }
  message.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  request.message = delivery_.Sent(endpoint.stream, message);
  if (is_rc) {
    endpoint.contents.push_back(std::move(bytes));
  } else {
    tagged_[message.tag] = {&endpoint, endpoint.peer, std::move(bytes), message.solicited};
  }
  return Post(endpoint, std::move(request), wr, sges, inline_bytes);
}

bool Traffic::PostDatagram(Endpoint& endpoint) {
  Random& random = world_.random();
  Program& program = *endpoint.program;
  std::vector<Endpoint*> others;
  for (const auto& other : endpoints_) {
    if (other->type == IBV_QPT_UD && other->stage == Stage::kReady) others.push_back(other.get());
  }
  Endpoint& to = *others[random.Below(static_cast<uint32_t>(others.size()))];
  Request request;
  request.wr_id = program.NextWrId(false);
  request.signalled =
      endpoint.signal_all || random.Below(3) != 0 || endpoint.sends.size() + 1 >= endpoint.depth;
  request.opcode = random.Below(2) == 0 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
  request.length = std::max(kTagBytes, DrawLength(to.receives->buffer_bytes - kGrhBytes));
  const auto place = program.TakeFilled(request.length);
  if (!place) return false;
  request.sources.push_back(*place);
  Message message;
  message.length = request.length;
  const auto content = program.bytes().subspan(place->offset, place->length);
  std::memcpy(&message.tag, content.data(), kTagBytes);
  ibv_send_wr wr{};
  if (request.opcode == IBV_WR_SEND_WITH_IMM) {
    message.immediate = wr.imm_data = random.Next32();
  }
  // With a wrong key the message must not arrive, and neither side gets an error.
  const bool wrong_key = random.Below(12) == 0;
  wr.wr.ud.remote_qpn = to.qpn;
  wr.wr.ud.remote_qkey = wrong_key ? kQkey + 1 : kQkey;
  wr.wr.ud.ah = program.AddressHandleTo(to.program->machine(), random.Below(4) == 0);
  if (wrong_key) {
    world_.tally().Count("op.wrong_qkey");
  } else {
    request.message = delivery_.Sent(endpoint.stream, message);
    tagged_[message.tag] = {&endpoint, &to, {content.begin(), content.end()}, false};
  }
  const Region& region = program.region();
  return Post(endpoint, std::move(request), wr,
              {{region.Iova(place->offset), place->length, region.mr->lkey}}, {});
}

bool Traffic::PostWrite(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Program& target = *endpoint.peer->program;
  // On UC the sender cannot find out when the target is free again, so the target is used only
  // once.
  const uint32_t most = endpoint.type == IBV_QPT_RC ? UINT32_MAX : kMostBytes / 8;
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inline_bytes;
  std::vector<std::byte> bytes;
  if (world_.random().Below(4) == 0) {
    wr.send_flags |= IBV_SEND_INLINE;
    inline_bytes = bytes = endpoint.program->Fresh(DrawLength(endpoint.inline_bytes));
    world_.tally().Count("op.inline");
  } else {
    bytes = Gather(endpoint, DrawLength(most), request, sges);
  }
  request.length = static_cast<uint32_t>(bytes.size());
  const std::optional<Piece> place = target.heap().Take(request.length);
  if (!place) {
    Drop(*endpoint.program, request);
    return false;
  }
  request.target_program = &target;
  request.target = *place;
  wr.wr.rdma.remote_addr = target.region().Iova(place->offset);
  wr.wr.rdma.rkey = target.region().mr->rkey;
  if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    Message message;
    message.length = request.length;
    message.write = true;
    message.immediate = wr.imm_data = ++last_tag_;
    message.tag = endpoint.type == IBV_QPT_RC ? request.wr_id : last_tag_;
    message.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
    request.message = delivery_.Sent(endpoint.stream, message);
    if (endpoint.type == IBV_QPT_RC) {
      endpoint.contents.emplace_back();
    } else {
      tagged_[message.tag] = {&endpoint, endpoint.peer, {}, message.solicited};
    }
  }
  request.target_claim = target.model().Expect(place->offset, std::move(bytes));
  return Post(endpoint, std::move(request), wr, sges, inline_bytes);
}

// Allocates several pieces for the result.
bool Traffic::Scatter(Endpoint& endpoint, std::span<const std::byte> bytes, Request& request,
                      std::vector<ibv_sge>& sges) {
  Program& program = *endpoint.program;
  for (const uint32_t part : Split(static_cast<uint32_t>(bytes.size()))) {
    Piece piece{};
    if (part > 0) {
      const std::optional<Piece> taken = program.heap().Take(part);
      if (!taken) return false;
      piece = *taken;
      const auto here = bytes.first(part);
      request.sinks.push_back(piece);
      request.sink_claims.push_back(
          program.model().Expect(piece.offset, {here.begin(), here.end()}));
    }
    sges.push_back({program.region().Iova(piece.offset), part, program.region().mr->lkey});
    bytes = bytes.subspan(part);
  }
  return true;
}

// Undoes a request that was not posted.
void Traffic::Drop(Program& program, Request& request) {
  for (size_t i = 0; i < request.sinks.size(); i++) {
    program.model().Undecided(request.sink_claims[i]);
    program.heap().Give(request.sinks[i]);
  }
  for (const Piece& piece : request.sources) program.heap().Give(piece);
}

bool Traffic::PostRead(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Program& target = *endpoint.peer->program;
  const Piece from = target.Constant(std::min(DrawLength(UINT32_MAX), target.LongestConstant()));
  request.length = from.length;
  std::vector<ibv_sge> sges;
  if (!Scatter(endpoint, target.bytes().subspan(from.offset, from.length), request, sges)) {
    Drop(*endpoint.program, request);
    return false;
  }
  const bool narrow = world_.random().Below(4) == 0;
  const Region& region = narrow ? target.read_only() : target.region();
  wr.wr.rdma.remote_addr = region.Iova(from.offset);
  wr.wr.rdma.rkey = region.mr->rkey;
  return Post(endpoint, std::move(request), wr, sges, {});
}

// Posts a READ, and after it a fenced SEND of the READ's result.
bool Traffic::PostFenced(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  if (endpoint.sends.size() + 2 > endpoint.depth) return false;
  Request send;
  send.wr_id = endpoint.program->NextWrId(false);
  send.signalled = true;
  send.opcode = IBV_WR_SEND;
  request.opcode = IBV_WR_RDMA_READ;
  request.keeps_sinks = true;
  Program& target = *endpoint.peer->program;
  const Piece from = target.Constant(DrawLength(endpoint.peer->receives->buffer_bytes));
  send.length = request.length = from.length;
  const auto content = target.bytes().subspan(from.offset, from.length);
  std::vector<ibv_sge> sges;
  if (!Scatter(endpoint, content, request, sges)) {
    Drop(*endpoint.program, request);
    return false;
  }
  send.sources = request.sinks;
  wr.wr.rdma.remote_addr = target.region().Iova(from.offset);
  wr.wr.rdma.rkey = target.region().mr->rkey;
  Post(endpoint, std::move(request), wr, sges, {});
  Message message;
  message.tag = send.wr_id;
  message.length = send.length;
  send.message = delivery_.Sent(endpoint.stream, message);
  endpoint.contents.emplace_back(content.begin(), content.end());
  ibv_send_wr fenced{};
  fenced.send_flags = IBV_SEND_FENCE;
  world_.tally().Count("op.fenced");
  Post(endpoint, std::move(send), fenced, sges, {});
  // The builders' code must not change the READ's result.
  endpoint.prepared.back().sources.clear();
  return true;
}

bool Traffic::PostAtomic(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Random& random = world_.random();
  Program& target = *endpoint.peer->program;
  Program& program = *endpoint.program;
  // Few words, so that many ends use the same word.
  const uint64_t index = random.Below(4) == 0 ? random.Below(Program::kWords) : random.Below(4);
  const AtomicChecker::Word word = target.word(index);
  const bool adds = index % 2 == 0;
  const uint64_t count = atomics_.Count(word);
  if (adds && count >= AtomicChecker::kMostAdds) return false;
  const std::optional<Piece> sink = program.heap().Take(sizeof(uint64_t));
  if (!sink) return false;
  request.opcode = adds ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
  request.length = sizeof(uint64_t);
  request.sinks.push_back(*sink);
  request.sink_claims.push_back(program.model().Lend(sink->offset, sink->length));
  wr.wr.atomic.remote_addr = target.region().Iova(Program::kWordsAt + index * 8);
  wr.wr.atomic.rkey = target.region().mr->rkey;
  if (adds) {
    wr.wr.atomic.compare_add = uint64_t{1} << count;
    request.atomic = {word, atomics_.Add(word, world_.now(), wr.wr.atomic.compare_add)};
  } else {
    wr.wr.atomic.compare_add = atomics_.LastSeen(word);
    wr.wr.atomic.swap = ++last_swap_;
    request.atomic = {
        word, atomics_.Swap(word, world_.now(), wr.wr.atomic.compare_add, wr.wr.atomic.swap)};
  }
  return Post(endpoint, std::move(request), wr,
              {{program.region().Iova(sink->offset), sink->length, program.region().mr->lkey}}, {});
}

}  // namespace rdmaemu::sim
