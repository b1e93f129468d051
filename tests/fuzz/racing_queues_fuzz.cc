// Another thread changes the same memory at the same time: between two reads of the host, or during
// a copy. The input does not determine the order, but memory errors are still detected.
#include <atomic>
#include <thread>

#include "emulator/base/random.h"
#include "tests/fuzz/shared_memory.h"

namespace rdmaemu::fuzz {
namespace {

// A program's thread that writes anywhere into the memory shared with its host.
class Scribbler {
 public:
  Scribbler(DataScene& scene, uint32_t seed) : random_(seed) {
    for (const SharedSpan& span : scene.spans) {
      stretches_.push_back(
          scene.world.segments.Bytes(SegmentId{span.segment}).subspan(span.offset));
    }
    for (const MrOut& region : scene.regions) values_.push_back(region.lkey);
    thread_ = std::thread([this] { Run(); });
  }
  ~Scribbler() {
    stop_ = true;
    thread_.join();
  }

 private:
  void Run() {
    while (!stop_) {
      const std::span<std::byte> stretch = stretches_[random_.Below(Count(stretches_))];
      // Mostly controls and first entries.
      const size_t most = random_.Below(4) == 0 ? 8192 : 512;
      const size_t words = std::min(stretch.size(), most) / sizeof(uint32_t);
      auto* const word =
          reinterpret_cast<uint32_t*>(stretch.data()) + random_.Below(static_cast<uint32_t>(words));
      std::atomic_ref(*word).store(Value(), std::memory_order_relaxed);
    }
  }
  uint32_t Value() {
    switch (random_.Below(4)) {
      case 0:
        return random_.Next32();
      case 1:
        return values_[random_.Below(Count(values_))];
      default:
        return random_.Below(20);
    }
  }
  template <class T>
  static uint32_t Count(const std::vector<T>& of) {
    return static_cast<uint32_t>(of.size());
  }

  Random random_;
  std::vector<std::span<std::byte>> stretches_;
  std::vector<uint32_t> values_{0, 0x7fffffff, 0xffffffff};
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmaemu::fuzz;
  Input in(data, size);
  DataScene scene;
  // The thread also writes to the memory of destroyed queues.
  scene.world.segments.programs_keep_mappings = true;
  {
    const Scribbler scribbler(scene, in.U32());
    while (!in.empty()) ActAndScribble(scene, in);
  }
  scene.Rest();
  return 0;
}
