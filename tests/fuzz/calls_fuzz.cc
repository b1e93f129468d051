// Calls from several programs: every call, valid and changed, with handles of its own, of other
// programs or invented ones. Programs start, fork and die, and their queues work meanwhile.
#include "tests/fuzz/calls.h"

namespace rdmaemu::fuzz {
namespace {

constexpr size_t kMostClients = 6;

void Act(DataScene& scene, Calls& calls, Input& in) {
  testing::Client& client = *in.Pick(scene.clients);
  switch (in.Below(32)) {
    case 0:
      scene.Pass(in);
      break;
    case 1:
      scene.PostSend(in);
      break;
    case 2:
      scene.PostReceive(in);
      break;
    case 3:
      if (scene.clients.size() < kMostClients) scene.AddClient();
      break;
    case 4:
      if (scene.clients.size() < kMostClients && client.process == scene.client.process) {
        scene.clients.push_back(client.Fork());
      }
      break;
    case 5:
      // The first client has the scene and runs to the end.
      if (client.process != scene.client.process) client.Kill();
      break;
    case 6:
      scene.world.Step();
      break;
    case 7:
      scene.PollAll();
      scene.TakeJobs(in);
      break;
    default:
      // Mostly the client with objects.
      calls.Make(in, in.OneIn(4) ? client : scene.client);
      break;
  }
}

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmaemu::fuzz;
  Input in(data, size);
  DataScene scene;
  scene.world.trace.keep_records = in.OneIn(16);
  scene.AddClient();
  Calls calls;
  calls.AddCmCommands();
  calls.AddVerbs(scene);
  calls.AddDeviceChanges();
  while (!in.empty()) rdmaemu::fuzz::Act(scene, calls, in);
  scene.Rest();
  return 0;
}
