#include "emulator/runtime/peer_ring.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <deque>
#include <random>
#include <vector>

namespace rdmaemu::runtime {
namespace {

const wire::UdpFlow kFlow{NetAddress::Ipv4(0x0a000001), NetAddress::Ipv4(0x0a000002), 1234, 4791};

// Writes a datagram of `bytes` bytes with this value. Returns false if there is no room.
bool Write(RingWriter& writer, size_t bytes, int value) {
  std::span<std::byte> room;
  if (writer.AllocateRun(kFlow, 7, WireForm::kDatagrams, {&bytes, 1}, {&room, 1}) == 0)
    return false;
  std::memset(room.data(), value, room.size());
  writer.Commit();
  writer.Publish();
  return true;
}

struct Pair {
  RingWriter writer = RingWriter::Create();
  RingReader reader = RingReader::Open(writer.fd());

  // The writer's memory, as any process of the user may change it.
  RingMapping memory = RingMapping::Map(writer.fd());

  void SetEntry(uint32_t bytes) {
    std::memcpy(memory.At(0, sizeof bytes).data(), &bytes, sizeof bytes);
  }
};

TEST(PeerRingTest, ADatagramHasItsBytesFlowAndClass) {
  Pair pair;
  ASSERT_TRUE(Write(pair.writer, 5, 9));
  ASSERT_TRUE(pair.reader.has_unread());
  const auto datagram = pair.reader.Next();
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->bytes.size(), 5u);
  EXPECT_EQ(datagram->bytes[4], std::byte{9});
  EXPECT_EQ(datagram->flow.source, kFlow.source);
  EXPECT_EQ(datagram->flow.source_port, 1234);
  EXPECT_EQ(datagram->traffic_class, 7);
  EXPECT_FALSE(pair.reader.Next());
  EXPECT_FALSE(pair.reader.broken());
  EXPECT_FALSE(pair.writer.empty());
  pair.reader.Release();
  EXPECT_TRUE(pair.writer.empty());
}

TEST(PeerRingTest, AnAllocationWithoutACommitIsDiscarded) {
  Pair pair;
  const size_t bytes = 100;
  std::span<std::byte> room;
  EXPECT_EQ(pair.writer.AllocateRun(kFlow, 0, WireForm::kDatagrams, {&bytes, 1}, {&room, 1}), 1u);
  EXPECT_FALSE(pair.reader.has_unread());
  ASSERT_TRUE(Write(pair.writer, 3, 1));
  EXPECT_EQ(pair.reader.Next()->bytes.size(), 3u);
}

TEST(PeerRingTest, ARunGetsTheRoomThatThereIs) {
  Pair pair;
  const std::vector<size_t> bytes(2 * kRingBytes / kMaxRingDatagram, kMaxRingDatagram);
  std::vector<std::span<std::byte>> rooms(bytes.size());
  const size_t entry_bytes =
      (sizeof(RingEntry) + kMaxRingDatagram + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
  const size_t fitting = kRingBytes / entry_bytes;
  EXPECT_EQ(pair.writer.AllocateRun(kFlow, 0, WireForm::kDatagrams, bytes, rooms), fitting);
  pair.writer.Commit();
  pair.writer.Publish();
  EXPECT_EQ(pair.writer.AllocateRun(kFlow, 0, WireForm::kDatagrams, bytes, rooms), 0u);
  for (size_t i = 0; i < fitting; i++) ASSERT_TRUE(pair.reader.Next());
  pair.reader.Release();
  EXPECT_GT(pair.writer.AllocateRun(kFlow, 0, WireForm::kDatagrams, bytes, rooms), 0u);
}

TEST(PeerRingTest, DatagramsOfEverySizeKeepTheirOrderAroundTheEnd) {
  Pair pair;
  std::mt19937 random(1);
  std::deque<size_t> sizes;
  for (int i = 0; i < 20000; i++) {
    const size_t bytes = i % 7 == 0 ? kMaxRingDatagram - random() % 5 : 1 + random() % 300;
    while (!Write(pair.writer, bytes, static_cast<int>(bytes & 0x7f))) {
      const auto datagram = pair.reader.Next();
      ASSERT_TRUE(datagram) << "a full ring has datagrams";
      ASSERT_EQ(datagram->bytes.size(), sizes.front());
      ASSERT_EQ(datagram->bytes.back(), std::byte(sizes.front() & 0x7f));
      sizes.pop_front();
      pair.reader.Release();
    }
    sizes.push_back(bytes);
  }
  while (const auto datagram = pair.reader.Next()) {
    ASSERT_EQ(datagram->bytes.size(), sizes.front());
    sizes.pop_front();
  }
  EXPECT_TRUE(sizes.empty());
  EXPECT_FALSE(pair.reader.broken());
}

TEST(PeerRingTest, NoDatagramIsEmptyOrLargerThanUdpAllows) {
  Pair pair;
  EXPECT_FALSE(Write(pair.writer, 0, 0));
  EXPECT_FALSE(Write(pair.writer, kMaxRingDatagram + 1, 0));
  EXPECT_TRUE(Write(pair.writer, kMaxRingDatagram, 0));
}

TEST(PeerRingTest, TheReaderSeesCommittedDatagramsWhenTheyArePublished) {
  Pair pair;
  const size_t bytes = 10;
  std::span<std::byte> room;
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(pair.writer.AllocateRun(kFlow, 0, WireForm::kDatagrams, {&bytes, 1}, {&room, 1}), 1u);
    pair.writer.Commit();
  }
  EXPECT_FALSE(pair.reader.has_unread());
  EXPECT_FALSE(pair.writer.empty());
  EXPECT_EQ(pair.writer.Unread().size(), 2u);
  EXPECT_GE(pair.writer.unpublished(), 2 * bytes);
  pair.writer.Publish();
  EXPECT_EQ(pair.writer.unpublished(), 0u);
  EXPECT_TRUE(pair.reader.Next());
  EXPECT_TRUE(pair.reader.Next());
  EXPECT_FALSE(pair.reader.Next());
}

TEST(PeerRingTest, AnEndingWriterPublishesItsDatagrams) {
  std::optional<RingWriter> writer(RingWriter::Create());
  RingReader reader = RingReader::Open(writer->fd());
  const size_t bytes = 10;
  std::span<std::byte> room;
  ASSERT_EQ(writer->AllocateRun(kFlow, 0, WireForm::kDatagrams, {&bytes, 1}, {&room, 1}), 1u);
  writer->Commit();
  writer.reset();
  EXPECT_FALSE(reader.ended());
  EXPECT_TRUE(reader.Next());
  EXPECT_TRUE(reader.ended());
}

// Writes a form without a payload. Returns its position.
uint64_t WriteUnfilled(RingWriter& writer, size_t bytes) {
  std::span<std::byte> room;
  EXPECT_EQ(writer.AllocateRun(kFlow, 0, WireForm::kTrains, {&bytes, 1}, {&room, 1}), 1u);
  const uint64_t position = writer.CommitUnfilled();
  writer.Publish();
  return position;
}

TEST(PeerRingTest, AFormKeepsItsKind) {
  Pair pair;
  const size_t bytes = transport::kMaxFormBytes;
  std::span<std::byte> room;
  ASSERT_EQ(pair.writer.AllocateRun(kFlow, 0, WireForm::kTrains, {&bytes, 1}, {&room, 1}), 1u);
  pair.writer.Commit();
  ASSERT_TRUE(Write(pair.writer, 3, 1));
  const auto form = pair.reader.Next();
  ASSERT_TRUE(form);
  EXPECT_EQ(form->form, WireForm::kTrains);
  EXPECT_EQ(form->bytes.size(), bytes);
  EXPECT_EQ(pair.reader.Next()->form, WireForm::kDatagrams);
  const size_t too_many = bytes + 1;
  EXPECT_EQ(pair.writer.AllocateRun(kFlow, 0, WireForm::kTrains, {&too_many, 1}, {&room, 1}), 0u);
}

TEST(PeerRingTest, TheReaderWaitsAtAnUnfilledForm) {
  Pair pair;
  ASSERT_TRUE(Write(pair.writer, 3, 1));
  const uint64_t position = WriteUnfilled(pair.writer, 5000);
  ASSERT_TRUE(Write(pair.writer, 4, 2));
  EXPECT_EQ(pair.reader.Next()->bytes.size(), 3u);
  EXPECT_FALSE(pair.reader.has_unread()) << "a host with nothing else to do may sleep";
  EXPECT_FALSE(pair.reader.Next());
  EXPECT_FALSE(pair.reader.broken());
  pair.writer.Finish(position, /*filled=*/true);
  EXPECT_TRUE(pair.writer.TakeFinished());
  EXPECT_FALSE(pair.writer.TakeFinished());
  EXPECT_TRUE(pair.reader.has_unread());
  EXPECT_EQ(pair.reader.Next()->bytes.size(), 5000u);
  EXPECT_EQ(pair.reader.Next()->bytes.size(), 4u);
}

#if defined(__x86_64__)
TEST(PeerRingTest, AMarkShowsAFormToTheReader) {
  Pair pair;
  const uint64_t position = WriteUnfilled(pair.writer, 5000);
  EXPECT_FALSE(pair.writer.IsFilled(position));
  *pair.writer.MarkOf(position) = std::byte{static_cast<uint8_t>(WireForm::kTrains)};
  EXPECT_TRUE(pair.writer.IsFilled(position));
  EXPECT_TRUE(pair.reader.has_unread());
  EXPECT_EQ(pair.reader.Next()->bytes.size(), 5000u);
}
#endif

TEST(PeerRingTest, BytesOfAFormAreNotReusedBeforeItsFinish) {
  Pair pair;
  const uint64_t position = WriteUnfilled(pair.writer, 5000);
  pair.writer.Finish(WriteUnfilled(pair.writer, 5000), /*filled=*/false);
  // The reader lies, or has read a marked form.
  pair.memory->released.store(pair.memory->written.load());
  size_t written = 0;
  while (Write(pair.writer, 1000, 1)) written += 1000;
  EXPECT_LT(written, kRingBytes - 10000);
  pair.writer.Finish(position, /*filled=*/false);
  EXPECT_TRUE(Write(pair.writer, 5000, 1));
}

TEST(PeerRingTest, TheReaderSkipsALostForm) {
  Pair pair;
  pair.writer.Finish(WriteUnfilled(pair.writer, 5000), /*filled=*/false);
  ASSERT_TRUE(Write(pair.writer, 4, 2));
  EXPECT_EQ(pair.reader.Next()->bytes.size(), 4u);
  pair.reader.Release();
  EXPECT_TRUE(pair.writer.empty());
}

TEST(PeerRingTest, ARingWithAnUnfilledFormHasNotEnded) {
  std::optional<RingWriter> writer(RingWriter::Create());
  RingReader reader = RingReader::Open(writer->fd());
  WriteUnfilled(*writer, 5000);
  writer.reset();
  EXPECT_FALSE(reader.ended());
}

TEST(PeerRingTest, UnreadDatagramsBehindAnUnfilledFormAreNotLost) {
  Pair pair;
  WriteUnfilled(pair.writer, 5000);
  ASSERT_TRUE(Write(pair.writer, 4, 2));
  const auto unread = pair.writer.Unread();
  ASSERT_EQ(unread.size(), 1u);
  EXPECT_EQ(unread[0].bytes.size(), 4u);
}

TEST(PeerRingTest, TheWriterSeesWhatTheReaderHasNotRead) {
  Pair pair;
  for (int i = 0; i < 3; i++) ASSERT_TRUE(Write(pair.writer, 10, i));
  ASSERT_TRUE(pair.reader.Next());
  pair.reader.Release();
  const std::vector<RingDatagram> unread = pair.writer.Unread();
  ASSERT_EQ(unread.size(), 2u);
  EXPECT_EQ(unread[0].bytes[0], std::byte{1});
  EXPECT_EQ(unread[1].bytes[0], std::byte{2});
}

TEST(PeerRingTest, AnEndedRingEndsAfterItsLastDatagram) {
  Pair pair;
  ASSERT_TRUE(Write(pair.writer, 10, 0));
  pair.writer = RingWriter();
  EXPECT_FALSE(pair.reader.ended());
  EXPECT_TRUE(pair.reader.Next());
  EXPECT_TRUE(pair.reader.ended());
}

// ---- hostile memory

TEST(PeerRingTest, ADatagramBeyondTheWrittenBytesBreaksTheRing) {
  for (const uint32_t bytes : {uint32_t{200}, uint32_t{kMaxRingDatagram}, uint32_t{65508},
                               uint32_t{0x7fffffff}, kRingSkip - 1, kRingSkip}) {
    Pair pair;
    ASSERT_TRUE(Write(pair.writer, 10, 0));
    pair.SetEntry(bytes);
    EXPECT_FALSE(pair.reader.Next()) << bytes;
    EXPECT_TRUE(pair.reader.broken()) << bytes;
    EXPECT_TRUE(pair.reader.ended()) << bytes;
  }
}

TEST(PeerRingTest, AnImpossiblePositionBreaksTheRing) {
  for (const uint64_t written : {uint64_t{1}, uint64_t{63}, uint64_t{65}, kRingBytes + 64,
                                 uint64_t{0} - 64, uint64_t{1} << 63}) {
    Pair pair;
    pair.memory->written.store(written);
    EXPECT_FALSE(pair.reader.Next()) << written;
    EXPECT_TRUE(pair.reader.broken()) << written;
  }
}

TEST(PeerRingTest, AWriterWhoseReaderLiesHasNoRoomAndSeesNoUnreadDatagrams) {
  Pair pair;
  ASSERT_TRUE(Write(pair.writer, 10, 0));
  for (const uint64_t released : {uint64_t{1} << 40, uint64_t{7}, uint64_t{0} - 1}) {
    pair.memory->released.store(released);
    (void)Write(pair.writer, 10, 0);
    EXPECT_LE(pair.writer.Unread().size(), 1u) << released;
  }
}

// Any bytes in the shared memory end in a datagram inside the memory, or in a broken ring.
TEST(PeerRingTest, RandomMemoryNeverLeavesTheRing) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; i++) {
    Pair pair;
    ASSERT_TRUE(Write(pair.writer, 1, 0));
    const std::byte* const begin = pair.reader.Next()->bytes.data() - sizeof(RingEntry);
    for (size_t at = 64; at < 4096; at += 64) {
      const uint32_t bytes = static_cast<uint32_t>(random() % 8 == 0 ? random() : random() % 400);
      std::memcpy(pair.memory.At(at, sizeof bytes).data(), &bytes, sizeof bytes);
    }
    pair.memory->written.store(random() % 8 == 0 ? random() : random() % 65 * 64);
    while (const auto datagram = pair.reader.Next()) {
      ASSERT_GE(datagram->bytes.data(), begin);
      ASSERT_LE(datagram->bytes.data() + datagram->bytes.size(), begin + kRingBytes);
    }
  }
}

TEST(PeerRingTest, OtherDescriptorsAreNoRings) {
  UniqueFd unsealed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kRingDataOffset + kRingBytes), 0);
  EXPECT_FALSE(RingReader::Open(unsealed.get()));
  EXPECT_FALSE(RingReader::Open(0));
  EXPECT_FALSE(RingReader::Open(-1));
}

}  // namespace
}  // namespace rdmaemu::runtime
