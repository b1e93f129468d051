// Posting receives and random requests.
#include <algorithm>

#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

// Messages on a slow network would outlast the run, and long ones only cost time.
constexpr uint32_t kMostBytes = 24 * 1024;

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

// A length in up to four parts, some of them empty.
std::vector<uint32_t> Traffic::Split(uint32_t length) {
  Random& random = world_.random();
  std::vector<uint32_t> parts;
  const uint32_t count = random.Below(3) == 0 ? 2 + random.Below(3) : 1;
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
  switch (random.Below(8)) {
    case 0:
      return 0;
    case 1:
      return std::min(most, 1024 * (1 + random.Below(4)));
    case 2:
    case 3:
      return random.Below(most + 1);
    default:
      return random.Below(std::min(most, 300u) + 1);
  }
}

void Traffic::PostReceives(Endpoint& endpoint, uint32_t most) {
  Program& program = *endpoint.program;
  ReceiveQueue& queue = *endpoint.receives;
  if (!program.Runs() || queue.dead || endpoint.stage == Stage::kGone) return;
  for (uint32_t i = 0; i < most && queue.posted.size() < queue.depth; i++) {
    Receive receive;
    receive.wr_id = program.NextWrId(true);
    std::vector<rxe_sge> sges;
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
      sges.push_back({program.region().Iova(piece.offset), piece.length, program.region().mr.lkey});
    }
    if (receive.length < queue.buffer_bytes) return GiveBack(program, receive);
    if (!Process::WriteReceive(queue.ring, receive.wr_id, sges)) {
      world_.verdict().Complain("verbs", endpoint.name() +
                                             " has no room for the receives that it "
                                             "was granted");
      return GiveBack(program, receive);
    }
    completions_.Post(queue.checked, receive.wr_id, true);
    queue.posted.push_back(std::move(receive));
    world_.tally().Count("op.receive");
  }
}

// Bytes that go out, from places that never change or from ones that are used again at once.
std::vector<std::byte> Traffic::Gather(Endpoint& endpoint, uint32_t length, Request& request,
                                       std::vector<rxe_sge>& sges) {
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
      piece = program.Constant(std::min<uint32_t>(part, Program::kConstantBytes));
    }
    sges.push_back({program.region().Iova(piece.offset), piece.length, program.region().mr.lkey});
    const auto from = program.bytes().subspan(piece.offset, piece.length);
    bytes.insert(bytes.end(), from.begin(), from.end());
  }
  return bytes;
}

bool Traffic::Post(Endpoint& endpoint, Request request, rxe_send_wr wr,
                   const std::vector<rxe_sge>& sges, const std::vector<std::byte>& inline_bytes) {
  Program& program = *endpoint.program;
  wr.wr_id = request.wr_id;
  wr.opcode = request.opcode;
  if (request.signalled && !endpoint.signal_all) wr.send_flags |= IBV_SEND_SIGNALED;
  request.posted = world_.now();
  if (!program.process().WriteSend(endpoint.made, endpoint.send_ring, wr, sges, inline_bytes)) {
    world_.verdict().Complain("verbs", endpoint.name() +
                                           " has no room for the requests that it "
                                           "was granted");
    return false;
  }
  completions_.Post(endpoint.sends_checked, request.wr_id, request.signalled);
  world_.tally().Count(std::string("op.") + NameOf(request.opcode));
  if (world_.recorder().tells_story()) {
    world_.recorder().Say(world_.now(), program.name(),
                          endpoint.name() + " posts " + NameOf(request.opcode) + " of " +
                              std::to_string(request.length) + " bytes, wr_id " +
                              std::to_string(request.wr_id) +
                              (request.signalled ? "" : ", unsignalled"));
  }
  endpoint.sends.push_back(std::move(request));
  program.process().RingBell(endpoint.made.doorbell);
  return true;
}

bool Traffic::PostRequest(Endpoint& endpoint) {
  Random& random = world_.random();
  if (!endpoint.Usable() || endpoint.sends.size() >= endpoint.depth) return false;
  Request request;
  request.wr_id = endpoint.program->NextWrId(false);
  // The last one that fits is signalled: unsignalled requests keep their places until a later one
  // completes.
  request.signalled =
      endpoint.signal_all || random.Below(3) != 0 || endpoint.sends.size() + 1 >= endpoint.depth;
  rxe_send_wr wr{};
  if (random.Below(5) == 0) wr.send_flags |= IBV_SEND_SOLICITED;
  if (random.Below(8) == 0) wr.send_flags |= IBV_SEND_FENCE;
  const bool is_rc = endpoint.type == IBV_QPT_RC;
  switch (random.Below(is_rc ? 6 : 4)) {
    case 0:
      request.opcode = IBV_WR_SEND;
      return PostSend(endpoint, std::move(request), wr);
    case 1:
      request.opcode = IBV_WR_SEND_WITH_IMM;
      return PostSend(endpoint, std::move(request), wr);
    case 2:
      request.opcode = IBV_WR_RDMA_WRITE;
      return PostWrite(endpoint, std::move(request), wr);
    case 3:
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      return PostWrite(endpoint, std::move(request), wr);
    default:
      request.opcode = IBV_WR_RDMA_READ;
      return PostRead(endpoint, std::move(request), wr);
  }
}

bool Traffic::PostSend(Endpoint& endpoint, Request request, rxe_send_wr wr) {
  Random& random = world_.random();
  const uint32_t most = std::min(kMostBytes, endpoint.peer->receives->buffer_bytes);
  std::vector<rxe_sge> sges;
  std::vector<std::byte> inline_bytes;
  const bool is_inline = endpoint.inline_bytes > 0 && random.Below(3) == 0;
  request.length = DrawLength(is_inline ? std::min(most, endpoint.inline_bytes) : most);
  std::vector<std::byte> bytes;
  if (is_inline) {
    wr.send_flags |= IBV_SEND_INLINE;
    bytes = inline_bytes = endpoint.program->Fresh(request.length);
  } else {
    bytes = Gather(endpoint, request.length, request, sges);
    request.length = static_cast<uint32_t>(bytes.size());
  }
  Message message;
  message.length = request.length;
  message.tag = request.wr_id;
  if (request.opcode == IBV_WR_SEND_WITH_IMM) {
    message.immediate = random.Next32();
    wr.ex.imm_data = *message.immediate;
  }
  request.message = delivery_.Sent(endpoint.stream, message);
  endpoint.contents.push_back(std::move(bytes));
  return Post(endpoint, std::move(request), wr, sges, inline_bytes);
}

bool Traffic::PostWrite(Endpoint& endpoint, Request request, rxe_send_wr wr) {
  Program& target = *endpoint.peer->program;
  std::vector<rxe_sge> sges;
  std::vector<std::byte> bytes = Gather(endpoint, DrawLength(kMostBytes), request, sges);
  request.length = static_cast<uint32_t>(bytes.size());
  const std::optional<Piece> place = target.heap().Take(request.length);
  if (!place) {
    for (const Piece& piece : request.sources) endpoint.program->heap().Give(piece);
    return false;
  }
  request.target_program = &target;
  request.target = *place;
  request.target_claim = target.model().Expect(place->offset, std::move(bytes));
  wr.wr.rdma.remote_addr = target.region().Iova(place->offset);
  wr.wr.rdma.rkey = target.region().mr.rkey;
  if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    Message message;
    message.length = request.length;
    message.tag = request.wr_id;
    message.write = true;
    message.immediate = wr.ex.imm_data = world_.random().Next32();
    request.message = delivery_.Sent(endpoint.stream, message);
    endpoint.contents.emplace_back();
  }
  return Post(endpoint, std::move(request), wr, sges, {});
}

bool Traffic::PostRead(Endpoint& endpoint, Request request, rxe_send_wr wr) {
  Program& target = *endpoint.peer->program;
  Program& program = *endpoint.program;
  const Piece from =
      target.Constant(std::min<uint32_t>(DrawLength(kMostBytes), Program::kConstantBytes));
  request.length = from.length;
  std::vector<rxe_sge> sges;
  uint64_t offset = from.offset;
  for (const uint32_t part : Split(from.length)) {
    Piece piece{};
    if (part > 0) {
      const std::optional<Piece> taken = program.heap().Take(part);
      if (!taken) {
        for (size_t i = 0; i < request.sinks.size(); i++) {
          program.model().Undecided(request.sink_claims[i]);
          program.heap().Give(request.sinks[i]);
        }
        return false;
      }
      piece = *taken;
      const auto bytes = target.bytes().subspan(offset, part);
      request.sinks.push_back(piece);
      request.sink_claims.push_back(
          program.model().Expect(piece.offset, {bytes.begin(), bytes.end()}));
    }
    sges.push_back({program.region().Iova(piece.offset), part, program.region().mr.lkey});
    offset += part;
  }
  wr.wr.rdma.remote_addr = target.region().Iova(from.offset);
  wr.wr.rdma.rkey = target.region().mr.rkey;
  return Post(endpoint, std::move(request), wr, sges, {});
}

}  // namespace rdmaemu::sim
