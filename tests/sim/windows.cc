// Memory windows. The owner binds a window, and its peer writes through it. Either side invalidates
// a window of type 2. The owner binds one of type 1 anew, to other bytes or to nothing. The peer
// may be writing through it at that moment.
#include <algorithm>

#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kWindowBytes = 5000;
constexpr uint32_t kLongestUse_ns = 100'000, kShortUse_ns = 4'000;

bool IsType1(const WindowOf& window) { return window.mw->type == IBV_MW_TYPE_1; }

}  // namespace

bool Traffic::PostWindow(Endpoint& endpoint, Request request, ibv_send_wr wr) {
  using State = WindowOf::State;
  const WindowOf& own = endpoint.window;
  const WindowOf& other = endpoint.peer->window;
  if (own.state == State::kNone) return BindWindow(endpoint, std::move(request), wr);
  const uint32_t what = world_.random().Below(4);
  const bool is_bound = own.state == State::kBound || own.state == State::kInUse;
  if (is_bound && what == 0 && !IsType1(own)) {
    return InvalidateWindow(endpoint, endpoint, std::move(request), wr);
  }
  if (is_bound && what == 0) return ChangeType1(endpoint, std::move(request));
  if (other.state == State::kBound && what == 1 && !IsType1(other)) {
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
  const ibv_mw_type type = world_.random().Below(2) == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
  ibv_mw* const mw = window.mw != nullptr ? window.mw : program.AllocWindow(type);
  if (mw == nullptr) return false;
  if (window.mw != nullptr) world_.tally().Count("op.rebind");
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  request.window = Request::Window::kBind;
  if (mw->type == IBV_MW_TYPE_1) {
    window = {WindowOf::State::kBinding, mw, key, *piece};
    world_.tally().Count("op.bind_type_1");
    return PostBind(endpoint, std::move(request), *piece);
  }
  request.opcode = IBV_WR_BIND_MW;
  request.signalled = true;
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

bool Traffic::PostBind(Endpoint& endpoint, Request request, const Piece& piece) {
  Program& program = *endpoint.program;
  // ibv_bind_mw posts at once, so the requests before this one must be posted first.
  PostPrepared(endpoint);
  request.opcode = IBV_WR_BIND_MW;
  request.signalled = true;
  ibv_mw_bind bind{};
  bind.wr_id = request.wr_id;
  bind.send_flags = IBV_SEND_SIGNALED;
  if (piece.length > 0) {
    bind.bind_info = {program.region().mr, program.region().Iova(piece.offset), piece.length,
                      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  }
  Post(endpoint, std::move(request), {}, {}, {});
  endpoint.prepared.clear();
  const Process::Entered entered(program.process());
  const int error = ibv_bind_mw(endpoint.qp, endpoint.window.mw, &bind);
  if (error != 0) {
    world_.verdict().Complain(
        "verbs", endpoint.name() + " cannot bind a window, errno " + std::to_string(error));
  }
  return true;
}

bool Traffic::ChangeType1(Endpoint& endpoint, Request request) {
  return world_.random().Below(2) == 0 ? RebindWindow(endpoint, std::move(request))
                                       : UnbindWindow(endpoint, std::move(request));
}

void Traffic::ChangeWindowInUse(Endpoint& owner) {
  if (owner.window.state != WindowOf::State::kInUse || !owner.Usable()) return;
  if (owner.peer == nullptr || owner.sends.size() >= owner.depth) return;
  Request request;
  request.wr_id = owner.program->NextWrId(false);
  if (IsType1(owner.window)) {
    (void)ChangeType1(owner, std::move(request));
  } else {
    (void)InvalidateWindow(owner, owner, std::move(request), {});
    PostPrepared(owner);
  }
}

// The peer's WRITEs through the old key may be in flight.
bool Traffic::RebindWindow(Endpoint& endpoint, Request request) {
  WindowOf& window = endpoint.window;
  const auto piece = endpoint.program->heap().Take(kWindowBytes);
  if (!piece) return false;
  const bool in_use = window.state == WindowOf::State::kInUse;
  world_.tally().Count(in_use ? "op.rebind_type_1_in_use" : "op.rebind_type_1");
  if (in_use) MayLoseWindow(endpoint);
  request.window = Request::Window::kRebind;
  window = {WindowOf::State::kBinding, window.mw, ibv_inc_rkey(window.mw->rkey), *piece};
  return PostBind(endpoint, std::move(request), *piece);
}

bool Traffic::UnbindWindow(Endpoint& endpoint, Request request) {
  WindowOf& window = endpoint.window;
  const bool in_use = window.state == WindowOf::State::kInUse;
  world_.tally().Count(in_use ? "op.unbind_type_1_in_use" : "op.unbind_type_1");
  if (in_use) MayLoseWindow(endpoint);
  window.state = WindowOf::State::kInvalidating;
  request.window = Request::Window::kInvalidate;
  return PostBind(endpoint, std::move(request), {});
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
    const uint32_t end = random.Below(4);
    const Duration use(random.Below(random.Below(2) == 0 ? kLongestUse_ns : kShortUse_ns));
    if (end == 0) world_.After(use, [this, owner = endpoint.peer] { FreeWindow(*owner); });
    if (end == 1) world_.After(use, [this, owner = endpoint.peer] { ChangeWindowInUse(*owner); });
    window.state = WindowOf::State::kInUse;
    request.target_program = &target;
    request.target = {offset, request.length};
    request.target_claim = target.model().Expect(offset, std::move(bytes));
    world_.tally().Count(IsType1(window) ? "op.write_through_window_type_1"
                                         : "op.write_through_window");
  }
  return Post(endpoint, std::move(request), wr, sges, {});
}

bool Traffic::InvalidateWindow(Endpoint& owner, Endpoint& by, Request request, ibv_send_wr wr) {
  const bool in_use = owner.window.state == WindowOf::State::kInUse;
  owner.window.state = WindowOf::State::kInvalidating;
  if (in_use) {
    world_.tally().Count("op.invalidate_in_use");
    MayLoseWindow(owner);
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
  if (in_use && owner.peer != nullptr) LoseWindow(owner);
  owner.program->heap().Give(window.piece);
  window = {State::kNone, nullptr, 0, {}};
}

void Traffic::MayLoseWindow(Endpoint& owner) {
  for (Request& write : owner.peer->sends) {
    if (write.window == Request::Window::kUse) MayLoseRight(*owner.peer, write);
  }
}

void Traffic::LoseWindow(Endpoint& owner) {
  for (Request& write : owner.peer->sends) {
    if (write.window == Request::Window::kUse) LoseRight(*owner.peer, write);
  }
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
    case Request::Window::kRebind:
      // WRITEs through the old key must have ended before the window is used again.
      endpoint.window.state =
          done && (endpoint.peer == nullptr ||
                   std::ranges::find(endpoint.peer->sends, Request::Window::kUse,
                                     &Request::window) == endpoint.peer->sends.end())
              ? State::kBound
              : State::kInvalidating;
      if (done && endpoint.peer != nullptr) LoseWindow(endpoint);
      return;
    case Request::Window::kUse:
      // After a failure a late packet may still write its bytes, so the window is not used again.
      if (endpoint.peer->window.state == State::kInUse) {
        endpoint.peer->window.state = done ? State::kBound : State::kInvalidating;
      }
      return;
    case Request::Window::kInvalidate: {
      Endpoint& owner = request.opcode == IBV_WR_SEND_WITH_INV ? *endpoint.peer : endpoint;
      if (!done) return;
      owner.window.state = State::kInvalid;
      if (owner.peer != nullptr && &owner == &endpoint) LoseWindow(owner);
      return;
    }
  }
}

}  // namespace rdmaemu::sim
