// A place where a step of a test runs: this process, another process of this machine, or a process
// on the peer's machine. A step is a captureless function over plain data, so it can run anywhere.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <type_traits>

namespace rdma_contract {

struct State;  // the objects that a place owns: see state.h

enum class Place { kThisProcess, kLocalProcess, kPeersMachine };

class Worker {
 public:
  virtual ~Worker() = default;
  virtual pid_t pid() const = 0;
  // Sends SIGKILL and returns when the process has ended. Not for kThisProcess.
  virtual void Kill() = 0;
  // Returns false once the process has died.
  virtual bool alive() const = 0;

  template <typename Result, typename Arguments>
  Result Call(Result (*step)(State&, const Arguments&), const Arguments& arguments) {
    static_assert(std::is_trivially_copyable_v<Result> && std::is_trivially_copyable_v<Arguments>);
    Result result{};
    Execute(&Trampoline<Result, Arguments>, reinterpret_cast<void*>(step), &arguments,
            sizeof arguments, &result, sizeof result);
    return result;
  }
  // As Call, without waiting. Finish returns the result of the running step. A step that blocks (a
  // synchronous accept) can thus run while the test continues.
  template <typename Result, typename Arguments>
  void Begin(Result (*step)(State&, const Arguments&), const Arguments& arguments) {
    static_assert(std::is_trivially_copyable_v<Result> && std::is_trivially_copyable_v<Arguments>);
    Start(&Trampoline<Result, Arguments>, reinterpret_cast<void*>(step), &arguments,
          sizeof arguments, sizeof(Result));
  }
  template <typename Result>
  Result Finish() {
    Result result{};
    Wait(&result, sizeof result);
    return result;
  }

 protected:
  using Raw = void (*)(State&, void* step, const void* arguments, void* result);
  template <typename Result, typename Arguments>
  static void Trampoline(State& state, void* step, const void* arguments, void* result) {
    auto function = reinterpret_cast<Result (*)(State&, const Arguments&)>(step);
    *static_cast<Result*>(result) = function(state, *static_cast<const Arguments*>(arguments));
  }
  virtual void Execute(Raw raw, void* step, const void* arguments, size_t argument_bytes,
                       void* result, size_t result_bytes) = 0;
  virtual void Start(Raw raw, void* step, const void* arguments, size_t argument_bytes,
                     size_t result_bytes) = 0;
  virtual void Wait(void* result, size_t result_bytes) = 0;
};

// Throws std::runtime_error when the process cannot be started.
std::unique_ptr<Worker> StartWorker(Place place);

// Forks the process from which all other processes are forked. Must run before the first use of
// either library: a process on a machine of its own must not inherit objects that this one has
// opened. A process on the peer's machine is executed anew, because that machine may have other
// libraries.
void StartNursery(int arena_fd);

// The entry point of such a process: `--worker SOCKET ARENA`.
[[noreturn]] void ServeAnew(int socket, int arena_fd);

}  // namespace rdma_contract
