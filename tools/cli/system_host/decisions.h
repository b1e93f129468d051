// The fault rules of a host on the system backend. Decides about the moments that programs ask
// about, and stores the connections whose moments wait. Pure: no I/O, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/host/faults/control.h"
#include "emulator/host/faults/deferred.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/runtime/registry.h"
#include "shim/layer/faults/protocol.h"

namespace rdmaemu::cli {

// Returns why a rule cannot apply on the system backend and what to use instead, or nothing.
std::optional<std::string> WhyNotOnSystem(const fault::Rule& rule);

class Decisions {
 public:
  // Limit of the moments that wait at one time. Further moments are not delayed.
  static constexpr size_t kMaxWaiting = 4096;

  // The sink must outlive this object. It gets each firing of a rule, and each failed completion
  // that a rule looks at. nullptr: nothing is traced.
  Decisions(const RandomSeed& seed, const std::string& host_name, trace::Sink* trace = nullptr);

  // Adds a scenario's rules for this host. Returns the error for the first rule that cannot apply
  // here.
  std::optional<std::string> Add(std::vector<fault::Rule> rules);

  // Decides about a moment. A connection has at most one moment.
  layer::faults::AnswerOut Ask(Time now, uint32_t connection, const std::string& program,
                               const layer::faults::MomentIn& in);
  // Records that the connection waits for the end of its moment's delay or barrier. Returns true
  // when the wait is over. Otherwise TakeReady returns the connection later.
  bool Await(uint32_t connection);
  // Executes a kFault* call. TakeLate returns delayed replies. LateReply's process is the
  // connection.
  Reply Control(Time now, uint32_t connection, CallOp op, std::span<const std::byte> body);
  std::optional<LateReply> TakeLate() { return control_.TakeLate(); }
  // Cancels the connection's wait.
  void Forget(uint32_t connection);

  void Expire(Time now);
  std::optional<Time> NextDeadline() const { return deferred_.NextDeadline(); }
  // Returns a connection whose Await has ended.
  std::optional<uint32_t> TakeReady();

  // Writes which doors have rules.
  void SetDoors(layer::faults::DoorsPage& page) const;

 private:
  enum class Wait : uint8_t { kNotAwaited, kAwaited, kOver };

  const fault::Rule* Decide(fault::Moment& moment);
  void TraceError(Time now, const layer::faults::MomentIn& in);
  layer::faults::AnswerOut AnswerOf(Time now, uint32_t connection, const fault::Rule& rule);

  const std::string host_name_;
  trace::Sink& trace_;
  HostFaults faults_;
  uint64_t refused_ = 0;
  Deferred<uint32_t> deferred_;
  FaultControl control_;
  std::map<uint32_t, Wait> waits_;  // of the connections whose moment is delayed or held
  std::deque<uint32_t> ready_;
};

}  // namespace rdmaemu::cli
