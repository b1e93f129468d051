// The table of calls: one Row for each row of calls.inc, operations.inc and calls_1_0.inc.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <sys/epoll.h>

#include <array>

#include "shim/layer/trace/arguments.h"
#include "shim/verbs/newer_abi.h"

// verbs.h has macros of these names.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// The libraries export these functions, but no header of rdma-core 44 declares them.
extern "C" {
int ibv_dontfork_range(void* base, size_t size);
int ibv_dofork_range(void* base, size_t size);
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t arg);
int repoll_create(int flags);
int repoll_ctl(int epfd, int op, int fd, epoll_event* event);
int repoll_wait(int epfd, epoll_event* events, int maxevents, int timeout);
}

namespace rdmaemu::layer::trace {

// The meaning of an integer result: 0 or an error, or a value whose negatives are errors.
enum class Answer : uint8_t { kErrno, kValue };

enum class CallId : uint16_t {
#define VERBS(function, ...) k_##function,
#define VALUE(function, ...) k_##function,
#define CM(function, ...) k_##function,
#define HELPER(function)
#include "shim/layer/trace/calls.inc"
#undef VERBS
#undef VALUE
#undef CM
#undef HELPER
#define SLOW(table, member, name, ...) k_##table##_##member,
#define FAST(table, member, name, ...) k_##table##_##member,
#define FAST_VALUE(table, member, name, ...) k_##table##_##member,
#define OWN(table, member, name) k_##table##_##member,
#include "shim/layer/trace/operations.inc"
#undef SLOW
#undef FAST
#undef FAST_VALUE
#undef OWN
#define OLD(function, type, ...) k_old_##function,
#define OLD_VALUE(function, type, ...) k_old_##function,
#include "shim/layer/trace/calls_1_0.inc"
#undef OLD
#undef OLD_VALUE
  kCount,
};

// The symbol version of the rows of calls_1_0.inc.
inline constexpr const char* kOldVersion = "IBVERBS_1.0";

template <class... Texts>
constexpr auto Specs(Texts... texts) {
  return std::array<ArgumentSpec, sizeof...(texts)>{ParseSpec(texts)...};
}

// rfcntl(3) is variadic. Its commands take at most one argument.
template <class F>
struct FixedArguments {
  using Type = F;
};
template <class R, class... A>
struct FixedArguments<R(A..., ...)> {
  using Type = R(A..., long);
};

template <CallId>
struct Row;

#define RDMAEMU_LAYER_CALL(function, answer, ...)                \
  template <>                                                    \
  struct Row<CallId::k_##function> {                             \
    using Function = FixedArguments<decltype(::function)>::Type; \
    static constexpr const char* kSymbol = #function;            \
    static constexpr Answer kAnswer = answer;                    \
    static constexpr auto kSpecs = Specs(__VA_ARGS__);           \
  };
#define VERBS(function, ...) RDMAEMU_LAYER_CALL(function, Answer::kErrno, __VA_ARGS__)
#define VALUE(function, ...) RDMAEMU_LAYER_CALL(function, Answer::kValue, __VA_ARGS__)
#define CM(function, ...) RDMAEMU_LAYER_CALL(function, Answer::kValue, __VA_ARGS__)
#define HELPER(function)
#include "shim/layer/trace/calls.inc"
#undef VERBS
#undef VALUE
#undef CM
#undef HELPER
#undef RDMAEMU_LAYER_CALL

#define RDMAEMU_LAYER_OPERATION(table, member, name, answer, ...)    \
  template <>                                                        \
  struct Row<CallId::k_##table##_##member> {                         \
    using Function = std::remove_pointer_t<decltype(table::member)>; \
    static constexpr const char* kSymbol = name;                     \
    static constexpr Answer kAnswer = answer;                        \
    static constexpr auto kSpecs = Specs(__VA_ARGS__);               \
  };
#define SLOW(table, member, name, ...) \
  RDMAEMU_LAYER_OPERATION(table, member, name, Answer::kErrno, __VA_ARGS__)
#define FAST(table, member, name, ...) \
  RDMAEMU_LAYER_OPERATION(table, member, name, Answer::kErrno, __VA_ARGS__)
#define FAST_VALUE(table, member, name, ...) \
  RDMAEMU_LAYER_OPERATION(table, member, name, Answer::kValue, __VA_ARGS__)
#define OWN(table, member, name)                                     \
  template <>                                                        \
  struct Row<CallId::k_##table##_##member> {                         \
    using Function = std::remove_pointer_t<decltype(table::member)>; \
    static constexpr const char* kSymbol = name;                     \
    static constexpr Answer kAnswer = Answer::kValue;                \
  };
#include "shim/layer/trace/operations.inc"
#undef SLOW
#undef FAST
#undef FAST_VALUE
#undef OWN
#undef RDMAEMU_LAYER_OPERATION

#define RDMAEMU_LAYER_OLD(function, type, answer, ...) \
  template <>                                          \
  struct Row<CallId::k_old_##function> {               \
    using Function = type;                             \
    static constexpr const char* kSymbol = #function;  \
    static constexpr Answer kAnswer = answer;          \
    static constexpr auto kSpecs = Specs(__VA_ARGS__); \
  };
#define OLD(function, type, ...) RDMAEMU_LAYER_OLD(function, type, Answer::kErrno, __VA_ARGS__)
#define OLD_VALUE(function, type, ...) \
  RDMAEMU_LAYER_OLD(function, type, Answer::kValue, __VA_ARGS__)
#include "shim/layer/trace/calls_1_0.inc"
#undef OLD
#undef OLD_VALUE
#undef RDMAEMU_LAYER_OLD

// Returns whether `result` means success. Enums and unsigned integers always do.
template <Answer kAnswer, class R>
bool IsSuccess(R result) {
  if constexpr (std::is_pointer_v<R>) return result != nullptr;
  if constexpr (std::is_enum_v<R> || std::is_unsigned_v<R>) return true;
  if constexpr (std::is_signed_v<R>) return kAnswer == Answer::kErrno ? result == 0 : result >= 0;
  return true;
}

}  // namespace rdmaemu::layer::trace
