#include "emulator/runtime/peer_ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include "emulator/abi/prefetch.h"

namespace rdmaemu::runtime {
namespace {

constexpr uint64_t kRingMagic = 0x72646d6165726e68;
constexpr size_t kMappedBytes = kRingDataOffset + kRingBytes;
// How much of the memory for the next datagram the writer prepares: a small datagram.
constexpr size_t kPreparedBytes = 4 * kRingAlignment;
constexpr int kRingSeals = F_SEAL_SHRINK | F_SEAL_GROW;

static_assert(sizeof(RingHeader) <= kRingDataOffset && sizeof(RingEntry) <= kRingAlignment);
static_assert(kRingBytes % kRingAlignment == 0);

size_t EntryBytes(size_t datagram_bytes) {
  return (sizeof(RingEntry) + datagram_bytes + kRingAlignment - 1) / kRingAlignment *
         kRingAlignment;
}

size_t BytesToEnd(uint64_t position) { return kRingBytes - position % kRingBytes; }

std::atomic_ref<uint8_t> FormOf(const RingMapping& memory, uint64_t position) {
  std::byte* const entry = memory.At(position, sizeof(RingEntry)).data();
  return std::atomic_ref(reinterpret_cast<RingEntry*>(entry)->form);
}

bool IsMissingPayload(uint8_t state) { return state == kEntryUnfilled || state == kEntryReferring; }

// kReturn returns a form that has a reference, and nothing else.
enum class AtUnfilled { kStop, kSkip, kReturn };

// Reads the entry at `position`, and moves `position` behind the entry. `end` is the position of
// the first unwritten byte. Returns nothing when there is no entry. Sets `broken` for impossible
// numbers.
std::optional<RingDatagram> ReadEntry(const RingMapping& memory, uint64_t& position, uint64_t end,
                                      AtUnfilled at_unfilled, bool& broken) {
  while (position != end) {
    const uint64_t left = end - position;
    if (left > kRingBytes || left < kRingAlignment || left % kRingAlignment != 0) break;
    // The writer may change its own copy at any time. Its payload is there when the form is.
    const uint8_t state = FormOf(memory, position).load(std::memory_order_acquire);
    RingEntry entry;
    std::memcpy(&entry, memory.At(position, sizeof entry).data(), sizeof entry);
    if (entry.bytes == kRingSkip) {
      const size_t skipped = BytesToEnd(position);
      if (skipped > left) break;
      position += skipped;
      continue;
    }
    if (IsMissingPayload(state) && at_unfilled == AtUnfilled::kStop) return std::nullopt;
    if (at_unfilled == AtUnfilled::kReturn && state != kEntryReferring) return std::nullopt;
    const bool is_form = IsMissingPayload(state) || state == kEntryLost;
    const bool is_placed = state == static_cast<uint8_t>(WireForm::kPlacedTrains);
    const bool is_skipped = (is_form && at_unfilled != AtUnfilled::kReturn) ||
                            (is_placed && at_unfilled == AtUnfilled::kSkip);
    if (!is_form && state > static_cast<uint8_t>(WireForm::kPermitOffers)) break;
    const WireForm form = is_form || is_placed ? WireForm::kTrains : WireForm{state};
    if (entry.bytes > MaxEntryBytes(form)) break;
    const size_t bytes = EntryBytes(entry.bytes);
    if (bytes > left || bytes > BytesToEnd(position)) break;
    if (is_skipped) {
      position += bytes;
      continue;
    }
    RingDatagram datagram;
    std::copy(std::begin(entry.source), std::end(entry.source), datagram.flow.source.bytes.begin());
    datagram.flow.source_port = entry.source_port;
    datagram.traffic_class = entry.traffic_class;
    datagram.form = is_placed ? WireForm::kPlacedTrains : form;
    datagram.bytes = memory.At(position, bytes).subspan(sizeof entry, entry.bytes);
    datagram.position = position;
    position += bytes;
    return datagram;
  }
  broken = position != end;
  return std::nullopt;
}

}  // namespace

RingMapping RingMapping::Map(int fd) {
  RingMapping mapping;
  struct stat status;
  if (fstat(fd, &status) != 0 || status.st_size != static_cast<off_t>(kMappedBytes) ||
      (fcntl(fd, F_GET_SEALS) & kRingSeals) != kRingSeals) {
    return mapping;
  }
  void* const memory = mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory != MAP_FAILED) mapping.header_ = static_cast<RingHeader*>(memory);
  return mapping;
}

RingMapping::~RingMapping() {
  if (header_ != nullptr) munmap(header_, kMappedBytes);
}

RingWriter RingWriter::Create() {
  RingWriter writer;
  UniqueFd fd(memfd_create("rdmaemu-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), kMappedBytes) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kRingSeals) != 0) {
    return writer;
  }
  writer.memory_ = RingMapping::Map(fd.get());
  if (!writer.memory_) return writer;
  writer.fd_ = std::move(fd);
  writer.memory_->magic = kRingMagic;
  writer.memory_->data_bytes = kRingBytes;
  return writer;
}

RingWriter::~RingWriter() { End(); }

void RingWriter::End() {
  if (!memory_) return;
  Publish();
  memory_->is_ended.store(1, std::memory_order_release);
}

size_t RingWriter::AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                               std::span<const size_t> bytes,
                               std::span<std::span<std::byte>> rooms) {
  allocated_ = written_;
  for (size_t i = 0; i < bytes.size(); i++) {
    const auto room = Allocate(flow, traffic_class, form, bytes[i]);
    if (!room) return i;
    rooms[i] = *room;
  }
  return bytes.size();
}

std::optional<std::span<std::byte>> RingWriter::Allocate(const wire::UdpFlow& flow,
                                                         uint8_t traffic_class, WireForm form,
                                                         size_t bytes) {
  if (bytes == 0 || bytes > MaxEntryBytes(form)) return std::nullopt;
  const size_t needed = EntryBytes(bytes);
  const size_t to_end = BytesToEnd(allocated_);
  const size_t skipped = to_end < needed ? to_end : 0;
  // A wrong number of the reader gives less room, or bytes that the reader has not read.
  const uint64_t used = allocated_ - reusable();
  if (used > kRingBytes || kRingBytes - used < skipped + needed) return std::nullopt;
  RingEntry entry{kRingSkip, 0, 0, 0, {}};
  if (skipped > 0) {
    std::memcpy(memory_.At(allocated_, sizeof entry).data(), &entry, sizeof entry);
    allocated_ += skipped;
  }
  entry.bytes = static_cast<uint32_t>(bytes);
  entry.source_port = flow.source_port;
  entry.traffic_class = traffic_class;
  entry.form = static_cast<uint8_t>(form);
  std::copy(flow.source.bytes.begin(), flow.source.bytes.end(), entry.source);
  const std::span<std::byte> room = memory_.At(allocated_, needed);
  last_entry_ = allocated_;
  std::memcpy(room.data(), &entry, sizeof entry);
  allocated_ += needed;
  const size_t ahead = std::min(needed, BytesToEnd(allocated_));
  const std::byte* const next = memory_.At(allocated_, ahead).data();
  for (size_t at = 0; at < std::min(ahead, kPreparedBytes); at += kRingAlignment) {
    PrefetchToWrite(next + at);
  }
  return room.subspan(sizeof entry, bytes);
}

void RingWriter::Commit() { written_ = allocated_; }

void RingWriter::Publish() {
  if (written_ == published_) return;
  published_ = written_;
  memory_->written.store(written_, std::memory_order_release);
}

uint64_t RingWriter::CommitUnfilled() {
  FormOf(memory_, last_entry_).store(kEntryUnfilled, std::memory_order_relaxed);
  Commit();
  unfinished_.push_back(last_entry_);
  return last_entry_;
}

// x86 shows the stores of one processor in their order. String instructions may reorder their own
// stores, but not those of the next instruction (Intel SDM, volume 3, 9.2.4).
std::byte* RingWriter::MarkOf(uint64_t position) const {
#if defined(__x86_64__)
  std::byte* const entry = memory_.At(position, sizeof(RingEntry)).data();
  return entry + offsetof(RingEntry, form);
#else
  return nullptr;
#endif
}

bool RingWriter::IsFilled(uint64_t position) const {
  const uint8_t state = FormOf(memory_, position).load(std::memory_order_acquire);
  return state == static_cast<uint8_t>(WireForm::kTrains) ||
         state == static_cast<uint8_t>(WireForm::kPlacedTrains);
}

uint64_t StoredReference::CheckOf(const JobReference& job) {
  const uint64_t low = uint64_t{job.segment} << 32 | static_cast<uint32_t>(job.fd);
  const uint64_t high = uint64_t{job.offset} << 32 | job.number;
  return kRingMagic ^ low ^ std::rotl(high, 17) ^ std::rotl(uint64_t{job.slot}, 41);
}

void RingWriter::Refer(uint64_t position, std::span<std::byte> payload, const JobReference& job) {
  const StoredReference stored{job, StoredReference::CheckOf(job)};
  std::memcpy(payload.data(), &stored, sizeof stored);
  FormOf(memory_, position).store(kEntryReferring, std::memory_order_release);
}

void RingWriter::Finish(uint64_t position, bool filled) {
  has_finished_ = true;
  std::erase(unfinished_, position);
  if (filled && IsFilled(position)) return;  // by its mark
  const uint8_t state = filled ? static_cast<uint8_t>(WireForm::kTrains) : kEntryLost;
  FormOf(memory_, position).store(state, std::memory_order_release);
}

uint64_t RingWriter::reusable() const {
  return unfinished_.empty() ? released() : std::min(released(), unfinished_.front());
}

std::vector<RingDatagram> RingWriter::Unread() const {
  std::vector<RingDatagram> unread;
  uint64_t position = released();
  bool broken = false;
  while (const auto next = ReadEntry(memory_, position, written_, AtUnfilled::kSkip, broken)) {
    unread.push_back(*next);
  }
  return unread;
}

RingReader RingReader::Open(int fd) {
  RingReader reader;
  RingMapping memory = RingMapping::Map(fd);
  if (memory && memory->magic == kRingMagic && memory->data_bytes == kRingBytes) {
    reader.memory_ = std::move(memory);
  }
  return reader;
}

bool RingReader::IsUnfilled() const {
  return IsMissingPayload(FormOf(memory_, read_).load(std::memory_order_acquire));
}

bool RingReader::IsPlaced(uint64_t position) const {
  return FormOf(memory_, position).load(std::memory_order_acquire) ==
         static_cast<uint8_t>(WireForm::kPlacedTrains);
}

std::optional<RingDatagram> RingReader::PeekReferring(uint64_t& position) const {
  bool broken = broken_;
  if (broken) return std::nullopt;
  return ReadEntry(memory_, position, memory_->written.load(std::memory_order_acquire),
                   AtUnfilled::kReturn, broken);
}

std::optional<RingDatagram> RingReader::Next() {
  if (broken_) return std::nullopt;
  return ReadEntry(memory_, read_, memory_->written.load(std::memory_order_acquire),
                   AtUnfilled::kStop, broken_);
}

}  // namespace rdmaemu::runtime
