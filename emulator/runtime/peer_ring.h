// A ring in shared memory: from one host to one port of another host of the same user on the same
// machine. One process writes and one process reads. The ring replaces the socket between the two
// hosts. Its entries are UDP payloads, or forms of trains (transport/train_form.h), which replace
// the payloads of several packets.
//
// Any process of the same user can write the memory. Both sides therefore check every number that
// they read from it. After an impossible number, the reader ends the ring, and the writer gets no
// room.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "emulator/base/unfilled_form.h"
#include "emulator/host/host.h"
#include "emulator/runtime/unique_fd.h"
#include "emulator/transport/copy_jobs.h"
#include "emulator/transport/permit_offer.h"
#include "emulator/transport/train_form.h"
#include "emulator/wire/icrc.h"

namespace rdmaemu::runtime {

// The beginning of the shared memory. Positions count bytes since the ring's creation, and are
// multiples of kRingAlignment.
struct RingHeader {
  uint64_t magic;
  uint64_t data_bytes;                         // kRingBytes
  alignas(64) std::atomic<uint64_t> written;   // by the writer
  alignas(64) std::atomic<uint64_t> released;  // by the reader: the writer may reuse the bytes
  alignas(64) std::atomic<uint32_t> is_ended;  // the writer writes no more
  // The processor of the writer's program that polls, counted from 1. 0: none, or several programs.
  std::atomic<uint32_t> poller;
};

// Precedes each datagram or form. `bytes` is kRingSkip where the rest of the memory is too short
// for the next entry.
struct RingEntry {
  uint32_t bytes;
  uint16_t source_port;
  uint8_t traffic_class;
  uint8_t form;  // WireForm, or one of those below
  uint8_t source[16];
};

// A form whose payload is missing. The reader waits, and the writer then changes the byte.
inline constexpr uint8_t kEntryUnfilled = 0xfe;
// The same, and the payload's place has a StoredReference.
inline constexpr uint8_t kEntryReferring = 0xfd;
// A lost form. The reader skips it.
inline constexpr uint8_t kEntryLost = 0xff;

inline constexpr size_t kRingBytes = size_t{4} << 20;
inline constexpr size_t kRingDataOffset = 4096;
inline constexpr size_t kRingAlignment = 64;
inline constexpr uint32_t kRingSkip = UINT32_MAX;
// The smallest payload that may go to a program of another host. Two copies of fewer bytes cost
// less than naming the destination and writing the mark (measured: equal at 32 KiB).
inline constexpr size_t kMinDirectBytes = 65536;
// The largest UDP payload.
inline constexpr size_t kMaxRingDatagram = 65507;
static_assert(transport::kMaxFormBytes < kRingBytes / 4);
// Returns the largest entry of a form in bytes.
constexpr size_t MaxEntryBytes(WireForm form) {
  if (form == WireForm::kPermitOffers) return sizeof(transport::PermitOffer);
  return form == WireForm::kDatagrams ? kMaxRingDatagram : transport::kMaxFormBytes;
}

// A JobReference in an entry. `check` shows that the writer has not replaced it by payload.
struct StoredReference {
  JobReference job;
  uint64_t check;

  static uint64_t CheckOf(const JobReference& job);
};
static_assert(sizeof(StoredReference) <= transport::kMinJobBytes);

// A mapped ring. The memory is sealed against shrinking, so that an access cannot fault.
class RingMapping {
 public:
  RingMapping() = default;
  // Maps the memory of the descriptor. Empty if the descriptor is no ring.
  static RingMapping Map(int fd);
  RingMapping(RingMapping&& other) noexcept : header_(std::exchange(other.header_, nullptr)) {}
  RingMapping& operator=(RingMapping&& other) noexcept {
    std::swap(header_, other.header_);
    return *this;
  }
  ~RingMapping();
  explicit operator bool() const { return header_ != nullptr; }
  RingHeader* operator->() const { return header_; }
  // Returns the bytes at a position. They do not wrap: `position` must leave room for `bytes`
  // before the end of the memory.
  std::span<std::byte> At(uint64_t position, size_t bytes) const {
    return {reinterpret_cast<std::byte*>(header_) + kRingDataOffset + position % kRingBytes, bytes};
  }

 private:
  friend class RingWriter;
  RingHeader* header_ = nullptr;
};

// A datagram or the form of a train in a ring, as both sides read it.
struct RingDatagram {
  wire::UdpFlow flow;  // without the destination
  uint8_t traffic_class = 0;
  WireForm form = WireForm::kDatagrams;
  std::span<const std::byte> bytes;
  uint64_t position = 0;
};

class RingWriter {
 public:
  // Creates a ring. Returns an empty writer if the system refuses the memory.
  static RingWriter Create();
  RingWriter() = default;
  RingWriter(RingWriter&&) = default;
  RingWriter& operator=(RingWriter&&) = default;
  ~RingWriter();
  explicit operator bool() const { return bool{memory_}; }
  int fd() const { return fd_.get(); }

  // Allocates rooms for consecutive datagrams or forms of one flow. Returns how many got one. An
  // allocation without a Commit is discarded.
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                     std::span<const size_t> bytes, std::span<std::span<std::byte>> rooms);
  // Does the same for one. Returns an empty room if there is none.
  std::span<std::byte> AllocateOne(const wire::UdpFlow& flow, uint8_t traffic_class, WireForm form,
                                   size_t bytes) {
    allocated_ = written_;
    return Allocate(flow, traffic_class, form, bytes).value_or(std::span<std::byte>());
  }
  // Writes what was allocated. Publish shows it to the reader. Each Publish costs a transfer of a
  // cache line to the reader's processor, so several datagrams share one.
  void Commit();
  void Publish();
  // Returns the bytes that the reader cannot see yet.
  uint64_t unpublished() const { return written_ - published_; }
  // Commits one allocated form whose payload is missing. Returns the position of the form's entry,
  // for Finish.
  uint64_t CommitUnfilled();
  // Returns the byte that a program sets to kTrains behind the payload. The reader then no longer
  // waits. nullptr where a processor may show the two stores in another order.
  std::byte* MarkOf(uint64_t position) const;
  // Puts the reference into the payload of the unfilled form at `position`.
  void Refer(uint64_t position, std::span<std::byte> payload, const JobReference& job);
  bool IsFilled(uint64_t position) const;
  // Ends the reader's wait: the form is filled, or lost. The entry's bytes stay as they are until
  // Finish, even if the reader has released them.
  void Finish(uint64_t position, bool filled);
  // Returns true if Finish was called since the last call.
  bool TakeFinished() { return std::exchange(has_finished_, false); }
  // Tells the reader where this host's program polls (RingHeader::poller).
  void ShowPoller(uint32_t processor) {
    std::atomic<uint32_t>& shown = memory_->poller;
    if (shown.load(std::memory_order_relaxed) == processor) return;
    shown.store(processor, std::memory_order_relaxed);
  }
  // Publishes, and tells the reader that no further datagram comes.
  void End();
  // The ring's memory must not be used for further datagrams.
  void Retire() { is_retired_ = true; }
  bool is_retired() const { return is_retired_; }
  // Returns true if the reader has released all datagrams.
  bool empty() const { return released() == written_; }
  // Returns the position up to which the reader has released the bytes.
  uint64_t released() const { return memory_->released.load(std::memory_order_acquire); }
  // Returns the datagrams that the reader has not released, but not unfilled forms. The spans are
  // in the ring.
  std::vector<RingDatagram> Unread() const;

 private:
  std::optional<std::span<std::byte>> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                               WireForm form, size_t bytes);
  // Returns the position up to which the bytes may be reused.
  uint64_t reusable() const;

  UniqueFd fd_;
  RingMapping memory_;
  uint64_t published_ = 0;
  uint64_t written_ = 0;              // published_ or above
  uint64_t allocated_ = 0;            // written_ or above
  uint64_t last_entry_ = 0;           // the position of the entry that was allocated last
  std::vector<uint64_t> unfinished_;  // positions of the forms without a Finish, in order
  bool has_finished_ = false;
  bool is_retired_ = false;
};

class RingReader {
 public:
  // Empty if the descriptor is no ring.
  static RingReader Open(int fd);
  RingReader() = default;
  explicit operator bool() const { return bool{memory_}; }

  // Returns true if Next would return a datagram, or if the ring is broken. False before an
  // unfilled form.
  bool has_unread() const { return HasWritten() && !IsUnfilled(); }
  // Returns true before an unfilled form. A mark makes no call to this host.
  bool awaits_payload() const { return HasWritten() && IsUnfilled(); }
  // Returns the next datagram, which is valid until Release. Returns nothing when there is none,
  // or when the ring is broken.
  std::optional<RingDatagram> Next();
  // Returns the unfilled form at `position`, which has a reference, and moves `position` behind it.
  // Returns nothing if another entry is there, or none. `position` is position(), or was set by
  // this function.
  std::optional<RingDatagram> PeekReferring(uint64_t& position) const;
  // Returns the position of the next entry.
  uint64_t position() const { return read_; }
  // Returns true if the form at `position` has its payload at the place that its reader named.
  bool IsPlaced(uint64_t position) const;
  // Gives the bytes of all returned datagrams back to the writer.
  void Release() { memory_->released.store(read_, std::memory_order_release); }
  // Returns what the writer has shown by ShowPoller. Any number is possible.
  uint32_t poller() const { return memory_->poller.load(std::memory_order_relaxed); }
  // Returns true when the writer's numbers were impossible. Nothing more is read then.
  bool broken() const { return broken_; }
  // Returns true when no further datagram comes.
  bool ended() const {
    return broken_ || (memory_->is_ended.load(std::memory_order_acquire) != 0 && !HasWritten());
  }

 private:
  bool HasWritten() const { return memory_->written.load(std::memory_order_acquire) != read_; }
  bool IsUnfilled() const;

  RingMapping memory_;
  uint64_t read_ = 0;
  bool broken_ = false;
};

}  // namespace rdmaemu::runtime
