// The functions that make a call and record it, for every row of the table (table.h).
#pragma once

#include <errno.h>

#include "shim/layer/caller.h"
#include "shim/layer/forward.h"
#include "shim/layer/trace/operations.h"
#include "shim/layer/trace/payloads.h"
#include "shim/layer/trace/recorder.h"
#include "shim/layer/trace/table.h"
#include "shim/layer/trace/writer.h"

namespace rdmaemu::layer::trace {

struct Trace;
using TracedCall = PresentCall<Trace>;

// The result of a void function.
struct Void {};

template <class R, class... A>
auto Make(R (*function)(A...), A... arguments) {
  if constexpr (std::is_void_v<R>) {
    function(arguments...);
    return Void{};
  } else {
    return function(arguments...);
  }
}

// True when a result is an object. Such calls are recorded even when a library makes them, because
// they give the object its name.
template <class R>
inline constexpr bool kMakesObject = std::is_pointer_v<R>&& kIsObject<std::remove_pointer_t<R>>;

// Makes a call and writes two records, one before the call and one after it. A call that never
// returns is therefore in the trace. Preserves the call's errno.
template <CallId kId, class R, class... A>
R SlowCall(R (*next)(A...), const void* return_address, A... arguments) {
  using ThisRow = Row<kId>;
  static_assert(ThisRow::kSpecs.size() == sizeof...(A), "a row names each argument");
  std::tuple<A...> packed(arguments...);
  const Caller caller(return_address);
  const bool is_inside = !caller.IsProgram() || TracedCall::Contains(return_address);
  const TracedCall present;
  uint32_t number = 0;
  if (!is_inside || kMakesObject<R>) {
    Record record(RecordKind::kInputs, static_cast<uint16_t>(kId));
    if (record) {
      number = ++record.thread().calls;
      record.Put(number);
      record.Put(static_cast<uint32_t>(is_inside));
      Writer<false> writer(record);
      VisitArguments<false>(writer, ThisRow::kSpecs.data(), packed);
    }
  }
  BeforeObjectCall<kId>(packed);
  const auto result = Make(next, arguments...);
  const int error = errno;
  if constexpr (!std::is_void_v<R>) Adopt(result);
  if constexpr (std::is_same_v<R, ibv_mr*>) AfterMrCall<kId>(result, packed);
  if (number != 0) {
    Record record(RecordKind::kOutputs, static_cast<uint16_t>(kId));
    if (record) {
      record.Put(number);
      record.Put(static_cast<uint32_t>(is_inside));
      record.Put(static_cast<int32_t>(error));
      Writer<true> writer(record);
      bool is_success = true;
      if constexpr (!std::is_void_v<R>) {
        Result(writer, result);
        is_success = IsSuccess<ThisRow::kAnswer>(result);
      }
      record.Put(static_cast<uint8_t>(is_success));
      if (is_success) VisitArguments<true>(writer, ThisRow::kSpecs.data(), packed);
    }
    errno = error;
  }
  if constexpr (!std::is_void_v<R>) return result;
}

inline bool IsDatagram(const ibv_qp* qp) { return qp->qp_type == IBV_QPT_UD; }
template <class T>
bool IsDatagram(const T&) {
  return false;
}

// Returns the work request that a post refused, and nullptr for other calls.
inline const void* Refused(ibv_send_wr*, ibv_send_wr** bad) { return *bad; }
inline const void* Refused(ibv_recv_wr*, ibv_recv_wr** bad) { return *bad; }
template <class... A>
const void* Refused(const A&...) {
  return nullptr;
}

// Makes a call of the data path and writes one record after it.
template <CallId kId, class R, class First, class... A>
R FastCall(R (*next)(First, A...), const void* return_address, First first, A... arguments) {
  using ThisRow = Row<kId>;
  static_assert(ThisRow::kSpecs.size() == sizeof...(A) + 1, "a row names each argument");
  const Caller caller(return_address);
  const bool hashes = g_hashes_payloads && caller.IsProgram();
  PostTicket ticket;
  if (hashes) ticket = BeforeWork<kId>(first, arguments...);
  const uint64_t begin = Now();
  const auto result = Make(next, first, arguments...);
  if constexpr (!std::is_void_v<R>) {
    if (hashes && !IsSuccess<ThisRow::kAnswer>(result)) {
      AfterFailedWork<kId>(ticket, first, arguments...);
    }
  }
  if (caller.IsProgram()) {
    Record record(RecordKind::kCall, static_cast<uint16_t>(kId));
    if (record) {
      record.SetBegin(begin);
      Writer<false> writer(record);
      if constexpr (!std::is_void_v<R>) {
        Result(writer, result);
        if (!IsSuccess<ThisRow::kAnswer>(result)) {
          record.Put(static_cast<int32_t>(errno));
          writer.SetFailed(Refused(arguments...));
        }
      }
      writer.SetDatagram(IsDatagram(first));
      std::tuple<First, A...> packed(first, arguments...);
      VisitArguments<false>(writer, ThisRow::kSpecs.data(), packed);
    }
  }
  if constexpr (!std::is_void_v<R>) return result;
}

// The replacement of a function of the ABI, and the function that it calls (`next`).
template <CallId kId, class F = typename Row<kId>::Function>
struct Traced;
template <CallId kId, class R, class... A>
struct Traced<kId, R(A...)> {
  static inline R (*next)(A...);
  static R Call(A... arguments) {
    return SlowCall<kId, R, A...>(next, __builtin_return_address(0), arguments...);
  }
};

// Puts the replacement of a function into its slot. `version`: nullptr for the default version.
template <CallId kId>
void Install(const char* version = nullptr) {
  Intercept(Row<kId>::kSymbol, &Traced<kId>::Call, &Traced<kId>::next, version);
}

}  // namespace rdmaemu::layer::trace
