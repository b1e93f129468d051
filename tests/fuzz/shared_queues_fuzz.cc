// Queues, slabs and doorbells changed under the host's hands, between and after everything that it
// does with them.
#include "tests/fuzz/shared_memory.h"

namespace rdmaemu::fuzz {
namespace {

void Act(DataScene& scene, Input& in) {
  switch (in.Below(16)) {
    case 0:
      return scene.Pass(in);
    case 1:
      return scene.PostSend(in);
    case 2:
      return scene.PostReceive(in);
    case 3:
      return scene.Change(in);
    case 4:
      return scene.PollAll();
    case 5: {
      auto& page = *reinterpret_cast<DoorbellPage*>(scene.client.At(scene.client.hello.doorbells));
      (void)RingDoorbell(page, in.OneIn(2) ? in.Below(8) : in.U32() % DoorbellPage::kMaxQueues);
      return;
    }
    case 6:
    case 7:
    case 8:
      scene.world.Step();
      return;
    case 9:
      return scene.host.PrepareSleep(in.OneIn(2));
    default:
      return Scribble(scene, in);
  }
}

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmaemu::fuzz;
  Input in(data, size);
  DataScene scene;
  scene.world.trace.keep_records = scene.world.trace.keep_packets = in.OneIn(16);
  while (!in.empty()) rdmaemu::fuzz::Act(scene, in);
  scene.Rest();
  return 0;
}
