// Visits the arguments and results of calls by their C++ types. The same functions write a
// recording and read it. A row of calls.inc or operations.inc describes each argument by a text:
//   "name"          the program passes it to the call
//   ">name"         the call fills it in
//   "*name"         an object that the call changes; its members are recorded after the call
//   "~name"         as "*name", for a call that only starts an operation if the id has a channel of
//                   the program. Members of such an id are not recorded: a thread that takes the
//                   event of the operation changes them, too.
//   "name:flags"    an integer of named flags (`FlagSetOf`)
//   "name:meaning"  another integer that is not a plain number (`MeaningOf`)
//   "name[+1"       an array; the next argument is its length
//   "name[-1"       an array; the argument before is its length
#pragma once

#include <string_view>
#include <tuple>
#include <utility>

#include "shim/layer/trace/describe.h"

namespace rdmaemu::layer::trace {

// The meaning of an integer argument.
enum class Meaning : uint8_t { kPlain, kFlags, kMemory, kBigEndian, kLkey, kRkey, kQpNumber };

struct ArgumentSpec {
  std::string_view name;
  bool is_output = false;
  bool is_changed = false;
  bool is_started = false;  // the call may only start the change
  int count_at = 0;
  Meaning meaning = Meaning::kPlain;
  FlagSet flags = FlagSet::kNone;
};

constexpr FlagSet FlagSetOf(std::string_view text) {
  if (text == "access") return FlagSet::kAccess;
  if (text == "qp_attr") return FlagSet::kQpAttr;
  if (text == "srq_attr") return FlagSet::kSrqAttr;
  if (text == "rereg") return FlagSet::kRereg;
  return FlagSet::kNone;
}

constexpr Meaning MeaningOf(std::string_view text) {
  if (text == "memory") return Meaning::kMemory;
  if (text == "big") return Meaning::kBigEndian;
  if (text == "lkey") return Meaning::kLkey;
  if (text == "rkey") return Meaning::kRkey;
  if (text == "qp_num") return Meaning::kQpNumber;
  return Meaning::kPlain;
}

constexpr ArgumentSpec ParseSpec(std::string_view text) {
  ArgumentSpec spec;
  if (text.front() == '>') spec.is_output = true;
  if (text.front() == '*' || text.front() == '~') spec.is_changed = true;
  spec.is_started = text.front() == '~';
  if (spec.is_output || spec.is_changed) text.remove_prefix(1);
  const size_t end = text.find_first_of(":[");
  spec.name = text.substr(0, end);
  if (end == text.npos) return spec;
  if (text[end] == ':') {
    spec.flags = FlagSetOf(text.substr(end + 1));
    spec.meaning = spec.flags != FlagSet::kNone ? Meaning::kFlags : MeaningOf(text.substr(end + 1));
  } else {
    spec.count_at = text[end + 1] == '-' ? -1 : 1;
  }
  return spec;
}

template <class T>
inline constexpr bool kIsBytes =
    kIs<std::remove_pointer_t<T>, void> || kIs<std::remove_pointer_t<T>, char> ||
    kIs<std::remove_pointer_t<T>, uint8_t>;

// Visits an argument that the program passes.
template <class V, class T>
void Given(V& v, const ArgumentSpec& spec, T& value) {
  using Target = std::remove_pointer_t<T>;
  if constexpr (!std::is_pointer_v<T>) {
    switch (spec.meaning) {
      case Meaning::kPlain:
        return v.Field(spec.name, value);
      case Meaning::kFlags:
        return v.Flags(spec.name, value, spec.flags);
      case Meaning::kMemory:
        return v.Memory(spec.name, value);
      case Meaning::kBigEndian:
        return v.Big(spec.name, value);
      case Meaning::kLkey:
        return v.Number(spec.name, NumberOf::kLkey, value);
      case Meaning::kRkey:
        return v.Number(spec.name, NumberOf::kRkey, value);
      case Meaning::kQpNumber:
        return v.Number(spec.name, NumberOf::kQp, value);
    }
  } else if constexpr (kIsObject<Target>) {
    v.Object(spec.name, value);
  } else if constexpr (kIs<Target, ibv_device>) {
    v.Device(spec.name, value);
  } else if constexpr (kIs<Target, char>) {
    v.Text(spec.name, value);
  } else if constexpr (kIs<Target, sockaddr>) {
    v.Address(spec.name, value);
  } else if constexpr (kIs<Target, ibv_gid>) {
    v.GidAt(spec.name, value);
  } else if constexpr (kIs<Target, rdma_cm_event>) {
    v.AckedEvent(value);
  } else if constexpr (kIs<Target, ibv_async_event>) {
    v.Async(value);
  } else if constexpr (kIs<Target, ibv_send_wr>) {
    v.Sends(spec.name, value);
  } else if constexpr (kIs<Target, ibv_recv_wr>) {
    v.Receives(spec.name, value);
  } else if constexpr (Described<std::remove_const_t<Target>>) {
    v.Pointer(spec.name, value);
  } else {
    v.Memory(spec.name, value);
  }
}

// Visits an output of the call. `value` is the target of a pointer argument that is not null.
template <class V, class T>
void Filled(V& v, const ArgumentSpec& spec, T& value) {
  if constexpr (std::is_pointer_v<T>) {
    using Target = std::remove_pointer_t<T>;
    if constexpr (kIsObject<Target>) {
      v.Object(spec.name, value);
    } else if constexpr (kIs<Target, rdma_cm_event>) {
      v.Event(value);
    } else if constexpr (kIs<Target, rdma_addrinfo>) {
      v.Pointer(spec.name, value);
    } else {
      v.Memory(spec.name, value);
    }
  } else if constexpr (kIs<T, ibv_async_event>) {
    auto* event = &value;
    v.Async(event);
  } else if constexpr (kIs<T, ibv_gid>) {
    v.Gid(spec.name, value);
  } else if constexpr (Described<T>) {
    v.Struct(spec.name, value);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    v.Field(spec.name, value);
  }
}

template <class V, class T>
void Result(V& v, T& value) {
  using Target = std::remove_pointer_t<T>;
  constexpr std::string_view kName = "result";
  if constexpr (std::is_same_v<T, uint16_t>) {
    v.Big(kName, value);  // rdma_get_src_port and rdma_get_dst_port
  } else if constexpr (!std::is_pointer_v<T>) {
    v.Field(kName, value);
  } else if constexpr (kIsObject<Target>) {
    v.Object(kName, value);
  } else if constexpr (kIs<Target, char>) {
    v.Text(kName, value);
  } else if constexpr (kIs<Target, ibv_device*>) {
    v.Devices(kName, value);
  } else if constexpr (kIs<Target, ibv_context*>) {
    v.Contexts(kName, value);
  } else {
    v.Memory(kName, value);
  }
}

template <size_t I, class... A>
consteval bool IsCount() {
  if constexpr (I < sizeof...(A))
    return std::is_integral_v<std::tuple_element_t<I, std::tuple<A...>>>;
  return false;
}
template <size_t I, class... A>
inline constexpr bool kIsCount = IsCount<I, A...>();

// Visits the arguments of a call. With kOutputs, visits those that the call filled in or changed.
// Without kOutputs, visits those that the program passed.
template <bool kOutputs, class V, class... A>
void VisitArguments(V& v, const ArgumentSpec* specs, std::tuple<A...>& arguments) {
  const auto visit = [&]<size_t I>(std::integral_constant<size_t, I>) {
    const ArgumentSpec& spec = specs[I];
    auto& value = std::get<I>(arguments);
    using T = std::remove_reference_t<decltype(value)>;
    if constexpr (kOutputs) {
      if constexpr (std::is_pointer_v<T>) {
        if (spec.is_output) v.Filled(spec, value, arguments);
        if (spec.is_changed) v.Changed(spec, value);
      }
    } else {
      if (spec.is_output) return;
      if constexpr (std::is_pointer_v<T>) {
        if (spec.count_at > 0) {
          if constexpr (kIsCount<I + 1, A...>) v.Counted(spec, value, std::get<I + 1>(arguments));
          return;
        }
        if (spec.count_at < 0) {
          if constexpr (kIsCount<I - 1, A...>) v.Counted(spec, value, std::get<I - 1>(arguments));
          return;
        }
      }
      if constexpr (std::is_pointer_v<T> && kIs<std::remove_pointer_t<T>, ibv_qp_attr>) {
        v.QpAttr(spec, value, arguments);
      } else {
        Given(v, spec, value);
      }
    }
  };
  [&]<size_t... I>(std::index_sequence<I...>) { (visit(std::integral_constant<size_t, I>{}), ...); }
  (std::index_sequence_for<A...>{});
}

// Returns the mask argument of a call with an ibv_qp_attr: ibv_modify_qp, ibv_query_qp and
// rdma_init_qp_attr.
template <class... A>
int QpAttrMask(const std::tuple<A...>& arguments) {
  if constexpr (sizeof...(A) >= 3) {
    using Mask = std::tuple_element_t<2, std::tuple<A...>>;
    if constexpr (std::is_same_v<Mask, int>) return std::get<2>(arguments);
    if constexpr (std::is_same_v<Mask, int*>) {
      return std::get<2>(arguments) == nullptr ? 0 : *std::get<2>(arguments);
    }
  }
  return 0;
}

}  // namespace rdmaemu::layer::trace
