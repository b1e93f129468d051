// The host's side of the pages by which processes call without system calls
// (emulator/abi/call_page.h). Pages are hostile memory: a call is copied out before anything of it
// is believed. Which pages the host looks at follows from who has called lately, so that a look
// costs the same however many processes there are.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "emulator/abi/call_page.h"
#include "emulator/host/host.h"
#include "emulator/runtime/memfd_segments.h"

namespace rdmaemu::runtime {

class CallPages {
 public:
  static constexpr size_t kMaxWatched = 16;
  // A page that was empty so often is no longer looked at; its process rings the next time.
  static constexpr uint32_t kMaxEmptyLooks = 1024;

  explicit CallPages(MemfdSegments& segments);

  // The connection's page, made when it has none yet. ENOMEM.
  Result<SegmentId> Share(uint32_t connection);
  void Remove(uint32_t connection);

  // `serve(connection, message)` answers with a Reply, or with nothing: the caller then waits for
  // AnswerLate, or for ever. It may not call this object.
  //
  // A connection's doorbell was rung: serves its call, and looks at its page from now on.
  template <class Serve>
  void Rang(uint32_t connection, Serve&& serve);
  // One look at each watched page. True when there was a call.
  template <class Serve>
  bool Look(Serve&& serve);
  // The answer to a call that was left without one.
  void AnswerLate(uint32_t connection, const Reply& reply);
  // Before the host sleeps: pages are no longer looked at, so that callers ring. True when a call
  // had come before its process could know; its page is watched on.
  bool StopWatching();

 private:
  struct Watched {
    uint32_t connection;
    CallPage* page;
    uint32_t empty_looks;
  };
  struct Owned {
    SegmentId segment;
    CallPage* page;
  };

  template <class Serve>
  bool ServeIfAsked(uint32_t connection, CallPage& page, Serve&& serve);
  // No longer looks at a page. True when it was asked at the last moment.
  static bool TurnAway(CallPage& page);
  // The same for a page that stays watched in that case.
  static bool MayForget(CallPage& page);
  std::span<const std::byte> Take(const CallPage& page);
  static void Answer(CallPage& page, const Reply& reply);
  // Where a newcomer goes: a new place, or that of the page that was empty longest.
  Watched& PlaceForOne();

  MemfdSegments& segments_;
  std::map<uint32_t, Owned> pages_;
  std::vector<Watched> watched_;
  std::vector<std::byte> message_;
};

template <class Serve>
bool CallPages::ServeIfAsked(uint32_t connection, CallPage& page, Serve&& serve) {
  if (page.State() != CallPage::kAsked) return false;
  const std::optional<Reply> reply = serve(connection, Take(page));
  if (reply) {
    Answer(page, *reply);
  } else {
    page.MarkTaken();
  }
  return true;
}

template <class Serve>
void CallPages::Rang(uint32_t connection, Serve&& serve) {
  const auto it = pages_.find(connection);
  if (it == pages_.end()) return;
  CallPage& page = *it->second.page;
  const auto known = std::ranges::find(watched_, connection, &Watched::connection);
  if (known == watched_.end()) {
    Watched& place = PlaceForOne();
    const Watched before = std::exchange(place, Watched{connection, &page, 0});
    if (before.page != nullptr && TurnAway(*before.page)) {
      ServeIfAsked(before.connection, *before.page, serve);
    }
  }
  std::atomic_ref(page.host_looks).store(1, std::memory_order_seq_cst);
  ServeIfAsked(connection, page, serve);
}

template <class Serve>
bool CallPages::Look(Serve&& serve) {
  bool found = false;
  for (size_t i = 0; i < watched_.size();) {
    Watched& watched = watched_[i];
    if (ServeIfAsked(watched.connection, *watched.page, serve)) {
      watched.empty_looks = 0;
      found = true;
    } else if (++watched.empty_looks > kMaxEmptyLooks && MayForget(*watched.page)) {
      watched = watched_.back();
      watched_.pop_back();
      continue;
    }
    i++;
  }
  return found;
}

}  // namespace rdmaemu::runtime
