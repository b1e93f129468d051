// Changes to queues, slabs and doorbells before and after every action of the host on them.
#include "tests/fuzz/shared_memory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmaemu::fuzz;
  Input in(data, size);
  DataScene scene;
  scene.world.trace.keep_records = scene.world.trace.keep_packets = in.OneIn(16);
  while (!in.empty()) ActAndScribble(scene, in);
  scene.Rest();
  return 0;
}
