// Names of the constants of verbs.h and rdma_cma.h in program traces. A name lacks the prefix that
// its type implies.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shim/layer/trace/describe.h"

namespace rdmaemu::cli {

struct Constant {
  uint64_t value;
  std::string_view name;
};

// Returns the value's name, or "" when the value has no name.
std::string_view NameIn(std::span<const Constant> constants, uint64_t value);

// Returns the constants of an enumeration. The result is empty when traces show the enumeration's
// values as numbers.
std::span<const Constant> ConstantsOf(ibv_qp_state);
std::span<const Constant> ConstantsOf(ibv_qp_type);
std::span<const Constant> ConstantsOf(ibv_mtu);
std::span<const Constant> ConstantsOf(ibv_mig_state);
std::span<const Constant> ConstantsOf(ibv_wr_opcode);
std::span<const Constant> ConstantsOf(ibv_wc_opcode);
std::span<const Constant> ConstantsOf(ibv_wc_status);
std::span<const Constant> ConstantsOf(ibv_event_type);
std::span<const Constant> ConstantsOf(rdma_cm_event_type);
std::span<const Constant> ConstantsOf(rdma_port_space);
std::span<const Constant> ConstantsOf(ibv_srq_type);
std::span<const Constant> ConstantsOf(ibv_mw_type);
std::span<const Constant> ConstantsOf(ibv_port_state);
std::span<const Constant> ConstantsOf(ibv_atomic_cap);
std::span<const Constant> ConstantsOf(ibv_wq_state);
std::span<const Constant> ConstantsOf(ibv_fork_status);
template <class T>
std::span<const Constant> ConstantsOf(T) {
  return {};
}
std::span<const Constant> FlagsOf(layer::trace::FlagSet set);

}  // namespace rdmaemu::cli
