// The doors of connection management: messages in both directions, and events for programs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "emulator/cm/cm.h"
#include "emulator/host/faults/deferred.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/host/faults/links.h"

namespace rdmaemu {

class CmFaults {
 public:
  // Limit of the delayed and held messages. Further messages are lost.
  static constexpr size_t kMaxDelayed = 65536;

  // The next receiver of a message: the fabric, or the connection manager.
  using Door = std::function<void(Time, const cm::CmRoute&, const wire::CmMessage&)>;
  // Returns the device of an own address, empty when no device has it.
  using DeviceName = std::function<std::string(const NetAddress&)>;
  CmFaults(HostFaults& faults, LinkFaults& links, Door send, Door receive, DeviceName device_name)
      : faults_(faults),
        links_(links),
        send_(std::move(send)),
        receive_(std::move(receive)),
        device_name_(std::move(device_name)),
        deferred_(kMaxDelayed, faults.counters().delayed_messages_full) {}

  // Applies the rules to an outgoing or incoming message: forwards, delays, duplicates, changes or
  // drops the message. Returns an errno when the message cannot be sent and the host must notify
  // its sender.
  Status Pass(Time now, fault::Direction direction, const cm::CmRoute& route,
              const wire::CmMessage& message);
  // Applies the rules to an event that a program is about to fetch.
  void AtEvent(Time now, ProcessId process, std::string_view program, rdma_ucm_event_resp& event);

  // Returns the reason that hides an event from the program. Call this before the event is queued.
  cm::EventWait AtQueue(Time now, std::string_view program, uint32_t event);

  void Expire(Time now);
  auto& deferred() { return deferred_; }
  const auto& deferred() const { return deferred_; }

 private:
  struct Delayed {
    fault::Direction direction;
    cm::CmRoute route;
    wire::CmMessage message;
  };

  const Door& DoorOf(fault::Direction direction) const {
    return direction == fault::Direction::kSend ? send_ : receive_;
  }
  Status Do(Time now, const fault::Rule& rule, const Delayed& passing);
  void Reject(Time now, const fault::Reject& reject, const Delayed& passing);
  void AnswerRequest(Time now, wire::CmMessage answer, const Delayed& request);

  void PassLink(Time now, Delayed passing);

  HostFaults& faults_;
  LinkFaults& links_;
  Door send_, receive_;
  DeviceName device_name_;
  Deferred<Delayed> deferred_;
};

}  // namespace rdmaemu
