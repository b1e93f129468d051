// The benchmark's two processes, a server and a client. They are user programs, independent of the
// implementation of the libraries. bench/table starts them. The client prints a line of JSON for
// each figure.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "bench/rdma/sides.h"

int main(int argc, char** argv) {
  rdma_bench::Options options;
  CLI::App app("RDMA figures between two processes; bench/table runs it and prints the table");
  app.require_subcommand(1);
  auto* const server = app.add_subcommand("server", "answers one client");
  auto* const client = app.add_subcommand("client", "measures and prints a line of JSON a figure");
  for (auto* const side : {server, client}) {
    side->add_option("--control", options.control_path, "path of a Unix socket")->required();
    side->add_option("--address", options.address, "own IPv4 address, of an RDMA device")
        ->required();
    side->add_flag("--huge-pages", options.huge_pages, "buffers in transparent huge pages");
    side->add_flag("--alloc-buf", options.alloc_buf, "buffers of ibv_alloc_buf");
    side->add_option("--buffer-mib", options.buffer_mib, "each buffer: the working set")
        ->check(CLI::Range(2, 1024))
        ->capture_default_str();
  }
  client->add_option("--peer", options.peer, "the server's IPv4 address")->required();
  client->add_flag("--over-udp", options.over_udp,
                   "the server is on another host: UDP is a reference, too");
  client
      ->add_option("--udp-payload", options.udp_payload,
                   "payload bytes of each packet of the reference over UDP")
      ->check(CLI::Range(256, 4096))
      ->capture_default_str();
  client->add_flag("--ours-only", options.ours_only, "no references (for a profile)");
  client->add_option("--rounds", options.rounds, "pairs of references and ours")
      ->capture_default_str();
  client->add_option("--round-s", options.round_seconds, "length of each, in seconds")
      ->capture_default_str();
  client
      ->add_option("figure", options.figures,
                   "what:bytes:count, e.g. write:65536, send_rate:64:16, latency_poll:8, "
                   "connections:0:32")
      ->required();
  CLI11_PARSE(app, argc, argv);
  try {
    *server ? rdma_bench::RunServer(options) : rdma_bench::RunClient(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: rdma_bench %s: %s\n", *server ? "server" : "client", error.what());
    return 1;
  }
  return 0;
}
