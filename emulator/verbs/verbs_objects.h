// How class Verbs finds, stores and destroys its objects. For its own .cc files only.
#pragma once

#include <algorithm>
#include <bit>

#include "emulator/verbs/verbs.h"

namespace rdmaemu {

template <class T>
Result<T*> Verbs::Find(GroupId group, Handle handle) const {
  const Context* const context = handles_.ContextOf(group, handle);
  if (context == nullptr || (scope_ != 0 && context->handle != scope_)) return Fail(ENOENT);
  T* object = handles_.Find<T>(group, handle);
  if (object == nullptr) return Fail(EINVAL);
  return object;
}

template <class T>
Result<T*> Verbs::Adopt(Context& context, int64_t limit, std::unique_ptr<T> object) {
  constexpr ObjectKind kKind = KindOf<T>::kKind;
  int64_t& count = device_counts_[{context.device->index, kKind}];
  if (count >= limit) return Fail(ENOMEM);
  T* kept = object.get();
  const Handle handle = handles_.Insert(context.group, std::move(object), maker_);
  if (handle == 0) return Fail(ENOMEM);
  count++;
  GroupOf(context.group).handles[static_cast<size_t>(kKind)].insert(handle);
  return kept;
}

template <class T>
void Verbs::Drop(Context& context, T& object) {
  constexpr ObjectKind kKind = KindOf<T>::kKind;
  device_counts_[{context.device->index, kKind}]--;
  GroupOf(context.group).handles[static_cast<size_t>(kKind)].erase(object.handle);
  handles_.Erase(object.handle);
}

// Returns how many requests fit into a queue that was created for `asked` requests.
inline uint32_t UsableDepth(QueueDepths depths, uint32_t asked) {
  if (depths == QueueDepths::kRing) return Ring::SlotsFor(asked) - 1;
  return asked == 0 ? 0 : std::bit_ceil(asked);
}

// Returns the depth of READs and atomics in flight as rxe and siw round it: to a power of two.
// Values that round to more than 128 become 128, because 8 bits hold no more.
inline uint8_t RoundedReads(uint8_t depth) {
  return static_cast<uint8_t>(depth == 0 ? 0 : std::min(std::bit_ceil(unsigned{depth}), 128u));
}

// Returns the error of another function. For functions that call it.
inline tl::unexpected<Error> Pass(const Error& error) { return tl::make_unexpected(error); }

}  // namespace rdmaemu
