// Links between hosts, as rules have them: cut, slow, narrow or lossy. A link is a pipe for each
// pair of addresses and direction that a rule means; what goes through it keeps its order.
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
  // Pipes that remember what is in them; beyond, a link delays and loses, but has no rate.
  static constexpr size_t kMaxPipes = 4096;

  explicit LinkFaults(HostFaults& faults) : faults_(faults) {}

  struct Verdict {
    bool is_lost = false;
    std::optional<Time> until;  // it comes then; nothing: at once
    std::string held_by = {};   // the barrier that it waits at; empty: none
  };
  // Something of so many bytes on its way. Between two addresses of one host a link stands where it
  // is sent.
  Verdict Pass(Time now, fault::Direction direction, const NetAddress& source,
               const NetAddress& destination, uint64_t bytes);

 private:
  struct Pipe {
    Time free_at{}, last_arrival{};
    std::deque<Time> departures;  // of what waits to leave
  };
  using PipeKey = std::tuple<std::string, NetAddress, NetAddress>;
  // When it leaves a pipe of this rate; nothing: its queue is full.
  static std::optional<Time> Leaves(Time now, const fault::Link& link, uint64_t bytes, Pipe& pipe);

  HostFaults& faults_;
  std::map<PipeKey, Pipe> pipes_;
};

}  // namespace rdmaemu
