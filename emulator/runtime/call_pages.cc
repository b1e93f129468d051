#include "emulator/runtime/call_pages.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

namespace rdmaemu::runtime {

CallPages::CallPages(MemfdSegments& segments)
    : segments_(segments), message_(sizeof(CallHeader) + CallPage::kMaxInBytes) {}

Result<SegmentId> CallPages::Share(uint32_t connection) {
  if (const auto it = pages_.find(connection); it != pages_.end()) return it->second.segment;
  const Result<Segment> segment = segments_.CreateSegment(sizeof(CallPageSet));
  if (!segment) return Fail(ENOMEM);
  // The segment has only zeroes, as a new set. Pages that no thread uses take no memory.
  auto* const set = reinterpret_cast<CallPageSet*>(segment->bytes.data());
  pages_[connection] = {segment->id, set};
  return segment->id;
}

void CallPages::Remove(uint32_t connection) {
  const auto it = pages_.find(connection);
  if (it == pages_.end()) return;
  std::erase_if(watched_, [&](const Watched& watched) { return watched.connection == connection; });
  segments_.DestroySegment(it->second.segment);
  pages_.erase(it);
}

bool CallPages::FindAsked() {
  bool found = false;
  for (size_t i = 0; i < watched_.size();) {
    Watched& watched = watched_[i];
    watched.asked = watched.page->State() == CallPage::kAsked;
    if (watched.asked) {
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

void CallPages::AnswerLate(uint32_t connection, uint32_t page, const Reply& reply) {
  const auto it = pages_.find(connection);
  if (it == pages_.end() || page >= CallPageSet::kPages) return;
  CallPage& asked = it->second.set->pages[page];
  if (asked.State() == CallPage::kTaken && Answer(asked, reply) == CallPage::kSleeps) Wake(asked);
}

CallPages::Watched& CallPages::PlaceForOne() {
  if (watched_.size() < kMaxWatched) return watched_.emplace_back(Watched{0, 0, nullptr, 0, false});
  return *std::ranges::max_element(watched_, {}, &Watched::empty_looks);
}

bool CallPages::StopWatching() {
  std::erase_if(watched_, [](const Watched& watched) { return MayForget(*watched.page); });
  return !watched_.empty();
}

bool CallPages::MayForget(CallPage& page) {
  if (!TurnAway(page)) return true;
  std::atomic_ref(page.host_looks).store(1, std::memory_order_seq_cst);
  return false;
}

bool CallPages::TurnAway(CallPage& page) {
  std::atomic_ref(page.host_looks).store(0, std::memory_order_seq_cst);
  return page.State() == CallPage::kAsked;
}

std::span<const std::byte> CallPages::Take(const CallPage& page) {
  CallHeader header;
  std::memcpy(&header, &page.call, sizeof header);
  // A size that does not fit is cut. It then differs from the header's size, so the host rejects
  // the call.
  const size_t size = std::min<size_t>(header.size, CallPage::kMaxInBytes);
  std::memcpy(message_.data(), &header, sizeof header);
  std::memcpy(message_.data() + sizeof header, page.in, size);
  return {message_.data(), sizeof header + size};
}

uint32_t CallPages::Answer(CallPage& page, const Reply& reply) {
  const size_t size = std::min(reply.body.size(), CallPage::kMaxOutBytes);
  page.reply = {reply.error, static_cast<uint32_t>(size), 0, 0};
  std::copy_n(reply.body.data(), size, page.out);  // a reply may have no body
  return page.MarkAnswered();
}

void CallPages::Wake(CallPage& page) {
  syscall(SYS_futex, &page.state, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void CallPages::WakeAll() {
  for (CallPage* const page : to_wake_) Wake(*page);
  to_wake_.clear();
}

}  // namespace rdmaemu::runtime
