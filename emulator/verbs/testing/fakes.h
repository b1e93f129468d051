// Fakes of a host's environment for tests, on the heap of this process. They are shared segments,
// counters that tests can read, memory of the test itself, and traces that keep or ignore records.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "emulator/base/memory.h"
#include "emulator/trace/trace.h"
#include "emulator/verbs/profile.h"

namespace rdmaemu::testing {

// Mappings like the runtime's. Untouched pages cost no memory. The pages before and behind a
// mapping are not mapped, so an access out of bounds is a fault.
class FakeSharedMemory final : public SharedMemory {
 public:
  Result<Segment> CreateSegment(size_t bytes) override {
    if (segments_.size() >= most_segments) return Fail(ENOMEM);
    const auto mapping = std::make_shared<Mapping>(bytes);
    if (mapping->bytes.data() == nullptr) return Fail(ENOMEM);
    const SegmentId id{++last_};
    segments_[id] = mapping;
    return Segment{id, mapping->bytes};
  }
  void DestroySegment(SegmentId segment) override {
    if (programs_keep_mappings) kept_.push_back(segments_[segment]);
    segments_.erase(segment);
  }
  void Discard(SegmentId segment, size_t offset, size_t length) override {
    std::memset(segments_.at(segment)->bytes.data() + offset, 0, length);
    discarded_bytes += length;
  }
  int Descriptor(SegmentId segment) const override {
    return has_descriptors ? static_cast<int>(segment) : -1;
  }
  // Acts as a mapping by another host: the bytes stay when the segment is destroyed. Returns
  // nullptr if there is no such segment.
  std::shared_ptr<std::byte> Map(SegmentId segment, size_t offset) const {
    const auto found = segments_.find(segment);
    if (found == segments_.end()) return nullptr;
    return {found->second, found->second->bytes.data() + offset};
  }
  // Acts as AdoptSegment with a descriptor of another host's segment. Map of that host's fake has
  // returned `memory`.
  Segment Adopt(std::shared_ptr<std::byte> memory, size_t bytes) {
    const SegmentId id{++last_};
    segments_[id] = std::make_shared<Mapping>(std::move(memory), bytes);
    return Segment{id, segments_[id]->bytes};
  }
  size_t live_segments() const { return segments_.size(); }
  std::span<std::byte> Bytes(SegmentId id) const { return segments_.at(id)->bytes; }
  // Every live segment, in the order of creation.
  std::vector<std::span<std::byte>> All() const {
    std::vector<std::span<std::byte>> all;
    for (const auto& [id, mapping] : segments_) all.push_back(mapping->bytes);
    return all;
  }

  size_t discarded_bytes = 0;       // by all calls of Discard
  size_t most_segments = SIZE_MAX;  // CreateSegment returns ENOMEM above this
  // A destroyed segment stays writable, as in a program that has it mapped.
  bool programs_keep_mappings = false;
  // Segments have descriptors: hosts of the same user can map them.
  bool has_descriptors = false;

 private:
  struct Mapping {
    explicit Mapping(size_t size) {
      void* const room = mmap(nullptr, size + 2 * kGuardBytes, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (room == MAP_FAILED) return;
      auto* const start = static_cast<std::byte*>(room) + kGuardBytes;
      mprotect(start, size, PROT_READ | PROT_WRITE);
      bytes = {start, size};
    }
    Mapping(std::shared_ptr<std::byte> other, size_t size)
        : bytes(other.get(), size), borrowed(std::move(other)) {}
    ~Mapping() {
      if (bytes.data() != nullptr && borrowed == nullptr) {
        munmap(bytes.data() - kGuardBytes, bytes.size() + 2 * kGuardBytes);
      }
    }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    static constexpr size_t kGuardBytes = 4096;
    std::span<std::byte> bytes;
    std::shared_ptr<std::byte> borrowed;  // another host's
  };
  std::map<SegmentId, std::shared_ptr<Mapping>> segments_;
  std::vector<std::shared_ptr<Mapping>> kept_;
  uint32_t last_ = 0;
};

class FakeCounters final : public EventCounters {
 public:
  Result<CounterId> Create() override {
    if (values_.size() >= most_counters) return Fail(EMFILE);
    const CounterId id{++last_};
    values_[id] = 0;
    return id;
  }
  void Destroy(CounterId counter) override { values_.erase(counter); }
  void Add(CounterId counter, uint32_t count) override { values_.at(counter) += count; }
  uint32_t Remove(CounterId counter, uint32_t count) override {
    uint64_t& value = values_.at(counter);
    const auto taken = static_cast<uint32_t>(std::min<uint64_t>(value, count));
    value -= taken;
    return taken;
  }
  int Descriptor(CounterId counter) const override { return static_cast<int>(counter); }
  // Acts as a program's read. Returns false when the read would block.
  bool Take(CounterId counter) { return Remove(counter, 1) == 1; }
  uint64_t value(CounterId counter) const { return values_.at(counter); }
  size_t live() const { return values_.size(); }
  bool Has(CounterId counter) const { return values_.contains(counter); }

  size_t most_counters = SIZE_MAX;

 private:
  std::map<CounterId, uint64_t> values_;
  uint32_t last_ = 0;
};

// The addresses of all processes are the test's own, except unreachable ranges and ended processes.
class FakeMemory final : public Memory {
 public:
  uint32_t PidFor(ProcessId, ProcessId owner) override { return pids[owner]; }
  uint32_t host_pid = 0;  // 0: threads of processes cannot reach the host
  uint32_t HostPidFor(ProcessId) override { return host_pid; }
  void LetOthersRun() override {
    moments_given++;
    if (meanwhile) meanwhile();
  }
  CopyState CopyStateOf(uint32_t thread) override {
    looked_at.push_back(thread);
    return threads;
  }
  bool IsStopped(ProcessId process) override { return stopped.contains(process); }
  std::set<ProcessId> stopped;
  void SayCopyIsLate(uint32_t) override { late_copies++; }
  int moments_given = 0;
  CopyState threads = CopyState::kMayCopy;  // those of the program that have taken a copy
  std::vector<uint32_t> looked_at;
  int late_copies = 0;
  std::function<void()> meanwhile;  // what other processes do
  std::function<void()> before_write;
  std::map<ProcessId, uint32_t> pids;  // 0: threads of other processes cannot reach it
  Status Read(ProcessId process, std::span<const MemoryRange> from,
              std::span<std::byte> to) override {
    size_t done = 0;
    if (ended.contains(process)) return Fail(ESRCH);
    for (const MemoryRange& range : from) {
      if (!Reachable(process, range, false)) return Fail(EFAULT);
      if (range.length != 0) std::memcpy(to.data() + done, At(range), range.length);
      done += range.length;
    }
    return {};
  }
  Status Write(ProcessId process, std::span<const MemoryRange> to,
               std::span<const std::byte> from) override {
    size_t done = 0;
    if (before_write) before_write();
    if (ended.contains(process)) return Fail(ESRCH);
    for (const MemoryRange& range : to) {
      if (!Reachable(process, range, true)) return Fail(EFAULT);
      if (range.length != 0) std::memcpy(At(range), from.data() + done, range.length);
      done += range.length;
    }
    return {};
  }
  Status WriteParts(ProcessId process, std::span<const MemoryRange> to,
                    std::span<const std::span<const std::byte>> from) override {
    gathered_writes++;
    return Memory::WriteParts(process, to, from);
  }
  Status Copy(ProcessId source, std::span<const MemoryRange> from, ProcessId destination,
              std::span<const MemoryRange> to) override {
    size_t total = 0;
    for (const MemoryRange& range : from) total += range.length;
    std::vector<std::byte> between(total);
    if (const Status read = Read(source, from, between); !read) return read;
    copies++;
    return Write(destination, to, between);
  }
  bool Reachable(ProcessId process, MemoryRange range, bool write) override {
    if (gone.contains(process) || ended.contains(process)) return false;
    for (const Hole& hole : holes) {
      if (range.length != 0 && range.address < hole.range.address + hole.range.length &&
          hole.range.address < range.address + range.length && (write || !hole.read_only)) {
        return false;
      }
    }
    return true;
  }

  struct Hole {
    MemoryRange range;
    bool read_only = false;  // true: readable, but not writable
  };
  std::vector<Hole> holes;
  std::map<ProcessId, bool> gone;
  std::set<ProcessId> ended;  // as `gone`, but calls return ESRCH
  size_t copies = 0;
  size_t gathered_writes = 0;  // calls of WriteParts

 private:
  static std::byte* At(const MemoryRange& range) {
    return reinterpret_cast<std::byte*>(range.address);
  }
};

class FakeTrace final : public trace::Sink {
 public:
  bool wants_records() const override { return keep_records; }
  void Write(const trace::Record& record) override { records.push_back(record); }
  bool wants_packets() const override { return keep_packets; }
  void WritePacket(Time, const wire::UdpFlow&, std::span<const std::byte> payload) override {
    packets.emplace_back(payload.begin(), payload.end());
  }

  bool keep_records = false, keep_packets = false;
  std::vector<trace::Record> records;
  std::vector<std::vector<std::byte>> packets;
};

}  // namespace rdmaemu::testing
