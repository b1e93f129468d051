// Memory windows of type 2. The owner binds a window, its peer writes through it, either side
// invalidates it, and afterwards it is unusable.
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kWindowBytes = 5000;
constexpr uint32_t kLongestUse_ns = 100'000;

}  // namespace

bool Traffic::PostWindow(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  using State = WindowOf::State;
  const WindowOf& own = endpoint.window;
  const WindowOf& other = endpoint.peer->window;
  if (own.state == State::kNone) return BindWindow(endpoint, std::move(request), wr);
  const uint32_t what = world_.random().Below(4);
  if ((own.state == State::kBound || own.state == State::kInUse) && what == 0) {
    return InvalidateWindow(endpoint, endpoint, std::move(request), wr);
  }
  if (other.state == State::kBound && what == 1) {
    return InvalidateWindow(*endpoint.peer, endpoint, std::move(request), wr);
  }
  if (other.state == State::kBound) return UseWindow(endpoint, std::move(request), wr);
  if (other.state == State::kInvalid && world_.plan().misuse > 0 && what == 2) {
    request.planted = IBV_WC_REM_ACCESS_ERR;
    world_.tally().Count("misuse.invalidated_window");
    return UseWindow(endpoint, std::move(request), wr);
  }
  if (own.state == State::kInvalid && what == 3) {
    return BindWindow(endpoint, std::move(request), wr);
  }
  return false;
}

// Binds a new window, or rebinds an invalidated one.
bool Traffic::BindWindow(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Program& program = *endpoint.program;
  WindowOf& window = endpoint.window;
  const auto piece = program.heap().Take(kWindowBytes);
  if (!piece) return false;
  ibv_mw* const mw = window.mw != nullptr ? window.mw : program.AllocWindow();
  if (mw == nullptr) return false;
  if (window.mw != nullptr) world_.tally().Count("op.rebind");
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  request.opcode = IBV_WR_BIND_MW;
  request.signalled = true;
  request.window = Request::Window::kBind;
  wr.send_flags &= ~static_cast<uint32_t>(IBV_SEND_SOLICITED);
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = key;
  wr.bind_mw.bind_info = {program.region().mr, program.region().Iova(piece->offset), piece->length,
                          IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  window = {WindowOf::State::kBinding, mw, key, *piece};
  const bool posted = Post(endpoint, std::move(request), wr, {}, {});
  // The request uses the window's current key, from which the next key is derived.
  PostPrepared(endpoint);
  mw->rkey = key;
  return posted;
}

bool Traffic::UseWindow(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  Program& target = *endpoint.peer->program;
  WindowOf& window = endpoint.peer->window;
  Random& random = world_.random();
  std::vector<ibv_sge> sges;
  const bool fails = request.planted.has_value();
  std::vector<std::byte> bytes =
      Gather(endpoint, std::max(1u, DrawLength(window.piece.length)), request, sges);
  request.length = static_cast<uint32_t>(bytes.size());
  if (request.length == 0) return false;
  const uint64_t offset =
      window.piece.offset + random.Below(window.piece.length - request.length + 1);
  request.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = target.region().Iova(offset);
  wr.wr.rdma.rkey = window.rkey;
  if (fails) {
    Wall(endpoint);
  } else {
    request.signalled = true;
    request.window = Request::Window::kUse;
    if (random.Below(4) == 0) {
      world_.After(Duration(random.Below(kLongestUse_ns)),
                   [this, owner = endpoint.peer] { FreeWindow(*owner); });
    }
    window.state = WindowOf::State::kInUse;
    request.target_program = &target;
    request.target = {offset, request.length};
    request.target_claim = target.model().Expect(offset, std::move(bytes));
    world_.tally().Count("op.write_through_window");
  }
  return Post(endpoint, std::move(request), wr, sges, {});
}

bool Traffic::InvalidateWindow(Endpoint& owner, Endpoint& by, Request request, ibv_send_wr wr) {
  const bool in_use = owner.window.state == WindowOf::State::kInUse;
  owner.window.state = WindowOf::State::kInvalidating;
  if (in_use) {
    world_.tally().Count("op.invalidate_in_use");
    for (Request& write : owner.peer->sends) {
      if (write.window == Request::Window::kUse) MayLoseRight(*owner.peer, write);
    }
  }
  request.signalled = true;
  request.window = Request::Window::kInvalidate;
  wr.invalidate_rkey = owner.window.rkey;
  if (&owner != &by) {
    request.opcode = IBV_WR_SEND_WITH_INV;
    return PostSend(by, std::move(request), wr);
  }
  request.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags &= ~static_cast<uint32_t>(IBV_SEND_SOLICITED);
  return Post(by, std::move(request), wr, {}, {});
}

void Traffic::FreeWindow(Endpoint& owner) {
  using State = WindowOf::State;
  WindowOf& window = owner.window;
  const bool in_use = window.state == State::kInUse;
  if ((!in_use && window.state != State::kBound) || !owner.program->Runs()) return;
  Say(*owner.program, "frees the window of " + owner.name());
  world_.tally().Count(in_use ? "op.dealloc_window_in_use" : "op.dealloc_window");
  if (!owner.program->FreeWindow(window.mw)) return;
  if (in_use && owner.peer != nullptr) {
    for (Request& write : owner.peer->sends) {
      if (write.window == Request::Window::kUse) LoseRight(*owner.peer, write);
    }
  }
  owner.program->heap().Give(window.piece);
  window = {State::kNone, nullptr, 0, {}};
}

void Traffic::MayLoseRight(Endpoint& endpoint, Request& request) {
  request.may_lose_right = true;
  MayFlush(endpoint);
  endpoint.disturbed = true;
  PeerMayFail(endpoint);
}

void Traffic::PeerMayFail(Endpoint& endpoint) {
  Endpoint& peer = *endpoint.peer;
  MayFlush(peer);
  peer.disturbed = true;
  peer.receives_may_fail = true;
}

void Traffic::LoseRight(Endpoint& endpoint, Request& request) {
  MayLoseRight(endpoint, request);
  if (request.whole_when_right_ended) return;
  request.whole_when_right_ended = request.target_program->model().Revoke(request.target_claim);
}

// Updates the state of a window after a request that used it.
void Traffic::WindowMoves(Endpoint& endpoint, const Request& request, bool done) {
  using State = WindowOf::State;
  switch (request.window) {
    case Request::Window::kNone:
      return;
    case Request::Window::kBind:
      endpoint.window.state = done ? State::kBound : State::kInvalid;
      return;
    case Request::Window::kUse:
      // After a failure a late packet may still write its bytes, so the window is not used again.
      if (endpoint.peer->window.state == State::kInUse) {
        endpoint.peer->window.state = done ? State::kBound : State::kInvalidating;
      }
      return;
    case Request::Window::kInvalidate: {
      Endpoint& owner = request.opcode == IBV_WR_LOCAL_INV ? endpoint : *endpoint.peer;
      if (!done) return;
      owner.window.state = State::kInvalid;
      if (owner.peer == nullptr || &owner != &endpoint) return;
      for (Request& write : owner.peer->sends) {
        if (write.window == Request::Window::kUse) LoseRight(*owner.peer, write);
      }
      return;
    }
  }
}

}  // namespace rdmaemu::sim
