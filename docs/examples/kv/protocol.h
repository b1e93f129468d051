// What client and server say to each other. Both are little-endian machines with this header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv {

inline constexpr size_t kMaxKeyBytes = 64;
inline constexpr size_t kMaxValueBytes = 1024;

// The private data of a connect request.
struct Hello {
  static constexpr uint32_t kMagic = 0x6b762d31;  // "kv-1"
  uint32_t magic = kMagic;
};

enum class Operation : uint32_t { kGet = 1, kPut, kDelete };
enum class Status : uint32_t { kOk = 0, kNotFound, kBadRequest, kFull };

// Sent by the client. A value that it gets is written by RDMA to `address`, before the response.
struct Request {
  Operation operation;
  uint32_t key_bytes;
  uint32_t value_bytes;
  uint32_t rkey;
  uint64_t address;
  char key[kMaxKeyBytes];
  char value[kMaxValueBytes];
};
struct Response {
  Status status;
  uint32_t value_bytes;
};

}  // namespace kv
