// kv_client ADDRESS PORT get KEY | put KEY VALUE | delete KEY
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client.h"

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: kv_client ADDRESS PORT get KEY | put KEY VALUE | delete KEY\n");
    return 2;
  }
  try {
    kv::Client client(argv[1], static_cast<uint16_t>(std::atoi(argv[2])));
    const std::string what = argv[3];
    if (what == "put" && argc > 5) {
      client.Put(argv[4], argv[5]);
    } else if (what == "get") {
      const auto value = client.Get(argv[4]);
      if (!value) return 1;
      std::printf("%s\n", value->c_str());
    } else if (what == "delete") {
      return client.Delete(argv[4]) ? 0 : 1;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kv_client: %s\n", error.what());
    return 1;
  }
}
