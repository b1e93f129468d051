// A place where a step of a test runs: this process, another process of this machine, or a process
// on the peer's machine. A step is a captureless function over plain data, so it can run anywhere.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <type_traits>

namespace rdma_contract {

struct State;  // what a place owns: see state.h

enum class Place { kThisProcess, kLocalProcess, kPeersMachine };

class Worker {
 public:
  virtual ~Worker() = default;
  virtual pid_t pid() const = 0;
  // SIGKILL; returns when the process is gone. Not for kThisProcess.
  virtual void Kill() = 0;
  // False once the process died.
  virtual bool alive() const = 0;

  template <typename Result, typename Arguments>
  Result Call(Result (*step)(State&, const Arguments&), const Arguments& arguments) {
    static_assert(std::is_trivially_copyable_v<Result> && std::is_trivially_copyable_v<Arguments>);
    Result result{};
    Execute(&Trampoline<Result, Arguments>, reinterpret_cast<void*>(step), &arguments,
            sizeof arguments, &result, sizeof result);
    return result;
  }
  // The same without waiting: Finish gives the result of the one that is under way. A step that
  // blocks (a synchronous accept) runs so while the test works on.
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

// Throws std::runtime_error when the process cannot be had.
std::unique_ptr<Worker> StartWorker(Place place);

// Forks the process from which all others come, before either library has been used: on a machine
// of its own, a process must not inherit what this one has opened. One on the peer's machine is
// executed anew, because that machine may have other libraries.
void StartNursery(int arena_fd);

// How such a process begins: `--worker SOCKET ARENA`.
[[noreturn]] void ServeAnew(int socket, int arena_fd);

}  // namespace rdma_contract
