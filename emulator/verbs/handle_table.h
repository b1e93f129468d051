// The handles of a host: one table for all kinds of objects. Each handle contains a generation, so
// a stale or foreign handle finds no object. The table owns the objects.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <type_traits>
#include <variant>
#include <vector>

#include "emulator/base/id_space.h"
#include "emulator/base/survivors.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu {

enum class ObjectKind : uint8_t { kContext, kPd, kMr, kMw, kChannel, kCq, kSrq, kQp, kAh, kCount };

// The handles of a group's objects by kind, in the order of the handles.
using HandlesByKind = std::array<std::set<Handle>, static_cast<size_t>(ObjectKind::kCount)>;

template <class T>
struct KindOf;
template <>
struct KindOf<Context> {
  static constexpr ObjectKind kKind = ObjectKind::kContext;
};
template <>
struct KindOf<ProtectionDomain> {
  static constexpr ObjectKind kKind = ObjectKind::kPd;
};
template <>
struct KindOf<MemoryRegion> {
  static constexpr ObjectKind kKind = ObjectKind::kMr;
};
template <>
struct KindOf<MemoryWindow> {
  static constexpr ObjectKind kKind = ObjectKind::kMw;
};
template <>
struct KindOf<CompletionChannel> {
  static constexpr ObjectKind kKind = ObjectKind::kChannel;
};
template <>
struct KindOf<CompletionQueue> {
  static constexpr ObjectKind kKind = ObjectKind::kCq;
};
template <>
struct KindOf<SharedReceiveQueue> {
  static constexpr ObjectKind kKind = ObjectKind::kSrq;
};
template <>
struct KindOf<QueuePair> {
  static constexpr ObjectKind kKind = ObjectKind::kQp;
};
template <>
struct KindOf<AddressHandle> {
  static constexpr ObjectKind kKind = ObjectKind::kAh;
};

class HandleTable {
 public:
  // Limits the objects of a whole host. The other bits of a 32-bit handle are its generation.
  static constexpr uint32_t kIndexBits = 22;
  static constexpr uint32_t kMaxObjects = 1u << kIndexBits;

  explicit HandleTable(IdSpace ids = {}) : ids_(ids), last_generation_(ids.last() >> kIndexBits) {}

  // Takes ownership of the object and writes the handle into it. Returns 0 when the table is full.
  template <class T>
  Handle Insert(GroupId group, std::unique_ptr<T> object, const Maker& maker = {}) {
    uint32_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      if (slots_.size() >= kMaxObjects) return 0;
      index = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    }
    Slot& slot = slots_[index];
    const Handle handle = ids_.At(slot.generation << kIndexBits | index);
    object->handle = handle;
    slot.group = group;
    slot.maker = maker;
    slot.object = std::move(object);
    return handle;
  }
  // Returns nullptr when the handle is stale or unknown, of another kind or another group.
  template <class T>
  T* Find(GroupId group, Handle handle) const {
    const Slot* slot = SlotOf(handle);
    if (slot == nullptr || slot->group != group) return nullptr;
    const auto* object = std::get_if<std::unique_ptr<T>>(&slot->object);
    return object == nullptr ? nullptr : object->get();
  }
  // Returns the context through which an object of any kind was created. Returns nullptr when the
  // handle is stale or unknown, or of another group.
  const Context* ContextOf(GroupId group, Handle handle) const {
    const Slot* slot = SlotOf(handle);
    if (slot == nullptr || slot->group != group) return nullptr;
    return std::visit(
        [](const auto& object) -> const Context* {
          if constexpr (std::is_same_v<decltype(object), const std::monostate&>) {
            return nullptr;
          } else {
            return &rdmaemu::ContextOf(*object);
          }
        },
        slot->object);
  }
  // Returns the process that created the object. The handle must be live.
  const Maker& MakerOf(Handle handle) const { return slots_[handle & (kMaxObjects - 1)].maker; }
  void SetMaker(Handle handle, const Maker& maker) {
    slots_[handle & (kMaxObjects - 1)].maker = maker;
  }
  // Destroys the object. The handle must be live.
  void Erase(Handle handle) {
    Slot& slot = slots_[handle & (kMaxObjects - 1)];
    slot.object = std::monostate{};
    slot.group = GroupId::kNone;
    // Generation 0 is never used, so that no handle is 0.
    if (++slot.generation > last_generation_) slot.generation = 1;
    free_.push_back(handle & (kMaxObjects - 1));
  }

 private:
  struct Slot {
    std::variant<std::monostate, std::unique_ptr<Context>, std::unique_ptr<ProtectionDomain>,
                 std::unique_ptr<MemoryRegion>, std::unique_ptr<MemoryWindow>,
                 std::unique_ptr<CompletionChannel>, std::unique_ptr<CompletionQueue>,
                 std::unique_ptr<SharedReceiveQueue>, std::unique_ptr<QueuePair>,
                 std::unique_ptr<AddressHandle>>
        object;
    uint32_t generation = 1;
    GroupId group = GroupId::kNone;
    Maker maker;
  };
  const Slot* SlotOf(Handle handle) const {
    const uint32_t index = handle & (kMaxObjects - 1);
    if (index >= slots_.size()) return nullptr;
    const Slot& slot = slots_[index];
    return handle == ids_.At(slot.generation << kIndexBits | index) ? &slot : nullptr;
  }

  const IdSpace ids_;
  const uint32_t last_generation_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace rdmaemu
