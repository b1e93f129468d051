// The benchmark's two processes, a server and a client, as a user's programs: they know nothing of
// what the libraries are. bench/table starts them; the client prints a JSON line for each figure.
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/rdma/control.h"
#include "bench/rdma/endpoint.h"
#include "bench/rdma/reference.h"
#include "bench/rdma/transfer.h"

namespace rdma_bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string control_path, address, peer;
  bool huge_pages = false;
  size_t buffer_mib = 16;
  unsigned rounds = 5;
  double round_seconds = 0.1;
  bool over_udp = false;
  std::vector<std::string> figures;
};

// What one figure measures: `what:size:qps`, e.g. write:65536, send_rate:64:16, latency_poll:8.
struct Figure {
  std::string what;
  uint32_t bytes = 0;
  unsigned count = 1;  // QPs, or connections in flight
};

Figure ParseFigure(const std::string& text) {
  std::stringstream parts(text);
  Figure figure;
  std::string part;
  std::getline(parts, figure.what, ':');
  if (std::getline(parts, part, ':')) figure.bytes = static_cast<uint32_t>(std::stoul(part));
  if (std::getline(parts, part, ':')) figure.count = static_cast<unsigned>(std::stoul(part));
  return figure;
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted.empty() ? 0
                        : sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

class Client {
 public:
  Client(const Options& options)
      : options_(options),
        control_(Control::Connect(options.control_path)),
        endpoint_(options.address, options.buffer_mib << 20, PagesOf(options)),
        copy_(options.buffer_mib << 20, PagesOf(options)),
        server_(control_.Receive<ServerFacts>()) {}

  static Pages PagesOf(const Options& options) {
    return options.huge_pages ? Pages::kHuge : Pages::kOrdinary;
  }

  void Run() {
    for (const std::string& text : options_.figures) {
      const Figure figure = ParseFigure(text);
      const bool connected = figure.what != "connections";
      if (connected) Connect(figure);
      Json rounds = Json::array();
      for (unsigned i = 0; i < options_.rounds; i++) rounds.push_back(Round(figure));
      if (connected) Disconnect();
      const Json line = {{"figure", text},
                         {"pages", options_.huge_pages ? "huge" : "ordinary"},
                         {"huge_mib", endpoint_.buffer().HugeBytes() >> 20},
                         {"rounds", rounds}};
      std::printf("%s\n", line.dump().c_str());
      std::fflush(stdout);
    }
    control_.Send(Order{.task = Task::kQuit});
  }

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

  // One round of each reference, then one of ours.
  Json Round(const Figure& figure) {
    const double seconds = options_.round_seconds;
    const auto ends_with = [&](const char* end) { return figure.what.ends_with(end); };
    if (figure.what == "connections") {
      const double tcp = TcpConnectFor(control_, seconds);
      control_.Send(Order{.task = Task::kAcceptAll});
      const Volume volume =
          ConnectFor(endpoint_, options_.peer, server_.rdma_port, figure.count, seconds);
      control_.Send(Order{.task = Task::kStop});
      control_.Receive<Report>();
      return {{"tcp", tcp}, {"ours", static_cast<double>(volume.messages) / volume.seconds}};
    }
    if (figure.what == "send_rate" || figure.what == "send_rate_inline") {
      // 16 a call with the last one signalled, 128 outstanding in all (32 a QP at least).
      const Volume volume = SendFor(endpoint_, control_,
                                    {.opcode = IBV_WR_SEND,
                                     .message_bytes = figure.bytes,
                                     .qps = figure.count,
                                     .outstanding = std::max(32u, 128 / figure.count),
                                     .list = 16,
                                     .inline_data = ends_with("_inline")},
                                    server_, seconds);
      return {{"ours", static_cast<double>(volume.messages) / volume.seconds}};
    }
    if (figure.what == "latency_poll" || figure.what == "latency_events") {
      const bool events = ends_with("_events");
      const auto reference =
          events ? WakePingPongFor(control_, seconds) : YieldPingPongFor(control_, seconds);
      const auto ours = PingPongFor(endpoint_, control_,
                                    {.opcode = IBV_WR_SEND,
                                     .message_bytes = figure.bytes,
                                     .block_on_events = events,
                                     .inline_data = true},
                                    seconds);
      return {{"ours", Quantile(ours, 0.5)},
              {"ours_p99", Quantile(ours, 0.99)},
              {events ? "wake" : "yield", Quantile(reference, 0.5)},
              {events ? "wake_p99" : "yield_p99", Quantile(reference, 0.99)}};
    }
    return Bandwidth(figure);
  }

  Json Bandwidth(const Figure& figure) {
    static const std::map<std::string, ibv_wr_opcode> kOpcodes = {
        {"send", IBV_WR_SEND}, {"write", IBV_WR_RDMA_WRITE}, {"read", IBV_WR_RDMA_READ}};
    const std::string verb = figure.what.substr(0, figure.what.find('_'));
    const bool events = figure.what == verb + "_events";
    if (kOpcodes.count(verb) == 0 || (figure.what != verb && !events)) {
      throw Failure("no such figure: " + figure.what);
    }
    const double seconds = options_.round_seconds;
    Json round;
    if (options_.over_udp) {
      round["udp"] = UdpFor(endpoint_.buffer(), control_, seconds);
    } else {
      round["memcpy"] = MemcpyFor(endpoint_.buffer(), copy_, figure.bytes, seconds);
      round["process_vm"] =
          ProcessVmFor(endpoint_.buffer(), server_, verb != "read", figure.bytes, seconds);
    }
    Traffic traffic{.opcode = kOpcodes.at(verb),
                    .message_bytes = figure.bytes,
                    .qps = figure.count,
                    .block_on_events = events};
    // A program that sleeps until half of its window is done: it does not poll while data moves.
    if (events) traffic.list = traffic.outstanding / 2;
    const Volume volume = SendFor(endpoint_, control_, traffic, server_, seconds);
    round["ours"] = static_cast<double>(volume.messages * figure.bytes) / volume.seconds;
    return round;
  }

  const Options options_;
  Control control_;
  Endpoint endpoint_;
  Buffer copy_;
  const ServerFacts server_;
};

void Serve(const Options& options) {
  // The references write into our memory, which some machines allow to descendants alone.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  Endpoint endpoint(options.address, options.buffer_mib << 20, Client::PagesOf(options));
  endpoint.Listen();
  Control control = Control::Serve(options.control_path);
  control.Send(ServerFacts{getpid(), reinterpret_cast<uint64_t>(endpoint.buffer().data()),
                           endpoint.buffer().size(), endpoint.mr()->rkey, endpoint.listen_port()});
  for (;;) {
    const Order order = control.Receive<Order>();
    switch (order.task) {
      case Task::kConnect:
        endpoint.Accept(order.qps);
        endpoint.PostReceives(order.message_bytes);
        control.Send(Report{});
        break;
      case Task::kDisconnect:
        endpoint.Disconnected();
        control.Send(Report{});
        break;
      case Task::kReceive:
        control.Send(Report{});
        control.Send(ReceiveAll(endpoint, order));
        break;
      case Task::kEcho:
        control.Send(Report{});
        control.Send(EchoAll(endpoint, order));
        break;
      case Task::kAcceptAll:
        AcceptAll(endpoint, control);
        control.Send(Report{});
        break;
      case Task::kYieldPingPong:
        YieldPong(control, order);
        break;
      case Task::kWakePingPong:
        WakePong(control, order);
        break;
      case Task::kUdpSink:
        UdpSink(control, endpoint.buffer());
        break;
      case Task::kTcpAcceptAll:
        TcpAcceptAll(control);
        break;
      case Task::kStop:
        throw Failure("the client stopped what was not under way");
      case Task::kQuit:
        return;
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("RDMA figures between two processes; bench/table runs it and prints the table");
  app.require_subcommand(1);
  auto* const server = app.add_subcommand("server", "answers one client");
  auto* const client = app.add_subcommand("client", "measures and prints a JSON line a figure");
  for (auto* const side : {server, client}) {
    side->add_option("--control", options.control_path, "path of a Unix socket")->required();
    side->add_option("--address", options.address, "own IPv4 address, of an RDMA device")
        ->required();
    side->add_flag("--huge-pages", options.huge_pages, "buffers in transparent huge pages");
    side->add_option("--buffer-mib", options.buffer_mib, "each buffer: the working set");
  }
  client->add_option("--peer", options.peer, "the server's IPv4 address")->required();
  client->add_flag("--over-udp", options.over_udp,
                   "the server is on another host: UDP is the reference");
  client->add_option("--rounds", options.rounds, "pairs of a reference and ours");
  client->add_option("--round-s", options.round_seconds, "length of each");
  client
      ->add_option("figure", options.figures,
                   "what:size:count, e.g. write:65536, send_rate:64:16, latency_poll:8, "
                   "connections:0:16")
      ->required();
  CLI11_PARSE(app, argc, argv);
  try {
    if (*server) {
      Serve(options);
    } else {
      Client(options).Run();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: rdma_bench %s: %s\n", *server ? "server" : "client", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace rdma_bench

int main(int argc, char** argv) { return rdma_bench::Main(argc, argv); }
