#include "emulator/runtime/process_memory.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "emulator/runtime/clock.h"
#include "emulator/runtime/copying_thread.h"
#include "emulator/runtime/memory_maps.h"
#include "emulator/runtime/process_state.h"

namespace rdmaemu::runtime {
namespace {

// The vectors of one kernel call, at most IOV_MAX. Longer lists take several calls.
using Pieces = std::array<iovec, 64>;
static_assert(std::tuple_size_v<Pieces> <= IOV_MAX);

// One call moves at most this many bytes. The kernel's own limit is 2 GiB less a page.
constexpr size_t kMaxMoveBytes = size_t{1} << 30;

// Iterates over a list of vectors.
class VectorCursor {
 public:
  explicit VectorCursor(std::span<const iovec> vectors) : vectors_(vectors) {}

  struct Filled {
    size_t count = 0, bytes = 0;
  };
  // Fills `out` with the next vectors, at most `limit_bytes` in total, without advancing.
  Filled Peek(Pieces& out, size_t limit_bytes) const {
    Filled filled;
    size_t offset = offset_;
    for (size_t i = index_; i < vectors_.size() && filled.count < out.size(); i++, offset = 0) {
      const size_t length = std::min(vectors_[i].iov_len - offset, limit_bytes - filled.bytes);
      if (length == 0) continue;
      out[filled.count++] = {static_cast<char*>(vectors_[i].iov_base) + offset, length};
      filled.bytes += length;
    }
    return filled;
  }
  void Advance(size_t bytes) {
    while (index_ < vectors_.size() && bytes >= vectors_[index_].iov_len - offset_) {
      bytes -= vectors_[index_].iov_len - offset_;
      index_++;
      offset_ = 0;
    }
    offset_ += bytes;
  }

 private:
  std::span<const iovec> vectors_;
  size_t index_ = 0;
  size_t offset_ = 0;
};

// Most lists are short (the ranges of one WQE or of a train's packets) and stay on the stack.
class Vectors {
 public:
  explicit Vectors(std::span<const MemoryRange> ranges) {
    iovec* const out = Room(ranges.size());
    for (size_t i = 0; i < ranges.size(); i++) {
      out[i] = {reinterpret_cast<void*>(ranges[i].address), ranges[i].length};
      total_ += ranges[i].length;
    }
  }
  template <class Byte>
  explicit Vectors(std::span<const std::span<Byte>> parts) {
    iovec* const out = Room(parts.size());
    for (size_t i = 0; i < parts.size(); i++) {
      out[i] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
      total_ += parts[i].size();
    }
  }
  // The host's addresses of vectors that `buffers` hold.
  Vectors(std::span<const iovec> vectors, const SharedBuffers& buffers) {
    iovec* const out = Room(vectors.size());
    for (size_t i = 0; i < vectors.size(); i++) {
      const bool any = vectors[i].iov_len > 0;
      out[i] = {any ? buffers.At(vectors[i].iov_base) : nullptr, vectors[i].iov_len};
      total_ += vectors[i].iov_len;
    }
  }
  Vectors(const Vectors&) = delete;
  Vectors& operator=(const Vectors&) = delete;

  std::span<const iovec> view() const { return view_; }
  size_t total_bytes() const { return total_; }

 private:
  iovec* Room(size_t count) {
    iovec* room = few_.data();
    if (count > few_.size()) {
      many_.resize(count);
      room = many_.data();
    }
    view_ = {room, count};
    return room;
  }

  std::array<iovec, 64> few_;
  std::vector<iovec> many_;
  std::span<const iovec> view_;
  size_t total_ = 0;
};

bool SharesPidNamespace(pid_t pid) {
  struct stat own, other;
  return stat("/proc/self/ns/pid", &own) == 0 &&
         stat(("/proc/" + std::to_string(pid) + "/ns/pid").c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

// Seccomp profiles return either errno. Kernels without the calls return ENOSYS.
bool IsRefusal(int error) { return error == EPERM || error == ENOSYS; }

std::string MemoryPath(pid_t pid) { return "/proc/" + std::to_string(pid) + "/mem"; }

// How often an access is repeated because a process changed its mappings. A process that changes
// them so often has undefined bytes.
constexpr int kMaxRepeats = 4;

// Runs `access` while neither process changes its mappings. nullptr: the process shares nothing.
template <class Body>
Status WhileUnchanged(SharedBuffers* one, SharedBuffers* other, Body access) {
  for (int repeats = 0;; repeats++) {
    const SharedBuffers::Access first(one), second(other);
    const Status status = access();
    if (repeats == kMaxRepeats || (!first.WasInVain() && !second.WasInVain())) return status;
  }
}

constexpr char kMemoryAdvice[] =
    "the program must run as the same user, in the same user namespace and be dumpable, "
    "/proc/sys/kernel/yama/ptrace_scope must be 0 or 1, and a container's seccomp profile must "
    "allow "
    "process_vm_readv and process_vm_writev, or /proc/PID/mem must be there (docker run "
    "--cap-add SYS_PTRACE allows them)";

}  // namespace

std::string WhyMemoryIsRefused() {
  char from = 0, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 || !IsRefusal(errno)) return {};
  const int refusal = errno;
  const UniqueFd file(open(MemoryPath(getpid()).c_str(), O_RDWR | O_CLOEXEC));
  if (file &&
      preadv(file.get(), &local, 1, static_cast<off_t>(reinterpret_cast<intptr_t>(&from))) == 1) {
    return {};
  }
  return std::string("a host could not access the memory of programs: process_vm_readv fails (") +
         std::strerror(refusal) + ") and /proc/PID/mem too (" + std::strerror(errno) + "); " +
         kMemoryAdvice;
}

ProcessMemory::ProcessMemory(std::function<void(const std::string&)> warn)
    : warn_(std::move(warn)),
      own_pid_(getpid()),
      bounce_(std::make_unique_for_overwrite<std::byte[]>(kBounceBytes)) {}

void ProcessMemory::AddProcess(ProcessId process, pid_t pid) {
  if (pid == kNobody) ForeignNamespace();
  processes_[static_cast<uint32_t>(process)] = Known{pid, SharesPidNamespace(pid)};
}

void ProcessMemory::ProcessEnded(ProcessId process) {
  const auto it = processes_.find(static_cast<uint32_t>(process));
  if (it == processes_.end()) return;
  files_.erase(it->second.pid);
  it->second.alive = false;
  const auto shared = shared_.find(it->first);
  if (shared == shared_.end()) return;
  ordinary_buffers_ += shared->second.ordinary_buffers();
  shared_.erase(shared);
}

void ProcessMemory::RemoveProcess(ProcessId process) {
  ProcessEnded(process);
  processes_.erase(static_cast<uint32_t>(process));
}

pid_t ProcessMemory::PidOf(ProcessId process) const {
  const auto it = processes_.find(static_cast<uint32_t>(process));
  if (it == processes_.end()) return kNobody;
  return it->second.alive ? it->second.pid : kEnded;
}

bool ProcessMemory::ShareBuffers(ProcessId process, uint64_t address, std::span<std::byte> bytes) {
  return shared_.try_emplace(static_cast<uint32_t>(process), address, bytes).second;
}

ProcessMemory::SharedCounts ProcessMemory::shared_counts() const {
  SharedCounts counts{shared_.size(), ordinary_buffers_};
  for (const auto& [process, buffers] : shared_) {
    counts.ordinary_buffers += buffers.ordinary_buffers();
  }
  return counts;
}

SharedBuffers* ProcessMemory::BuffersOf(ProcessId process) {
  if (shared_.empty()) return nullptr;
  const auto it = shared_.find(static_cast<uint32_t>(process));
  return it == shared_.end() ? nullptr : &it->second;
}

bool ProcessMemory::IsShared(ProcessId process, std::span<const MemoryRange> ranges) {
  const SharedBuffers* const buffers = BuffersOf(process);
  return buffers != nullptr && buffers->Touch(ranges);
}

Status ProcessMemory::Read(ProcessId process, std::span<const MemoryRange> from,
                           std::span<std::byte> to) {
  const Vectors remote(from);
  const iovec local{to.data(), to.size()};
  return MoveOf(Direction::kRead, process, {&local, 1}, remote.view());
}

Status ProcessMemory::Write(ProcessId process, std::span<const MemoryRange> to,
                            std::span<const std::byte> from) {
  const Vectors remote(to);
  const iovec local{const_cast<std::byte*>(from.data()), from.size()};
  return MoveOf(Direction::kWrite, process, {&local, 1}, remote.view());
}

Status ProcessMemory::ReadParts(ProcessId process, std::span<const MemoryRange> from,
                                std::span<const std::span<std::byte>> to) {
  const Vectors remote(from), local(to);
  return MoveOf(Direction::kRead, process, local.view(), remote.view());
}

Status ProcessMemory::WriteParts(ProcessId process, std::span<const MemoryRange> to,
                                 std::span<const std::span<const std::byte>> from) {
  const Vectors remote(to), local(from);
  return MoveOf(Direction::kWrite, process, local.view(), remote.view());
}

Status ProcessMemory::MoveOf(Direction direction, ProcessId process, std::span<const iovec> local,
                             std::span<const iovec> remote) {
  SharedBuffers* const buffers = BuffersOf(process);
  if (buffers == nullptr) return Move(direction, PidOf(process), local, remote);
  return WhileUnchanged(buffers, nullptr, [&] {
    if (!buffers->Hold(remote)) return Move(direction, PidOf(process), local, remote);
    const Vectors mapped(remote, *buffers);
    return direction == Direction::kRead ? CopyVectors(local, mapped.view())
                                         : CopyVectors(mapped.view(), local);
  });
}

Status ProcessMemory::Copy(ProcessId source, std::span<const MemoryRange> from,
                           ProcessId destination, std::span<const MemoryRange> to) {
  const Vectors read(from), write(to);
  SharedBuffers *const first = BuffersOf(source), *const second = BuffersOf(destination);
  return WhileUnchanged(first, second, [&] {
    const std::optional<Status> copied = CopyShared(source, read.view(), destination, write.view());
    return copied ? *copied : CopyByBounce(source, read.view(), destination, write.view());
  });
}

std::optional<Status> ProcessMemory::CopyShared(ProcessId source, std::span<const iovec> from,
                                                ProcessId destination, std::span<const iovec> to) {
  const SharedBuffers* buffers = BuffersOf(source);
  if (buffers != nullptr && buffers->Hold(from)) {
    return MoveOf(Direction::kWrite, destination, Vectors(from, *buffers).view(), to);
  }
  buffers = BuffersOf(destination);
  if (buffers != nullptr && buffers->Hold(to)) {
    return MoveOf(Direction::kRead, source, Vectors(to, *buffers).view(), from);
  }
  return std::nullopt;
}

Status ProcessMemory::CopyByBounce(ProcessId source, std::span<const iovec> from,
                                   ProcessId destination, std::span<const iovec> to) {
  const pid_t source_pid = PidOf(source), destination_pid = PidOf(destination);
  // If one side is this process, it is the local side of the call and needs no bounce buffer.
  if (destination_pid == own_pid_) return Move(Direction::kRead, source_pid, to, from);
  if (source_pid == own_pid_) return Move(Direction::kWrite, destination_pid, from, to);
  VectorCursor sources(from), destinations(to);
  Pieces pieces;
  for (;;) {
    const VectorCursor::Filled in = sources.Peek(pieces, kBounceBytes);
    if (in.bytes == 0) return {};
    const iovec filled{bounce_.get(), in.bytes};
    const Status got = Move(Direction::kRead, source_pid, {&filled, 1}, {pieces.data(), in.count});
    if (!got) return got;
    for (size_t given = 0; given < in.bytes;) {
      const VectorCursor::Filled out = destinations.Peek(pieces, in.bytes - given);
      if (out.bytes == 0) return Fail(EFAULT);  // the lists' totals differ
      const iovec part{bounce_.get() + given, out.bytes};
      const Status put =
          Move(Direction::kWrite, destination_pid, {&part, 1}, {pieces.data(), out.count});
      if (!put) return put;
      destinations.Advance(out.bytes);
      given += out.bytes;
    }
    sources.Advance(in.bytes);
  }
}

bool ProcessMemory::Reachable(ProcessId process, MemoryRange range, bool write) {
  if (range.length == 0) return true;
  const pid_t pid = PidOf(process);
  return pid > 0 && IsMapped(pid, range, write) && Admits(process, range.address);
}

bool ProcessMemory::Admits(ProcessId process, uint64_t address) {
  std::byte probe;
  const MemoryRange one{address, 1};
  return Read(process, {&one, 1}, {&probe, 1}).has_value();
}

uint32_t ProcessMemory::PidFor(ProcessId taker, ProcessId owner) {
  if (copies_alone_) return 0;
  const auto from = processes_.find(static_cast<uint32_t>(taker));
  const auto to = processes_.find(static_cast<uint32_t>(owner));
  if (from == processes_.end() || to == processes_.end()) return 0;
  const Known &one = from->second, &other = to->second;
  const bool direct = one.alive && other.alive && one.same_numbers && other.same_numbers;
  return direct ? static_cast<uint32_t>(other.pid) : 0;
}

uint32_t ProcessMemory::HostPidFor(ProcessId taker) {
  if (copies_alone_) return 0;
  const auto known = processes_.find(static_cast<uint32_t>(taker));
  if (known == processes_.end()) return 0;
  const bool direct = known->second.alive && known->second.same_numbers;
  return direct ? static_cast<uint32_t>(own_pid_) : 0;
}

void ProcessMemory::LetOthersRun() { sched_yield(); }

// No event shows that the kernel or a tracer has released a thread.
void ProcessMemory::LetOthersRunLonger() {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

CopyState ProcessMemory::CopyStateOf(uint32_t thread) {
  return runtime::CopyStateOf(static_cast<pid_t>(thread));
}

bool ProcessMemory::IsStopped(ProcessId process) {
  const std::optional<ProcessState> state = StateOf(PidOf(process));
  return state && (state->is_stopped() || state->is_traced());
}

void ProcessMemory::SayCopyIsLate(uint32_t thread) {
  warn_(
      "thread " + std::to_string(thread) +
      " may still be copying, but this host no longer waits for it. Its bytes may arrive in memory "
      "that another program has got back meanwhile. A debugger may hold the thread, or a page "
      "that is not there. Start the host with --payload-shortcuts off to avoid this");
}

Status ProcessMemory::Move(Direction direction, pid_t pid, std::span<const iovec> local,
                           std::span<const iovec> remote) {
  if (pid == kEnded) return Fail(ESRCH);
  if (pid == kNobody) return Fail(EFAULT);
  VectorCursor locals(local), remotes(remote);
  Pieces local_pieces, remote_pieces;
  for (;;) {
    const VectorCursor::Filled here = locals.Peek(local_pieces, kMaxMoveBytes);
    const VectorCursor::Filled there = remotes.Peek(remote_pieces, kMaxMoveBytes);
    if (here.bytes == 0 && there.bytes == 0) return {};
    // The kernel moves as many bytes as both lists have.
    const size_t expected = std::min(here.bytes, there.bytes);
    if (expected == 0) return Fail(EFAULT);  // the lists' totals differ
    ssize_t moved = -1;
    int file = files_.empty() ? -1 : FileOf(pid);
    if (file < 0) {
      moved = direction == Direction::kRead
                  ? process_vm_readv(pid, local_pieces.data(), here.count, remote_pieces.data(),
                                     there.count, 0)
                  : process_vm_writev(pid, local_pieces.data(), here.count, remote_pieces.data(),
                                      there.count, 0);
      if (moved < 0 && IsRefusal(errno)) {
        if (!OpenFile(pid)) {
          Refused(pid);
          return Fail(EFAULT);
        }
        file = FileOf(pid);
      }
    }
    if (file >= 0) {
      moved = MoveByFile(direction, pid, file, {local_pieces.data(), here.count},
                         {remote_pieces.data(), there.count});
    }
    if (moved < 0 && errno == ESRCH) return Fail(ESRCH);
    if (moved != static_cast<ssize_t>(expected)) return Fail(EFAULT);
    locals.Advance(expected);
    remotes.Advance(expected);
  }
}

ssize_t ProcessMemory::MoveByFile(Direction direction, pid_t pid, int file,
                                  std::span<const iovec> local, std::span<const iovec> remote) {
  const bool write = direction == Direction::kWrite;
  size_t total = 0, local_at = 0, done_of_local = 0;
  for (const iovec& there : remote) {
    const auto address = reinterpret_cast<uint64_t>(there.iov_base);
    if (!HasRights(pid, {address, there.iov_len}, write)) {
      errno = EFAULT;
      return -1;
    }
    for (size_t done = 0; done < there.iov_len && local_at < local.size();) {
      const iovec& here = local[local_at];
      const iovec piece{static_cast<char*>(here.iov_base) + done_of_local,
                        std::min(here.iov_len - done_of_local, there.iov_len - done)};
      const auto offset = static_cast<off_t>(address + done);
      const ssize_t moved =
          write ? pwritev(file, &piece, 1, offset) : preadv(file, &piece, 1, offset);
      if (moved <= 0) {
        // A process that has ended has no memory, so the call moves 0 bytes. An unmapped address is
        // EIO.
        errno = moved == 0 ? ESRCH : EFAULT;
        return -1;
      }
      done += static_cast<size_t>(moved);
      done_of_local += static_cast<size_t>(moved);
      total += static_cast<size_t>(moved);
      if (done_of_local == here.iov_len) {
        local_at++;
        done_of_local = 0;
      }
    }
  }
  return static_cast<ssize_t>(total);
}

bool ProcessMemory::HasRights(pid_t pid, MemoryRange range, bool write) {
  const auto now = RealNow();
  for (const Rights& known : rights_) {
    if (known.pid == pid && (known.write || !write) && now < known.until &&
        known.range.address <= range.address &&
        range.address - known.range.address + range.length <= known.range.length) {
      return true;
    }
  }
  if (!IsMapped(pid, range, write)) return false;
  rights_[next_rights_++ % rights_.size()] = {pid, write, range, now + kRightsBelievedFor};
  return true;
}

int ProcessMemory::FileOf(pid_t pid) const {
  const auto it = files_.find(pid);
  return it == files_.end() ? -1 : it->second.get();
}

bool ProcessMemory::OpenFile(pid_t pid) {
  UniqueFd file(open(MemoryPath(pid).c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return false;
  files_.insert_or_assign(pid, std::move(file));
  return true;
}

void ProcessMemory::Refused(pid_t pid) {
  if (warned_) return;
  warned_ = true;
  warn_("error: the kernel refuses access to the memory of process " + std::to_string(pid) +
        " (process_vm_readv and /proc/PID/mem), so its RDMA operations fail; " + kMemoryAdvice);
}

void ProcessMemory::ForeignNamespace() {
  if (warned_of_namespace_) return;
  warned_of_namespace_ = true;
  warn_(
      "error: a program of another pid namespace uses this host, which cannot reach its memory, so "
      "its memory regions and RDMA operations fail (EFAULT); start the host in the program's pid "
      "namespace or above it (`rdmaemu run --private` inside the container)");
}

}  // namespace rdmaemu::runtime
