// Events and completions for tests: the next one, or the reason why none will arrive. Header only.
// Works without a test framework. Failures are reported through Fail (framework.hpp).
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

// How long a test waits for an event or a completion, in the machine's time. On an embedded host,
// only time without any activity counts. There, a wait that nothing can end fails at once.
// RDMAEMU_TEST_TIMEOUT_MS sets another limit.
inline constexpr int kWaitLimit_ms = 30'000;
inline int WaitLimit_ms() {
  const char* const given = std::getenv("RDMAEMU_TEST_TIMEOUT_MS");
  const int limit_ms = given == nullptr ? 0 : std::atoi(given);
  return limit_ms > 0 ? limit_ms : kWaitLimit_ms;
}

// A CM event. The destructor acknowledges the event.
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
  // Acknowledges the event. Afterwards the event's id can be destroyed.
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

// Returns true when the event or completion matches. Without a status or an opcode, every value of
// it matches.
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

// A host process and a machine's device deliver events at times of their own.
inline bool AwaitReadable(int fd) {
  if (CurrentBackend() == Backend::kEmbedded) return true;  // rdma_get_cm_event detects EDEADLK
  pollfd waits{fd, POLLIN, 0};
  return poll(&waits, 1, WaitLimit_ms()) != 0;
}

}  // namespace detail

// Returns the channel's next event. When no event can arrive, reports a failure with the reason and
// returns no event. An embedded host detects this by EDEADLK, the other backends after
// WaitLimit_ms().
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

// Returns the queue's next completion. When no completion can arrive, reports a failure with the
// reason and returns nothing. An embedded host detects this by EDEADLK, the other backends after
// WaitLimit_ms().
inline std::optional<ibv_wc> NextCompletion(ibv_cq* cq) {
  using Milliseconds = std::chrono::milliseconds;
  constexpr int kStep_ms = 1;
  constexpr int kLooksBetweenSleeps = 1000;  // without an embedded host, whose wait sleeps
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
