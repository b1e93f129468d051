// The largest private data of each CM message, in bytes (rdma_connect(3), rdma_accept(3),
// rdma_reject(3); measured on rdma_rxe).
#pragma once

#include <cstddef>

namespace rdmaemu::sim {

inline constexpr size_t kMostInRequest = 56, kMostInReply = 196, kMostInReject = 148;
inline constexpr size_t kMostInDatagramRequest = 180, kMostInDatagramReply = 136;

}  // namespace rdmaemu::sim
