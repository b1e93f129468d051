// Events and completions for tests: the next one, or the reason why there is none. Header only,
// without a test framework; failures go to Fail (framework.hpp).
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdmaemu/backend.hpp>
#include <rdmaemu/framework.hpp>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

namespace rdmaemu::testing {

// How long an event or a completion is awaited, of the machine's time. On an embedded host this is
// the time in which nothing happens at all. There a wait that nothing can end fails at once.
// RDMAEMU_TEST_TIMEOUT_MS sets another limit.
inline constexpr int kWaitLimit_ms = 30'000;
inline int WaitLimit_ms() {
  const char* const given = std::getenv("RDMAEMU_TEST_TIMEOUT_MS");
  const int limit_ms = given == nullptr ? 0 : std::atoi(given);
  return limit_ms > 0 ? limit_ms : kWaitLimit_ms;
}

// An event of RDMA CM, which its destructor acknowledges.
struct AcknowledgeEvent {
  void operator()(rdma_cm_event* event) const { rdma_ack_cm_event(event); }
};
class Event {
 public:
  Event() = default;
  explicit Event(rdma_cm_event* event) : event_(event) {}
  explicit operator bool() const { return event_ != nullptr; }
  const rdma_cm_event* operator->() const { return event_.get(); }
  const rdma_cm_event& operator*() const { return *event_; }
  // From then on the event's id can be destroyed.
  void Acknowledge() { event_.reset(); }

 private:
  std::unique_ptr<rdma_cm_event, AcknowledgeEvent> event_;
};

inline std::string Describe(const Event& event) {
  if (!event) return "no event";
  return std::string(rdma_event_str(event->event)) + ", status " + std::to_string(event->status);
}

inline std::string Describe(const std::optional<ibv_wc>& completion) {
  if (!completion) return "no completion";
  return "\"" + std::string(ibv_wc_status_str(completion->status)) + "\", opcode " +
         std::to_string(completion->opcode) + ", wr_id " + std::to_string(completion->wr_id) +
         ", " + std::to_string(completion->byte_len) + " bytes";
}

inline std::ostream& operator<<(std::ostream& out, const Event& event) {
  return out << Describe(event);
}

// Whether the event or completion is this one. Without a status or an opcode: any.
inline bool Is(const Event& event, rdma_cm_event_type type,
               std::optional<int> status = std::nullopt) {
  return event && event->event == type && (!status || event->status == *status);
}
inline bool Is(const std::optional<ibv_wc>& completion, ibv_wc_status status,
               std::optional<ibv_wc_opcode> opcode = std::nullopt) {
  if (!completion || completion->status != status) return false;
  // The opcode of a completion with an error is undefined (ibv_poll_cq(3)).
  return !opcode || status != IBV_WC_SUCCESS || completion->opcode == *opcode;
}

namespace detail {

inline std::string LimitText() { return std::to_string(WaitLimit_ms()) + " ms"; }

// A host process and a machine's device bring events in their own time.
inline bool AwaitReadable(int fd) {
  if (CurrentBackend() == Backend::kEmbedded) return true;  // rdma_get_cm_event finds the deadlock
  pollfd waits{fd, POLLIN, 0};
  return poll(&waits, 1, WaitLimit_ms()) != 0;
}

}  // namespace detail

// The channel's next event. When none can come, the test fails with the reason, and the result is
// no event: at EDEADLK on an embedded host, after WaitLimit_ms() on the other backends.
inline Event NextEvent(rdma_event_channel* channel) {
  if (!detail::AwaitReadable(channel->fd)) {
    Fail("no event comes: none came in " + detail::LimitText());
    return Event();
  }
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(channel, &event) == 0) return Event(event);
  Fail("no event comes: " + std::string(errno == EDEADLK
                                            ? "nothing is due on this host that could bring one"
                                            : std::strerror(errno)));
  return Event();
}

// The next completion of the queue. When none can come, the test fails with the reason, and the
// result is empty: at EDEADLK on an embedded host, after WaitLimit_ms() on the other backends.
inline std::optional<ibv_wc> NextCompletion(ibv_cq* cq) {
  using Milliseconds = std::chrono::milliseconds;
  constexpr int kStep_ms = 1;
  constexpr int kLooksBetweenSleeps = 1000;  // without an embedded host, whose wait is the sleep
  const auto begin = std::chrono::steady_clock::now();
  const Milliseconds limit(WaitLimit_ms());
  Milliseconds stalled(0);
  ibv_wc completion = {};
  for (int looks = 1, waited = 0;; looks++) {
    const int count = ibv_poll_cq(cq, 1, &completion);
    if (count > 0) return completion;
    std::string why;
    if (count < 0) {
      why = "ibv_poll_cq failed";
    } else if (waited == -EDEADLK) {
      why = "nothing is due on this host that could bring one";
    } else if (stalled >= limit) {
      why = "none came in " + detail::LimitText();
    }
    if (!why.empty()) {
      Fail("no completion comes: " + why);
      return std::nullopt;
    }
    waited = rdmaemu_wait(kStep_ms);
    if (waited == 0) {
      stalled = Milliseconds(0);
    } else if (waited == -ETIMEDOUT) {
      stalled += Milliseconds(kStep_ms);
    } else if (waited != -EDEADLK && looks % kLooksBetweenSleeps == 0) {
      poll(nullptr, 0, kStep_ms);
      stalled = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begin);
    }
  }
}

}  // namespace rdmaemu::testing
