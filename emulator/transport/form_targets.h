// Forms of other hosts (train_form.h) whose payload the sender's program may copy directly to its
// destination, the memory of a program of this host. This host checks each destination before it
// names it, as for copies between two of its own programs (parking.h). The form is executed when
// its copy has ended, with all checks of any form.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "emulator/base/unfilled_form.h"
#include "emulator/transport/payload_owner.h"
#include "emulator/transport/qp_context.h"
#include "emulator/transport/train.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu::transport {

class FormTargets {
 public:
  // The most destinations that are named at a time.
  static constexpr size_t kMaxTargets = 256;

  FormTargets(VerbsDirectory& verbs, Memory& memory, PayloadOwner& payloads)
      : verbs_(verbs), memory_(memory), payloads_(payloads) {}

  // Names the destination of a request for the QP, which accepts it. All forms before it of the
  // same QP have arrived, or this function returned kNamed for them. Otherwise `form` is nullptr.
  Naming Name(QpContext& context, const Train& train, const std::shared_ptr<DirectForm>& form);
  // Takes back all destinations. Waits for copies that have begun. Call this before program memory
  // may change, and before a QP ends.
  void Withdraw();
  // Reads the payload of a form that was copied to its destination.
  Status Read(uint32_t qpn, uint32_t psn, std::span<std::byte> payload);

 private:
  struct Target {
    uint32_t qpn, psn;
    MemoryRef to;
    std::shared_ptr<DirectForm> form;
  };
  // Returns where the QP's next WRITE goes, behind the named ones.
  static WriteCursor CursorOf(const QpContext& context);

  VerbsDirectory& verbs_;
  Memory& memory_;
  PayloadOwner& payloads_;
  std::vector<Target> targets_;  // some are over
};

}  // namespace rdmaemu::transport
