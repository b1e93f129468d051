// The host's side of the pages by which processes call without system calls
// (emulator/abi/call_page.h). A page is hostile memory: the host copies a call before it checks the
// call. The host watches only the pages of recent calls, so a scan costs the same for any number of
// processes.
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
  static constexpr size_t kMaxWatched = 32;
  // The host stops watching a page after this many consecutive scans without a call. The page's
  // process then rings the doorbell for its next call there.
  static constexpr uint32_t kMaxEmptyLooks = 1024;

  struct Served {
    bool any = false;               // call
    bool awaits_processor = false;  // an answered caller waits for the host's processor

    Served& operator|=(const Served& other) {
      any |= other.any;
      awaits_processor |= other.awaits_processor;
      return *this;
    }
  };

  explicit CallPages(MemfdSegments& segments);

  // Returns the connection's CallPageSet, and creates it at the first call. Fails with ENOMEM.
  Result<SegmentId> Share(uint32_t connection);
  void Remove(uint32_t connection);

  // `serve(connection, page, message)` returns a Reply, or nullopt. After nullopt the caller waits
  // until AnswerLate is called. `serve` must not call this object.
  //
  // Starts watching the pages with a call of a connection whose doorbell rang. If no entry is free,
  // stops watching another page, and serves that page's call.
  template <class ServeOne>
  void Rang(uint32_t connection, ServeOne&& serve);
  // Scans each watched page once. Returns true if there was a call.
  bool FindAsked();
  // Serves the calls that FindAsked found. Wakes up sleeping callers after the last call, because a
  // caller on this processor runs before the host goes on.
  template <class ServeOne>
  Served Serve(ServeOne&& serve);
  // Sends the reply to a call for which `serve` returned nullopt.
  void AnswerLate(uint32_t connection, uint32_t page, const Reply& reply);
  // Stops watching all pages, so that callers ring the doorbell. Call this before the host sleeps.
  // Returns true if a process made a call before it could see this. The page of such a call stays
  // watched.
  bool StopWatching();

 private:
  struct Watched {
    uint32_t connection;
    uint32_t number;  // of the page in the connection's set
    CallPage* page;
    uint32_t empty_looks;
    bool asked;  // whether FindAsked found a call
  };
  struct Owned {
    SegmentId segment;
    CallPageSet* set;
  };

  template <class ServeOne>
  Served ServeIfAsked(const Watched& watched, ServeOne&& serve);
  template <class ServeOne>
  void Watch(uint32_t connection, uint32_t number, CallPage& page, ServeOne&& serve);
  // Stops watching a page. Returns true if a call was made meanwhile.
  static bool TurnAway(CallPage& page);
  // Stops watching a page unless a call was made meanwhile. Returns true if it stopped.
  static bool MayForget(CallPage& page);
  std::span<const std::byte> Take(const CallPage& page);
  // Returns how the caller waits (CallPage::caller_waits). Call Wake if it sleeps.
  static uint32_t Answer(CallPage& page, const Reply& reply);
  static void Wake(CallPage& page);
  void WakeAll();
  // Returns the entry for a new page: a free one, or the entry whose page was empty most often.
  Watched& PlaceForOne();

  MemfdSegments& segments_;
  std::map<uint32_t, Owned> pages_;
  std::vector<Watched> watched_;
  std::vector<CallPage*> to_wake_;  // pages with an answer whose callers sleep
  std::vector<std::byte> message_;
};

template <class ServeOne>
CallPages::Served CallPages::ServeIfAsked(const Watched& watched, ServeOne&& serve) {
  CallPage& page = *watched.page;
  if (page.State() != CallPage::kAsked) return {};
  const std::optional<Reply> reply = serve(watched.connection, watched.number, Take(page));
  if (!reply) {
    page.MarkTaken();
    return {.any = true};
  }
  const uint32_t waits = Answer(page, *reply);
  if (waits == CallPage::kSleeps) to_wake_.push_back(&page);
  return {.any = true, .awaits_processor = waits == CallPage::kYieldsHere};
}

template <class ServeOne>
void CallPages::Rang(uint32_t connection, ServeOne&& serve) {
  const auto it = pages_.find(connection);
  if (it == pages_.end()) return;
  uint32_t number = 0;
  for (CallPage& page : it->second.set->UsedPages()) {
    if (page.State() == CallPage::kAsked) Watch(connection, number, page, serve);
    number++;
  }
  WakeAll();
}

template <class ServeOne>
void CallPages::Watch(uint32_t connection, uint32_t number, CallPage& page, ServeOne&& serve) {
  if (std::ranges::find(watched_, &page, &Watched::page) == watched_.end()) {
    Watched& place = PlaceForOne();
    const Watched before = std::exchange(place, Watched{connection, number, &page, 0, false});
    if (before.page != nullptr && TurnAway(*before.page)) ServeIfAsked(before, serve);
  }
  std::atomic_ref(page.host_looks).store(1, std::memory_order_seq_cst);
}

template <class ServeOne>
CallPages::Served CallPages::Serve(ServeOne&& serve) {
  Served served;
  for (size_t i = 0; i < watched_.size(); i++) {
    Watched& watched = watched_[i];
    if (std::exchange(watched.asked, false)) served |= ServeIfAsked(watched, serve);
  }
  WakeAll();
  return served;
}

}  // namespace rdmaemu::runtime
