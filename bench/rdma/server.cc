#include <sys/prctl.h>
#include <unistd.h>

#include "bench/rdma/control.h"
#include "bench/rdma/endpoint.h"
#include "bench/rdma/reference.h"
#include "bench/rdma/sides.h"
#include "bench/rdma/transfer.h"

namespace rdma_bench {
namespace {

void Obey(Endpoint& endpoint, Control& control, const Order& order, const Options& options) {
  switch (order.task) {
    case Task::kConnect:
      endpoint.Accept(order.qps);
      endpoint.PostReceives(order.message_bytes);
      return control.Send(Report{});
    case Task::kDisconnect:
      endpoint.Disconnected();
      return control.Send(Report{});
    case Task::kReceive:
      control.Send(Report{});
      return control.Send(ReceiveAll(endpoint, order));
    case Task::kEcho:
      control.Send(Report{});
      return control.Send(EchoAll(endpoint, order));
    case Task::kAcceptAll:
      AcceptAll(endpoint, control);
      return control.Send(Report{});
    case Task::kYieldPingPong:
      return YieldPong(control);
    case Task::kWakePingPong:
      return WakePong(control);
    case Task::kUdpSink:
      return UdpSink(control, endpoint.buffer(), options.address, order.message_bytes);
    case Task::kRingSink:
      return RingSink(control, endpoint.buffer());
    case Task::kUnixSocketSink:
      return UnixSocketSink(control, endpoint.buffer(), options.control_path);
    case Task::kTcpAcceptAll:
      return TcpAcceptAll(control, options.address);
    case Task::kStop:
    case Task::kQuit:
      break;
  }
  throw Failure("an order that nothing is under way for");
}

}  // namespace

void RunServer(const Options& options) {
  // The references write to our memory. Some machines allow this only to a process's ancestors.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  Endpoint endpoint(options);
  endpoint.Listen();
  Control control = Control::Serve(options.control_path);
  control.Send(ServerFacts{getpid(), reinterpret_cast<uint64_t>(endpoint.buffer().data()),
                           endpoint.buffer().size(), endpoint.mr()->rkey, endpoint.listen_port()});
  for (;;) {
    const Order order = control.Receive<Order>();
    if (order.task == Task::kQuit) return;
    Obey(endpoint, control, order, options);
  }
}

}  // namespace rdma_bench
