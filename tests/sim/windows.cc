// Memory windows of type 2: bound by their owner, written through by its peer, invalidated by
// either, and good for nothing afterwards.
#include "tests/sim/traffic.h"

namespace rdmaemu::sim {
namespace {

constexpr uint32_t kWindowBytes = 600;

}  // namespace

bool Traffic::PostWindow(Endpoint& endpoint, Request request, rxe_send_wr wr) {
  using State = WindowOf::State;
  const WindowOf& own = endpoint.window;
  const WindowOf& other = endpoint.peer->window;
  if (own.state == State::kNone) return BindWindow(endpoint, std::move(request), wr);
  const uint32_t what = world_.random().Below(4);
  if (own.state == State::kBound && what == 0) {
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
  return false;
}

bool Traffic::BindWindow(Endpoint& endpoint, Request request, rxe_send_wr wr) {
  Program& program = *endpoint.program;
  WindowOf& window = endpoint.window;
  const auto piece = program.heap().Take(kWindowBytes);
  if (!piece) return false;
  MwOut made{};
  if (program.process().Call(CallOp::kAllocMw, AllocMwIn{program.pd(), IBV_MW_TYPE_2}, made) != 0) {
    world_.verdict().Complain("verbs", endpoint.name() + " gets no memory window");
    return false;
  }
  program.Keep(made.handle);
  const uint32_t key = (made.rkey & ~0xffu) | ((made.rkey + 1) & 0xff);
  window = {WindowOf::State::kBinding, made.handle, key, *piece};
  request.opcode = IBV_WR_BIND_MW;
  request.signalled = true;
  request.window = Request::Window::kBind;
  wr.send_flags &= ~static_cast<uint32_t>(IBV_SEND_SOLICITED);
  wr.wr.mw.addr = program.region().Iova(piece->offset);
  wr.wr.mw.length = piece->length;
  wr.wr.mw.mr_lkey = program.region().mr.lkey;
  wr.wr.mw.mw_rkey = made.rkey;
  wr.wr.mw.rkey = key;
  wr.wr.mw.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return Post(endpoint, std::move(request), wr, {}, {});
}

bool Traffic::UseWindow(Endpoint& endpoint, Request request, rxe_send_wr wr) {
  Program& target = *endpoint.peer->program;
  WindowOf& window = endpoint.peer->window;
  Random& random = world_.random();
  std::vector<rxe_sge> sges;
  const bool fails = request.planted.has_value();
  std::vector<std::byte> bytes =
      Gather(endpoint, 1 + random.Below(window.piece.length), request, sges);
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
    window.state = WindowOf::State::kInUse;
    request.target_program = &target;
    request.target = {offset, request.length};
    request.target_claim = target.model().Expect(offset, std::move(bytes));
    world_.tally().Count("op.write_through_window");
  }
  return Post(endpoint, std::move(request), wr, sges, {});
}

bool Traffic::InvalidateWindow(Endpoint& owner, Endpoint& by, Request request, rxe_send_wr wr) {
  owner.window.state = WindowOf::State::kInvalidating;
  request.signalled = true;
  request.window = Request::Window::kInvalidate;
  wr.ex.invalidate_rkey = owner.window.rkey;
  if (&owner != &by) {
    request.opcode = IBV_WR_SEND_WITH_INV;
    return PostSend(by, std::move(request), wr);
  }
  request.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags &= ~static_cast<uint32_t>(IBV_SEND_SOLICITED);
  return Post(by, std::move(request), wr, {}, {});
}

// What the end of a request means for the window that it was about.
void Traffic::WindowMoves(Endpoint& endpoint, const Request& request, bool done) {
  using State = WindowOf::State;
  switch (request.window) {
    case Request::Window::kNone:
      return;
    case Request::Window::kBind:
      endpoint.window.state = done ? State::kBound : State::kInvalid;
      return;
    case Request::Window::kUse:
      // After a failure its bytes may still be written late: it is not used again.
      if (endpoint.peer->window.state == State::kInUse) {
        endpoint.peer->window.state = done ? State::kBound : State::kInvalidating;
      }
      return;
    case Request::Window::kInvalidate: {
      WindowOf& window =
          request.opcode == IBV_WR_LOCAL_INV ? endpoint.window : endpoint.peer->window;
      if (done) window.state = State::kInvalid;
      return;
    }
  }
}

}  // namespace rdmaemu::sim
