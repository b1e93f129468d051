// kv_server [PORT]
#include <cstdio>
#include <cstdlib>

#include "server.h"

int main(int argc, char** argv) {
  try {
    kv::Server server(static_cast<uint16_t>(argc > 1 ? std::atoi(argv[1]) : 7471));
    std::printf("port %u\n", server.port());
    std::fflush(stdout);
    server.Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kv_server: %s\n", error.what());
    return 1;
  }
}
