// Links between hosts with fault rules: cut, slow, narrow or lossy. A link has one pipe for each
// pair of addresses and each direction that a rule selects. A pipe keeps the order of its contents.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "emulator/host/faults/host_faults.h"

namespace rdmaemu {

class LinkFaults {
 public:
  // Limit of the pipes with a state. Beyond this number, a link delays and drops packets, but has
  // no rate limit.
  static constexpr size_t kMaxPipes = 4096;

  explicit LinkFaults(HostFaults& faults) : faults_(faults) {}

  struct Verdict {
    bool is_lost = false;
    std::optional<Time> until;  // time of arrival; nothing: at once
    std::string held_by = {};   // the barrier that holds it; empty: none
  };
  // Returns the links' decision about `bytes` bytes. Between two addresses of one host, a link
  // applies on the sending side.
  Verdict Pass(Time now, fault::Direction direction, const NetAddress& source,
               const NetAddress& destination, uint64_t bytes);

 private:
  struct Pipe {
    Time free_at{}, last_arrival{};
    std::deque<Time> departures;  // departure times of queued contents
  };
  using PipeKey = std::tuple<std::string, NetAddress, NetAddress>;
  // Returns when the bytes leave a pipe of this rate. Returns nothing when the pipe's queue is
  // full.
  static std::optional<Time> Leaves(Time now, const fault::Link& link, uint64_t bytes, Pipe& pipe);

  HostFaults& faults_;
  std::map<PipeKey, Pipe> pipes_;
};

}  // namespace rdmaemu
