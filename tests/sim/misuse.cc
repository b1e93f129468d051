// Requests that must fail, each in its own way, with the status that was measured on rxe.
#include <algorithm>

#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kSomeBytes = 100;
constexpr uint32_t kWrongKeyBits = 0x5500;

}  // namespace

void Traffic::Wall(Endpoint& endpoint) {
  endpoint.walled = true;
  // A message that equals no other. Any message that arrives in its place is wrong.
  Message never;
  never.length = UINT32_MAX;
  (void)delivery_.Sent(endpoint.stream, never);
  endpoint.contents.emplace_back();
  MayFlush(endpoint);
  MayFlush(*endpoint.peer);
  // The peer's QP moves to ERR. When its NAK is lost, the requester gets no answer any more.
  endpoint.disturbed = endpoint.peer->disturbed = true;
  endpoint.peer->receives_may_fail = true;
}

bool Traffic::PostMisuse(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Random& random = world_.random();
  Program& program = *endpoint.program;
  Program& target = *endpoint.peer->program;
  const Region& own = program.region();
  const Region& there = target.region();
  const Piece from = program.Constant(kSomeBytes);
  std::vector<ibv_sge> sges{{own.Iova(from.offset), kSomeBytes, own.mr->lkey}};
  request.length = kSomeBytes;
  request.opcode = random.Below(2) == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  wr.wr.rdma.remote_addr = there.Iova(Program::kHeapAt);
  wr.wr.rdma.rkey = there.mr->rkey;
  if ((endpoint.peer->rights & IBV_ACCESS_REMOTE_WRITE) == 0) {
    request.planted = IBV_WC_REM_INV_REQ_ERR;
    world_.tally().Count("misuse.queue_pair_without_rights");
    Wall(endpoint);
    return Post(endpoint, std::move(request), wr, sges, {});
  }
  switch (random.Below(7)) {
    case 0:
      wr.wr.rdma.rkey ^= kWrongKeyBits;
      request.planted = IBV_WC_REM_ACCESS_ERR;
      world_.tally().Count("misuse.wrong_rkey");
      break;
    case 1:
      wr.wr.rdma.remote_addr = there.Iova(there.end) - kSomeBytes + 1;
      request.planted = IBV_WC_REM_ACCESS_ERR;
      world_.tally().Count("misuse.remote_end");
      break;
    case 2:
      wr.wr.rdma.remote_addr = there.Iova(0) - 1;
      request.planted = IBV_WC_REM_ACCESS_ERR;
      world_.tally().Count("misuse.remote_begin");
      break;
    case 3:
      request.opcode = IBV_WR_RDMA_WRITE;
      wr.wr.rdma.remote_addr = target.read_only().Iova(Program::kHeapAt);
      wr.wr.rdma.rkey = target.read_only().mr->rkey;
      request.planted = IBV_WC_REM_ACCESS_ERR;
      world_.tally().Count("misuse.region_without_rights");
      break;
    case 4:
      request.opcode = random.Below(2) == 0 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
      sges[0].lkey ^= kWrongKeyBits;
      request.planted = IBV_WC_LOC_QP_OP_ERR;
      world_.tally().Count("misuse.wrong_lkey");
      break;
    case 5:
      request.opcode = random.Below(2) == 0 ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
      sges[0].addr = own.Iova(own.end) - kSomeBytes + 1;
      request.planted = IBV_WC_LOC_PROT_ERR;
      world_.tally().Count("misuse.local_end");
      break;
    default: {
      // Longer than any receive that it can use.
      if (endpoint.peer->receives->srq != nullptr) return false;
      request.opcode = IBV_WR_SEND;
      request.length = endpoint.peer->receives->buffer_bytes + 1;
      const Piece longer = program.Constant(request.length);
      sges[0] = {own.Iova(longer.offset), request.length, own.mr->lkey};
      request.planted = IBV_WC_REM_OP_ERR;
      world_.tally().Count("misuse.receive_too_small");
      break;
    }
  }
  Wall(endpoint);
  return Post(endpoint, std::move(request), wr, sges, {});
}

}  // namespace rdmaemu::sim
