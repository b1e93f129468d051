// Templates of calls.h calls that succeed. A fuzzer replaces parts of them with boundary numbers,
// the host's handles and ids, and addresses. It also reuses numbers from replies.
#pragma once

#include <vector>

#include "tests/fuzz/scene.h"

namespace rdmaemu::fuzz {

// The latest numbers from replies.
class Learned {
 public:
  Learned() : numbers_{1} {}
  void Add(uint32_t number) {
    if (number == 0) return;
    if (numbers_.size() < kMost) return numbers_.push_back(number);
    numbers_[next_++ % kMost] = number;
  }
  uint32_t Pick(Input& in) const { return in.Pick(numbers_); }

 private:
  static constexpr size_t kMost = 64;
  std::vector<uint32_t> numbers_;
  size_t next_ = 0;
};

class Calls {
 public:
  // A template with these values is sent with a learned id, and with one of the channels.
  static constexpr uint32_t kIdHere = 0xfeedbeef, kChannelHere = 0xfeedcafe;

  template <class In>
  void Add(CallOp op, const In& in) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&in);
    templates_.push_back({static_cast<uint32_t>(op), {bytes, bytes + sizeof in}});
  }
  template <class Command>
  void AddCm(uint32_t command, const Command& in) {
    Add(CallOp{static_cast<uint32_t>(CallOp::kCmCommand) + command},
        CmCall<Command>{kChannelHere, 0, in});
  }
  // Adds every command of connection management, and every call on a data scene's objects.
  void AddCmCommands();
  void AddVerbs(const DataScene& data);
  // Adds removal and return of the scene's device, its port and its addresses.
  void AddDeviceChanges();

  // Makes one call from a template with some changes, or arbitrary bytes.
  void Make(Input& in, testing::Client& client);
  void Learn(uint32_t op, const Reply& reply);

  std::vector<uint32_t> channels;
  Learned handles, ids;

 private:
  struct Template {
    uint32_t op;
    std::vector<std::byte> body;
  };
  void Fill(Input& in, std::vector<std::byte>& body) const;
  void Patch(Input& in, std::vector<std::byte>& body) const;

  std::vector<Template> templates_;
};

}  // namespace rdmaemu::fuzz
