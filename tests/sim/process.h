// A process on a machine. Its libraries are those that ship (shim/verbs), linked with a connection
// to the simulated host and memory at artificial addresses (library_seams.cc). Connection
// management uses calls.h directly.
#pragma once

#include <sys/uio.h>

#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "emulator/abi/ring.h"
#include "shim/verbs/copy_jobs.h"
#include "tests/sim/world.h"

namespace rdmaemu::sim {

class Process {
 public:
  Process(World& world, Machine& machine, const std::string& name, uint64_t base,
          std::span<std::byte> memory, AddressSpaces::Watcher watcher);
  // Frees what the library allocated for the process.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Machine& machine() { return machine_; }
  World& world() { return world_; }
  // The host that it connected to still runs.
  bool Runs() const { return alive_ && machine_.runs() && machine_.life() == life_; }
  // As Runs, but the host may be paused. The process then waits and has not ended.
  bool Lives() const { return alive_ && machine_.up() && machine_.life() == life_; }
  // Ends the connection of this process and of its forked child, as SIGKILL does.
  void Kill();

  // While the object exists, library calls of this thread are the process's.
  class Entered {
   public:
    explicit Entered(Process& process) : before_(std::exchange(current_, &process)) {}
    ~Entered() { current_ = before_; }
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    Process* before_;
  };
  // The process that this thread has entered.
  static Process& Current();

  // Opens the first device. The process owns the context until its end.
  ibv_context* OpenDevice();
  void CloseDevice();
  ibv_context* context() { return context_; }
  // Adds an object that the library allocated. The process frees the object at its end. Call Forget
  // when the library has freed it.
  template <class T>
  T* Keep(T* object) {
    if (object != nullptr) objects_.insert(object);
    return object;
  }
  void Forget(void* object) { objects_.erase(object); }

  // fork(2). The child gets a copy of the memory and joins the group.
  enum class Survivor : uint8_t {
    kChild,   // the parent ends at once, as in daemon(3), and the child becomes this process
    kParent,  // the child ends at once
    kBoth,    // the child is idle until this process is killed
  };
  void Fork(Survivor survivor);

  // Makes one call and returns its errno; fills `out` on 0. Returns ENOTCONN when the host has
  // ended.
  template <class In, class Out>
  int Call(CallOp op, const In& in, Out& out) {
    const Reply reply = CallBytes(static_cast<uint32_t>(op), &in, sizeof in);
    if (reply.error == 0) {
      std::memcpy(static_cast<void*>(&out), reply.body.data(),
                  std::min(reply.body.size(), sizeof out));
    }
    return reply.error;
  }
  template <class In>
  int Call(CallOp op, const In& in) {
    return CallBytes(static_cast<uint32_t>(op), &in, sizeof in).error;
  }
  // Makes a command of rdma_user_cm.h.
  template <class Command, class Out>
  int Cm(uint32_t channel, uint32_t command, const Command& in, Out& out) {
    return Call(CallOp{static_cast<uint32_t>(CallOp::kCmCommand) + command},
                CmCall<Command>{channel, 0, in}, out);
  }
  template <class Command>
  int Cm(uint32_t channel, uint32_t command, const Command& in) {
    return Call(CallOp{static_cast<uint32_t>(CallOp::kCmCommand) + command},
                CmCall<Command>{channel, 0, in});
  }
  // Fetches an event as librdmacm does: takes the event that the host offers, or else sends the
  // sequence. Returns as Cm.
  int FetchEvent(uint32_t channel, rdma_ucm_event_resp& event);
  // Returns the first counter in the reply of the last call.
  std::optional<CounterId> TakeCounter();

  // A polling thread takes the copies that its host offers. It executes them some time later.
  void TakeCopies();
  void FinishCopies();
  // Stops the thread between the two calls above: FinishCopies does nothing then.
  void set_stopped(bool stopped) { is_stopped_ = stopped; }
  // A thread of the process polls and executes no copies. Its host then offers copies.
  void CountPoll() {
    if (Lives()) doorbells().jobs.polls++;
  }
  // While true, a poll without a result executes the copies that the host offers.
  void set_helps(bool helps) { helps_ = helps; }
  // Sets what other threads do before and after the copy of a request that a thread executes
  // itself.
  void SetAroundExecution(std::function<void()> action) { around_execution_ = std::move(action); }
  // Never 0.
  uint64_t now_ns() const {
    return 1 + static_cast<uint64_t>(world_.now().time_since_epoch().count());
  }
  // The number of counts that the library read from descriptors.
  uint64_t counts_taken() const { return counts_taken_; }

  // ---- for library_seams.cc
  Reply CallBytes(uint32_t op, const void* in, size_t bytes);
  std::byte* At(const SharedSpan& span);
  DoorbellPage& doorbells() { return *reinterpret_cast<DoorbellPage*>(At(hello_.doorbells)); }
  void RingBell(uint32_t doorbell);
  void WakeHost() { world_.Wake(machine_); }
  JobPage* OfferedCopies() { return helps_ && Lives() ? &doorbells().jobs : nullptr; }
  // FdOf returns a number for a descriptor of a reply. TakeFrom takes a count from it: 0, or
  // EAGAIN.
  static int FdOf(const ReplyDescriptor& descriptor);
  // Returns the lane for a number of FdOf. The memory remains until the process ends.
  SendLane* LaneAt(int fd);
  int TakeFrom(int fd);
  // Adds 1 to it. Returns false if the thread cannot, which happens at random.
  bool AddTo(int fd);
  bool ReadOwn(uint64_t address, std::span<std::byte> to);
  bool WriteOwn(uint64_t address, std::span<const std::byte> from);
  ssize_t CopyWith(const shim::CopyGuard& guard, uint32_t pid, bool pull,
                   std::span<const iovec> own, std::span<const iovec> theirs);

 private:
  void CheckQueries(uint32_t channel, const rdma_ucm_event_resp& event,
                    std::span<const std::byte> offered);
  // Copies to a process of another machine.
  Status CopyWithMachine(uint32_t pid, bool pull, std::span<const MemoryRange> mine,
                         std::span<const MemoryRange> theirs);
  ssize_t CopyToHost(std::span<const MemoryRange> mine, std::span<const iovec> theirs);
  std::optional<std::span<const std::byte>> SharedBytes(std::span<const MemoryRange> ranges) const;
  void Hello(ProcessId process, HelloIn in, HelloOut& out);
  void End(ProcessId process);

  static thread_local Process* current_;

  World& world_;
  Machine& machine_;
  std::string name_;
  uint64_t base_;
  std::span<std::byte> memory_;
  AddressSpaces::Watcher watcher_;
  uint32_t life_;
  bool alive_ = true;
  bool helps_ = false;
  ProcessId id_{};
  std::vector<ProcessId> parents_;       // the ended ones
  std::optional<ProcessId> child_;       // the idle one
  std::vector<std::byte> child_memory_;  // as it was at fork
  HelloOut hello_{};
  std::vector<ReplyDescriptor> descriptors_;
  std::vector<std::shared_ptr<std::byte>> lanes_;
  std::optional<shim::CopyBatch> taken_;
  bool is_stopped_ = false;
  std::function<void()> around_execution_;
  uint64_t counts_taken_ = 0;
  ibv_device* device_ = nullptr;
  ibv_context* context_ = nullptr;
  std::set<void*> objects_;
};

}  // namespace rdmaemu::sim
