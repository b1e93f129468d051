// The messages of client and server. Both are little-endian machines and use this header.
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

// The client sends a Request. For kGet, the server writes the value to `address` by RDMA before it
// sends the response.
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
