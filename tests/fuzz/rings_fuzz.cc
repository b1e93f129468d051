// A ring between two hosts: datagrams of any size, and a peer that writes anything to the shared
// memory at any moment. A side that was lied to sees no byte outside the ring.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <span>
#include <vector>

#include "emulator/runtime/peer_ring.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"

namespace rdmaemu::fuzz {
namespace {

using namespace rdmaemu::runtime;

constexpr size_t kMaxSteps = 4096;

class Scene {
 public:
  explicit Scene(Input& in) : in_(in) {
    REQUIRE(writer_ && reader_ && memory_);
    const size_t bytes = 1;
    std::span<std::byte> room;
    REQUIRE(writer_.AllocateRun({}, 0, WireForm::kDatagrams, {&bytes, 1}, {&room, 1}) == 1);
    writer_.Commit();
    writer_.Publish();
    write_begin_ = room.data() - sizeof(RingEntry);
    read_begin_ = reader_.Next()->bytes.data() - sizeof(RingEntry);
  }

  void Step() {
    switch (in_.Below(10)) {
      case 0:
      case 1:
      case 2:
        return Write();
      case 3:
      case 4:
        return Read();
      case 5:
        return reader_.Release();
      case 6:
        return Check(writer_.Unread());
      case 7:
        return FinishOne();
      case 8:
        return Peek();
      default:
        return Lie();
    }
  }

 private:
  static constexpr std::array kForms{WireForm::kDatagrams, WireForm::kTrains,
                                     WireForm::kPermitOffers};

  void Write() {
    std::array<size_t, 4> bytes;
    for (size_t& each : bytes) each = in_.OneIn(4) ? in_.Edge32() : in_.U8();
    std::array<std::span<std::byte>, 4> rooms;
    const size_t count =
        writer_.AllocateRun({}, in_.U8(), kForms[in_.U8() % kForms.size()], bytes, rooms);
    for (size_t i = 0; i < count; i++) {
      REQUIRE(rooms[i].size() == bytes[i]);
      REQUIRE(IsInside(rooms[i], write_begin_));
      std::ranges::fill(rooms[i], std::byte{1});
    }
    if (in_.OneIn(8)) return;
    if (count > 0 && in_.OneIn(4)) return WriteUnfilled(rooms[count - 1]);
    writer_.Commit();
    if (!in_.OneIn(8)) writer_.Publish();
  }
  void WriteUnfilled(std::span<std::byte> room) {
    unfilled_.push_back(writer_.CommitUnfilled());
    if (room.size() >= sizeof(StoredReference) && in_.OneIn(2)) {
      writer_.Refer(unfilled_.back(), room, {in_.U32(), 0, in_.U32(), in_.U32(), in_.U32()});
    }
    writer_.Publish();
  }
  // Examines forms ahead, as long as there are any.
  void Peek() {
    uint64_t position = reader_.position();
    while (const auto form = reader_.PeekReferring(position)) {
      REQUIRE(form->form == WireForm::kTrains);
      REQUIRE(IsInside(form->bytes, read_begin_));
      (void)transport::FormHeadBytes(form->bytes);
      (void)reader_.IsPlaced(form->position);
    }
  }
  void FinishOne() {
    if (unfilled_.empty()) return;
    writer_.Finish(unfilled_.front(), in_.OneIn(2));
    unfilled_.pop_front();
  }
  void Read() {
    const auto datagram = reader_.Next();
    if (!datagram) return;
    REQUIRE(!reader_.broken());
    REQUIRE(IsInside(datagram->bytes, read_begin_));
    const auto offer = transport::PermitOffer::Parse(datagram->bytes);
    if (offer) REQUIRE(offer->page.slot < JobPage::kLentPermits);
  }
  void Check(const std::vector<RingDatagram>& unread) {
    for (const RingDatagram& datagram : unread) REQUIRE(IsInside(datagram.bytes, write_begin_));
  }
  void Lie() {
    const uint64_t near = in_.OneIn(2) ? memory_->written.load() + in_.U8() * 64 : in_.U64();
    switch (in_.Below(4)) {
      case 3:
        if (unfilled_.empty()) return;
        *writer_.MarkOf(unfilled_.back()) = std::byte{in_.U8()};
        return;
      case 0:
        return memory_->written.store(near);
      case 1:
        return memory_->released.store(near);
      default:
        const uint32_t entry = in_.Edge32();
        const uint64_t at = uint64_t{in_.U16()} * kRingAlignment % kRingBytes;
        std::memcpy(memory_.At(at, sizeof entry).data(), &entry, sizeof entry);
    }
  }
  template <class Byte>
  static bool IsInside(std::span<Byte> bytes, const std::byte* begin) {
    return bytes.data() >= begin && bytes.data() + bytes.size() <= begin + kRingBytes;
  }

  Input& in_;
  RingWriter writer_ = RingWriter::Create();
  RingReader reader_ = RingReader::Open(writer_.fd());
  RingMapping memory_ = RingMapping::Map(writer_.fd());
  std::deque<uint64_t> unfilled_;  // positions
  const std::byte *write_begin_ = nullptr, *read_begin_ = nullptr;
};

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  rdmaemu::fuzz::Input in(data, size);
  rdmaemu::fuzz::Scene scene(in);
  for (size_t i = 0; i < rdmaemu::fuzz::kMaxSteps && !in.empty(); i++) scene.Step();
  return 0;
}
