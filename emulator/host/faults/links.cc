#include "emulator/host/faults/links.h"

#include <algorithm>

namespace rdmaemu {

LinkFaults::Verdict LinkFaults::Pass(Time now, fault::Direction direction, const NetAddress& source,
                                     const NetAddress& destination, uint64_t bytes) {
  if (!faults_.Watches(fault::Point::kLink)) return {};
  const bool sends = direction == fault::Direction::kSend;
  fault::Moment moment{};
  moment.point = fault::Point::kLink;
  moment.now = now;
  moment.direction = direction;
  moment.local = sends ? source : destination;
  moment.remote = sends ? destination : source;
  const fault::Rule* const rule = faults_.Decide(moment);
  if (rule == nullptr) return {};
  if (std::holds_alternative<fault::Hold>(rule->action)) {
    return {.is_lost = false, .until = {}, .held_by = rule->name};
  }
  const auto& link = std::get<fault::Link>(rule->action);
  if (link.partition || fault::LosesAlone(rule->action) ||
      (link.loss > 0 && faults_.Draw(*rule, moment) < link.loss)) {
    return {.is_lost = true, .until = {}};
  }
  Duration latency = link.latency;
  if (link.jitter > Duration::zero()) {
    latency += Duration(static_cast<Duration::rep>(faults_.Draw(*rule, moment) *
                                                   static_cast<double>(link.jitter.count())));
  }
  PipeKey key{rule->name, source, destination};
  if (pipes_.size() >= kMaxPipes && !pipes_.contains(key)) {
    return {.is_lost = false, .until = now + latency};
  }
  Pipe& pipe = pipes_[std::move(key)];
  const std::optional<Time> leaves = Leaves(now, link, bytes, pipe);
  if (!leaves) return {.is_lost = true, .until = {}};
  pipe.last_arrival = std::max(pipe.last_arrival, *leaves + latency);
  if (pipe.last_arrival <= now) return {};
  return {.is_lost = false, .until = pipe.last_arrival};
}

std::optional<Time> LinkFaults::Leaves(Time now, const fault::Link& link, uint64_t bytes,
                                       Pipe& pipe) {
  if (link.rate_mbps == 0) return now;
  while (!pipe.departures.empty() && pipe.departures.front() <= now) pipe.departures.pop_front();
  if (pipe.departures.size() >= link.queue_packets) return std::nullopt;
  // At 1 Mbit/s one bit takes one microsecond.
  const auto takes = Duration(static_cast<Duration::rep>(bytes * 8 * 1000 / link.rate_mbps));
  pipe.free_at = std::max(pipe.free_at, now) + takes;
  pipe.departures.push_back(pipe.free_at);
  return pipe.free_at;
}

}  // namespace rdmaemu
