#include "bench/rdma/transfer.h"

#include <algorithm>
#include <array>

namespace rdma_bench {
namespace {

constexpr size_t kPollAtOnce = 32;
constexpr unsigned kLongestList = 16;
// One of this many sends of a ping-pong is signalled, because completions free the send queue.
constexpr unsigned kSignalEvery = 16;
constexpr size_t kWarmUpRoundTrips = 20;
// The minimum of round trips in a round, however short the round is, because a p99 needs them.
constexpr size_t kLeastRoundTrips = 200;

bool TwoSided(ibv_wr_opcode opcode) { return opcode == IBV_WR_SEND; }

// Posts lists of messages of one kind. Each message is at the next position of the buffer.
class Sender {
 public:
  Sender(Endpoint& endpoint, const Traffic& traffic, const ServerFacts& server)
      : endpoint_(endpoint),
        traffic_(traffic),
        server_(server),
        walk_(std::min<size_t>(endpoint.buffer().size(), server.buffer_bytes),
              traffic.message_bytes) {
    if (traffic.list > kLongestList) throw Failure("a list of sends is too long");
    for (unsigned i = 0; i < traffic.list; i++) {
      const bool last = i + 1 == traffic.list;
      requests_[i] = {};
      requests_[i].next = last ? nullptr : &requests_[i + 1];
      requests_[i].sg_list = &pieces_[i];
      requests_[i].num_sge = 1;
      requests_[i].opcode = traffic.opcode;
      if (last) requests_[i].send_flags |= IBV_SEND_SIGNALED;
      if (traffic.inline_data) requests_[i].send_flags |= IBV_SEND_INLINE;
      requests_[i].wr.rdma.rkey = server.rkey;
      pieces_[i] = {0, traffic.message_bytes, endpoint.mr()->lkey};
    }
  }

  void PostList(unsigned qp) {
    for (unsigned i = 0; i < traffic_.list; i++) {
      const size_t place = walk_.Next();
      pieces_[i].addr = reinterpret_cast<uint64_t>(endpoint_.buffer().data() + place);
      requests_[i].wr_id = qp;
      requests_[i].wr.rdma.remote_addr = server_.buffer + place;
    }
    Post(qp, requests_.data());
  }

  // Posts an empty message that marks the end.
  void PostEnd(unsigned qp) {
    ibv_send_wr end{};
    end.wr_id = qp;
    end.opcode = IBV_WR_SEND_WITH_IMM;
    end.send_flags = IBV_SEND_SIGNALED;
    Post(qp, &end);
  }

 private:
  void Post(unsigned qp, ibv_send_wr* requests) {
    ibv_send_wr* bad = nullptr;
    errno = ibv_post_send(endpoint_.qp(qp), requests, &bad);
    Require(errno == 0, "ibv_post_send");
  }

  Endpoint& endpoint_;
  const Traffic traffic_;
  const ServerFacts server_;
  Walk walk_;
  std::array<ibv_send_wr, kLongestList> requests_;
  std::array<ibv_sge, kLongestList> pieces_;
};

bool IsReceive(const ibv_wc& completion) { return (completion.opcode & IBV_WC_RECV) != 0; }

// Returns the index of the QP, which the endpoint's receives store in wr_id.
unsigned QpOf(const ibv_wc& completion) { return static_cast<unsigned>(completion.wr_id); }

void PostEcho(Endpoint& endpoint, uint32_t bytes, uint64_t number) {
  ibv_sge piece{reinterpret_cast<uint64_t>(endpoint.buffer().data()), bytes, endpoint.mr()->lkey};
  ibv_send_wr request{};
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE;
  if (number % kSignalEvery == 0) request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  errno = ibv_post_send(endpoint.qp(0), &request, &bad);
  Require(errno == 0, "ibv_post_send");
}

}  // namespace

Volume SendFor(Endpoint& endpoint, Control& control, const Traffic& traffic,
               const ServerFacts& server, double seconds) {
  const bool two_sided = TwoSided(traffic.opcode);
  if (two_sided) {
    control.Send(Order{.task = Task::kReceive,
                       .qps = traffic.qps,
                       .message_bytes = traffic.message_bytes,
                       .block_on_events = traffic.block_on_events});
    control.Receive<Report>();
  }
  Sender sender(endpoint, traffic, server);
  Volume volume{0, 0};
  const double begin = NowSeconds();
  unsigned lists = 0;
  for (unsigned i = 0; i < traffic.outstanding / traffic.list; i++) {
    for (unsigned qp = 0; qp < traffic.qps; qp++, lists++) sender.PostList(qp);
  }
  std::array<ibv_wc, kPollAtOnce> completions;
  double now = begin;
  while (lists > 0) {
    const unsigned got = endpoint.NextCompletions(completions, traffic.block_on_events);
    now = NowSeconds();
    const bool more = now - begin < seconds;
    volume.messages += uint64_t{got} * traffic.list;
    lists -= got;
    for (unsigned i = 0; i < got && more; i++, lists++) sender.PostList(QpOf(completions[i]));
  }
  volume.seconds = now - begin;
  if (two_sided) {
    for (unsigned qp = 0; qp < traffic.qps; qp++) sender.PostEnd(qp);
    for (unsigned ended = 0; ended < traffic.qps;) {
      ended += endpoint.NextCompletions(completions, traffic.block_on_events);
    }
    const Report report = control.Receive<Report>();
    if (report.messages != volume.messages) {
      throw Failure("the server took " + std::to_string(report.messages) + " messages of " +
                    std::to_string(volume.messages));
    }
  }
  return volume;
}

Report ReceiveAll(Endpoint& endpoint, const Order& order) {
  Report report;
  std::array<ibv_wc, kPollAtOnce> completions;
  for (unsigned ended = 0; ended < order.qps;) {
    const unsigned got = endpoint.NextCompletions(completions, order.block_on_events != 0);
    for (unsigned i = 0; i < got; i++) {
      const bool end = (completions[i].wc_flags & IBV_WC_WITH_IMM) != 0;
      end ? void(ended++) : void(report.messages++);
      endpoint.ReceiveUsed(QpOf(completions[i]));
    }
  }
  return report;
}

std::vector<double> PingPongFor(Endpoint& endpoint, Control& control, const Traffic& traffic,
                                double seconds) {
  control.Send(Order{.task = Task::kEcho,
                     .message_bytes = traffic.message_bytes,
                     .block_on_events = traffic.block_on_events});
  control.Receive<Report>();
  std::vector<double> one_way_us;
  std::array<ibv_wc, kPollAtOnce> completions;
  const double end = NowSeconds() + seconds;
  for (uint64_t number = 1;; number++) {
    const double begin = NowSeconds();
    if (begin >= end && one_way_us.size() >= kLeastRoundTrips) break;
    PostEcho(endpoint, traffic.message_bytes, number);
    for (bool answered = false; !answered;) {
      const unsigned got = endpoint.NextCompletions(completions, traffic.block_on_events);
      for (unsigned i = 0; i < got; i++) {
        if (!IsReceive(completions[i])) continue;
        answered = true;
        endpoint.ReceiveUsed(QpOf(completions[i]));
      }
    }
    if (number > kWarmUpRoundTrips) one_way_us.push_back((NowSeconds() - begin) * 1e6 / 2);
  }
  Sender(endpoint, traffic, ServerFacts{}).PostEnd(0);
  control.Receive<Report>();
  std::sort(one_way_us.begin(), one_way_us.end());
  return one_way_us;
}

Report EchoAll(Endpoint& endpoint, const Order& order) {
  Report report;
  std::array<ibv_wc, kPollAtOnce> completions;
  for (;;) {
    const unsigned got = endpoint.NextCompletions(completions, order.block_on_events != 0);
    for (unsigned i = 0; i < got; i++) {
      if (!IsReceive(completions[i])) continue;
      endpoint.ReceiveUsed(QpOf(completions[i]));
      if ((completions[i].wc_flags & IBV_WC_WITH_IMM) != 0) return report;
      PostEcho(endpoint, order.message_bytes, ++report.messages);
    }
  }
}

}  // namespace rdma_bench
