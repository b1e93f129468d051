#include "tests/fuzz/shared_memory.h"

namespace rdmaemu::fuzz {
namespace {

// Returns the header of an entry that one of the two sides reads next, and the bytes after it.
std::span<std::byte> ChooseEntry(DataScene& scene, Input& in) {
  const ScenePair& pair = in.Pick(scene.pairs);
  const uint32_t which = in.Below(8);
  const Ring& ring = which < 4   ? pair.qp.send
                     : which < 7 ? (pair.qp.recv ? pair.qp.recv : scene.srq_ring)
                                 : in.Pick(scene.cq_rings);
  const uint32_t at = (in.OneIn(4) ? ring.Producer() : ring.Consumer()) + in.Below(3);
  // At most the entry, because the ring may end at its segment's end.
  const std::span<std::byte> entry(ring.Slot(at), ring.slot_bytes());
  return entry.subspan(in.Below(64) * size_t{4} % entry.size());
}

// Returns a part of the segment where the scene's queues begin, or any other part.
std::span<std::byte> Choose(DataScene& scene, Input& in) {
  if (!in.OneIn(8)) {
    const SharedSpan& span = in.Pick(scene.spans);
    const std::span<std::byte> segment = scene.world.segments.Bytes(SegmentId{span.segment});
    // Controls and indices are within the first 512 bytes. Entries and slabs follow.
    const uint32_t at = span.offset + (in.OneIn(4) ? in.U16() : in.Below(128) * 4);
    return segment.subspan(std::min<size_t>(at, segment.size()));
  }
  const auto all = scene.world.segments.All();
  if (all.empty()) return {};
  const std::span<std::byte> segment = all[in.Below(static_cast<uint32_t>(all.size()))];
  return segment.subspan(in.U32() % segment.size());
}

void Put(std::span<std::byte> at, const void* value, size_t bytes) {
  if (!at.empty()) std::memcpy(at.data(), value, std::min(bytes, at.size()));
}

}  // namespace

void Scribble(DataScene& scene, Input& in) {
  const std::span<std::byte> at = in.OneIn(2) ? ChooseEntry(scene, in) : Choose(scene, in);
  switch (in.Below(6)) {
    case 0: {
      const auto bytes = in.Bytes(in.Below(64));
      if (!bytes.empty()) Put(at, bytes.data(), bytes.size());
      return;
    }
    case 1: {
      const uint64_t address = kMemoryAt + in.U16();
      return Put(at, &address, sizeof address);
    }
    case 2: {
      const uint32_t key = in.Pick(scene.regions).lkey;
      return Put(at, &key, sizeof key);
    }
    case 3: {
      // A run of equal bytes: whole entries.
      const size_t bytes = std::min<size_t>(in.U16() % 2048, at.size());
      if (bytes > 0) std::memset(at.data(), in.U8(), bytes);
      return;
    }
    default: {
      const uint32_t number = in.Edge32();
      return Put(at, &number, sizeof number);
    }
  }
}

// Changes an entry, which the host takes at once.
void ChangeTaken(DataScene& scene, Input& in) {
  const size_t index = in.Below(static_cast<uint32_t>(scene.pairs.size()));
  ScenePair& pair = scene.pairs[index];
  const bool sends = in.OneIn(2);
  Ring& ring = sends ? pair.qp.send : pair.qp.recv ? pair.qp.recv : scene.srq_ring;
  std::byte* const entry = ring.Slot(sends ? ring.Producer() : ring.Consumer());
  const uint32_t number = in.Edge32();
  std::memcpy(entry + in.Below(sends ? 64 : 16) * 4, &number, sizeof number);
  if (sends) {
    ring.SetProducer(ring.Next(ring.Producer()));
    auto& page = *reinterpret_cast<DoorbellPage*>(scene.client.At(scene.client.hello.doorbells));
    (void)RingDoorbell(page, pair.qp.made.doorbell);
  } else {
    scene.ReceiveSend(index, in.U8());
  }
  scene.world.Step();
}

void ActAndScribble(DataScene& scene, Input& in) {
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
      scene.PollAll();
      return scene.TakeJobs(in);
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
    case 10:
      return ChangeTaken(scene, in);
    case 11:
      return scene.host.PrepareSleep(in.OneIn(2));
    default:
      return Scribble(scene, in);
  }
}

}  // namespace rdmaemu::fuzz
