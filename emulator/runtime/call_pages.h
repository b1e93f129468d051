// The host's side of the pages by which processes call without system calls
// (emulator/abi/call_page.h). A page is hostile memory: the host copies a call before it checks the
// call. The host watches the pages of recent callers only, so a scan costs the same for any number
// of processes.
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
  // A page that was empty this many times is no longer watched. Its process then rings for its next
  // call.
  static constexpr uint32_t kMaxEmptyLooks = 1024;

  explicit CallPages(MemfdSegments& segments);

  // Returns the connection's page, and creates it at the first call. Fails with ENOMEM.
  Result<SegmentId> Share(uint32_t connection);
  void Remove(uint32_t connection);

  // `serve(connection, message)` returns a Reply, or nullopt. After nullopt the caller waits until
  // AnswerLate is called. `serve` must not call this object.
  //
  // Serves the call of a connection whose doorbell rang, and watches its page from now on.
  template <class Serve>
  void Rang(uint32_t connection, Serve&& serve);
  // Scans each watched page once. Returns true if there was a call.
  template <class Serve>
  bool Look(Serve&& serve);
  // Answers a call for which `serve` returned nullopt.
  void AnswerLate(uint32_t connection, const Reply& reply);
  // Stops watching all pages, so that callers ring. Call this before the host sleeps. Returns true
  // if a process made a call before it could see this. The page of such a call stays watched.
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
  // Stops watching a page. Returns true if a call was made at the last moment.
  static bool TurnAway(CallPage& page);
  // Stops watching a page unless a call was made at the last moment. Returns true if it stopped.
  static bool MayForget(CallPage& page);
  std::span<const std::byte> Take(const CallPage& page);
  static void Answer(CallPage& page, const Reply& reply);
  // Returns the entry for a new page: a free one, or the entry whose page was empty most often.
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
