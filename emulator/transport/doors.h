// Where a host's fault rules stand in the transports. Asked only while the flags say that somebody
// wants to know, so that nothing gets slower otherwise.
#pragma once

#include "emulator/base/time.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

struct DoorFlags {
  bool completions = false;
  // The host has something to do between two steps of the engine, which returns soon.
  bool interrupts = false;
};

// A completion on its way into its queue. Of a failed one the entry has no opcode.
struct PassingCompletion {
  QueuePair& qp;
  bool is_send;
  ibv_wc_opcode opcode;
  bool solicited;
  CqEntry entry;
};

class Doors {
 public:
  explicit Doors(const DoorFlags& its_flags) : flags(its_flags) {}
  virtual ~Doors() = default;
  // Pushes it as it is, changed, later, more than once or never. False: its queue overran.
  virtual bool Complete(Time now, PassingCompletion completion) = 0;

  const DoorFlags& flags;
};

}  // namespace rdmaemu::transport
