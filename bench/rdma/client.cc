#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/rdma/control.h"
#include "bench/rdma/endpoint.h"
#include "bench/rdma/figure.h"
#include "bench/rdma/reference.h"
#include "bench/rdma/sides.h"
#include "bench/rdma/transfer.h"

namespace rdma_bench {
namespace {

using Json = nlohmann::ordered_json;

// Message rates post this many small messages per call, of which the last one is signalled.
constexpr unsigned kRateList = 16;
// The total of outstanding messages, but at least two lists per QP.
constexpr unsigned kRateOutstanding = 128;
constexpr unsigned kBandwidthOutstanding = 16;

double Quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

class Client {
 public:
  explicit Client(const Options& options)
      : options_(options),
        seconds_(options.round_seconds),
        control_(Control::Connect(options.control_path)),
        endpoint_(options),
        copy_(options.buffer_bytes(), options.pages()),
        server_(control_.Receive<ServerFacts>()) {}

  void Run(const std::string& text) {
    const Figure figure = ParseFigure(text);
    const bool connected = figure.measure != Measure::kConnections;
    if (connected) Connect(figure);
    Json rounds = Json::array();
    for (unsigned i = 0; i < options_.rounds; i++) {
      Json round = options_.ours_only ? Json::object() : References(figure);
      round.update(Ours(figure));
      rounds.push_back(round);
    }
    if (connected) Disconnect();
    const Json line = {{"figure", text},
                       {"pages", options_.huge_pages ? "huge" : "ordinary"},
                       {"huge_mib", endpoint_.buffer().HugeBytes() >> 20},
                       {"rounds", rounds}};
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  void Quit() { control_.Send(Order{.task = Task::kQuit}); }

 private:
  void Connect(const Figure& figure) {
    control_.Send(
        Order{.task = Task::kConnect, .qps = figure.count, .message_bytes = figure.bytes});
    endpoint_.Connect(options_.peer, server_.rdma_port, figure.count);
    endpoint_.PostReceives(figure.bytes);
    control_.Receive<Report>();
  }
  void Disconnect() {
    control_.Send(Order{.task = Task::kDisconnect});
    endpoint_.Disconnect();
    control_.Receive<Report>();
  }

  Json References(const Figure& figure) {
    switch (figure.measure) {
      case Measure::kBandwidth:
      case Measure::kAwaited: {
        const Buffer& own = endpoint_.buffer();
        const bool write = figure.opcode != IBV_WR_RDMA_READ;
        const double process_vm = ProcessVmFor(own, server_, write, figure.bytes, seconds_);
        if (!options_.over_udp) {
          return {{"memcpy", MemcpyFor(own, copy_, figure.bytes, seconds_)},
                  {"process_vm", process_vm}};
        }
        const UdpEnds ends{options_.address, options_.peer, options_.udp_payload};
        return {{"udp", UdpFor(own, control_, ends, seconds_)}, {"process_vm", process_vm}};
      }
      case Measure::kMessageRate: {
        if (figure.bytes != kRateMessageBytes) return Json::object();
        const Buffer& own = endpoint_.buffer();
        return {{"ring", RingRateFor(own, control_, seconds_)},
                {"unix", UnixSocketRateFor(own, control_, options_.control_path, seconds_)}};
      }
      case Measure::kLatency: {
        const std::string name = figure.block_on_events ? "wake" : "yield";
        const auto times = figure.block_on_events ? WakePingPongFor(control_, seconds_)
                                                  : YieldPingPongFor(control_, seconds_);
        return {{name, Quantile(times, 0.5)}, {name + "_p99", Quantile(times, 0.99)}};
      }
      case Measure::kConnections:
        return {{"tcp", TcpConnectFor(control_, options_.peer, seconds_)}};
    }
    return {};
  }

  Json Ours(const Figure& figure) {
    Traffic traffic{.opcode = figure.opcode,
                    .message_bytes = figure.bytes,
                    .qps = figure.count,
                    .outstanding = kBandwidthOutstanding,
                    .block_on_events = figure.block_on_events,
                    .inline_data = figure.inline_data};
    switch (figure.measure) {
      case Measure::kBandwidth: {
        // A blocking client sleeps until half of its window is complete, and does not poll
        // meanwhile.
        if (figure.block_on_events) traffic.list = kBandwidthOutstanding / 2;
        const Volume volume = SendFor(endpoint_, control_, traffic, server_, seconds_);
        return {{"ours", static_cast<double>(volume.messages * figure.bytes) / volume.seconds}};
      }
      case Measure::kAwaited: {
        traffic.outstanding = 1;
        const Volume volume = SendFor(endpoint_, control_, traffic, server_, seconds_);
        return {{"ours", static_cast<double>(volume.messages * figure.bytes) / volume.seconds}};
      }
      case Measure::kMessageRate: {
        traffic.list = kRateList;
        traffic.outstanding = std::max(2 * kRateList, kRateOutstanding / figure.count);
        const Volume volume = SendFor(endpoint_, control_, traffic, server_, seconds_);
        return {{"ours", static_cast<double>(volume.messages) / volume.seconds}};
      }
      case Measure::kLatency: {
        const auto times = PingPongFor(endpoint_, control_, traffic, seconds_);
        return {{"ours", Quantile(times, 0.5)}, {"ours_p99", Quantile(times, 0.99)}};
      }
      case Measure::kConnections: {
        control_.Send(Order{.task = Task::kAcceptAll});
        const Volume volume =
            ConnectFor(endpoint_, options_.peer, server_.rdma_port, figure.count, seconds_);
        control_.Send(Order{.task = Task::kStop});
        control_.Receive<Report>();
        return {{"ours", static_cast<double>(volume.messages) / volume.seconds}};
      }
    }
    return {};
  }

  const Options options_;
  const double seconds_;
  Control control_;
  Endpoint endpoint_;
  Buffer copy_;
  const ServerFacts server_;
};

}  // namespace

void RunClient(const Options& options) {
  for (const std::string& text : options.figures) ParseFigure(text);
  Client client(options);
  for (const std::string& text : options.figures) client.Run(text);
  client.Quit();
}

}  // namespace rdma_bench
