// Regions that end or move to other bytes while a WRITE to them may be in flight. Once the call has
// returned, no peer writes the region's earlier bytes.
#include <algorithm>

#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

// The longest lifetimes of regions.
constexpr uint32_t kLongest_ns = 200'000, kShort_ns = 4'000;

}  // namespace

bool Traffic::PostToLease(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Program& owner = *endpoint.peer->program;
  if (!owner.Runs()) return false;
  std::vector<ibv_sge> sges;
  std::vector<std::byte> bytes =
      Gather(endpoint, std::max(1u, DrawLength(UINT32_MAX)), request, sges);
  request.length = static_cast<uint32_t>(bytes.size());
  const std::optional<Piece> place = owner.heap().Take(request.length);
  auto lease = std::make_unique<Lease>();
  if (!place || bytes.empty() ||
      owner.Register(place->offset, place->offset + place->length,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, lease->region) != 0) {
    Drop(*endpoint.program, request);
    return false;
  }
  lease->writer = &endpoint;
  lease->owner = &owner;
  lease->piece = *place;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.signalled = true;
  request.lease = lease.get();
  request.target_program = &owner;
  request.target = *place;
  request.target_claim = lease->claim = owner.model().Expect(place->offset, std::move(bytes));
  wr.wr.rdma.remote_addr = lease->region.iova;
  wr.wr.rdma.rkey = lease->region.mr->rkey;
  const uint32_t longest = world_.random().Below(2) == 0 ? kLongest_ns : kShort_ns;
  world_.After(Duration(world_.random().Below(longest)),
               [this, lease = lease.get()] { EndLease(*lease); });
  leases_.push_back(std::move(lease));
  return Post(endpoint, std::move(request), wr, sges, {});
}

void Traffic::EndLease(Lease& lease) {
  Program& owner = *lease.owner;
  if (!owner.Lives() || lease.region.mr == nullptr) return;
  if (!owner.Runs()) {  // its host is paused
    world_.After(std::chrono::milliseconds(1), [this, &lease] { EndLease(lease); });
    return;
  }
  const auto request = std::ranges::find(lease.writer->sends, &lease, &Request::lease);
  const bool in_use =
      request != lease.writer->sends.end() && !request->whole_when_right_ended.has_value();
  const Piece before = lease.piece;
  // Some regions move first and end a moment later. A region moves only once: if it moved back, the
  // WRITE could arrive at its intended target.
  std::optional<Piece> other;
  if (!lease.has_moved && world_.random().Below(2) == 0) other = owner.heap().Take(before.length);
  int error;
  if (other) {
    error = owner.Reregister(lease.region, other->offset, other->offset + other->length);
    world_.tally().Count(in_use ? "op.rereg_in_use" : "op.rereg");
  } else {
    error = owner.Deregister(lease.region);
    world_.tally().Count(in_use ? "op.dereg_in_use" : "op.dereg");
  }
  if (error != 0) {
    return world_.verdict().Complain(
        "verbs", owner.name() + " cannot end or move a region, errno " + std::to_string(error));
  }
  Say(owner, other ? "moved a region" : "ended a region");
  if (in_use) {
    LoseRight(*lease.writer, *request);
  } else {
    // The WRITE failed or its program has ended. The WRITE may still arrive.
    (void)owner.model().Revoke(lease.claim);
    if (!lease.is_written) PeerMayFail(*lease.writer);
  }
  // The bytes are used again at once, so that a late write to them shows as an error.
  owner.heap().Give(before);
  if (!other) return;
  lease.piece = *other;
  lease.has_moved = true;
  world_.After(Duration(world_.random().Below(kLongest_ns)), [this, &lease] { EndLease(lease); });
}

void Traffic::OwnRegion(Program& program, Receive& receive, std::vector<ibv_sge>& sges) {
  uint64_t begin = UINT64_MAX, end = 0;
  for (const Piece& piece : receive.pieces) {
    if (piece.length == 0) continue;
    begin = std::min(begin, piece.offset);
    end = std::max(end, piece.offset + piece.length);
  }
  Region region;
  if (program.Register(begin, end, IBV_ACCESS_LOCAL_WRITE, region) != 0) return;
  for (size_t i = 0; i < sges.size(); i++) {
    if (receive.pieces[i].length == 0) continue;
    sges[i].addr = region.Iova(receive.pieces[i].offset);
    sges[i].lkey = region.mr->lkey;
  }
  receive.region = region;
}

void Traffic::EndRegion(Program& program, Receive& receive) {
  if (!receive.region || receive.region->mr == nullptr || !program.Lives()) return;
  if (!program.Runs()) {  // its host is paused
    program.EndWithTheRest(*receive.region);
  } else if (program.Deregister(*receive.region) != 0) {
    world_.verdict().Complain("verbs", program.name() + " cannot end the region of a receive");
  }
  receive.region.reset();
}

void Traffic::EndRegionsOfArrived(Program& program) {
  if (!program.Runs()) return;
  program.ForEachQueued([&](const CqEntry& entry) {
    const auto endpoint = by_qpn_.find({&program, entry.wc.qp_num});
    if (!Program::IsReceive(entry.wc.wr_id) || endpoint == by_qpn_.end()) return;
    auto& posted = endpoint->second->receives->posted;
    const auto found = std::ranges::find(posted, uint64_t{entry.wc.wr_id}, &Receive::wr_id);
    if (found == posted.end() || !found->region || found->when_region_ended) return;
    const bool moves = world_.random().Below(2) == 0;
    const int error = moves ? program.Reregister(*found->region, 0, Program::kConstantBytes)
                            : program.Deregister(*found->region);
    if (error != 0) {
      world_.verdict().Complain(
          "verbs",
          program.name() + " cannot end the region of a message, errno " + std::to_string(error));
    }
    if (!moves) found->region.reset();
    found->when_region_ended = BytesOf(program, *found, found->length);
    world_.tally().Count(moves ? "op.rereg_of_arrived" : "op.dereg_of_arrived");
  });
}

}  // namespace rdmaemu::sim
