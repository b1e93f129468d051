// The doors of connection management: messages in both directions, and events that programs get.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/cm/cm.h"
#include "emulator/host/faults.h"
#include "emulator/host/faults_links.h"

namespace rdmaemu {

class CmFaults {
 public:
  // Messages that wait for their time, or for somebody who lets go; more are lost.
  static constexpr size_t kMaxDelayed = 65536;

  // Where messages go on to: the fabric, and the connection manager.
  using Door = std::function<void(Time, const cm::CmRoute&, const wire::CmMessage&)>;
  // The device of an own address; empty when none has it.
  using DeviceName = std::function<std::string(const NetAddress&)>;
  CmFaults(HostFaults& faults, LinkFaults& links, Door send, Door receive, DeviceName device_name)
      : faults_(faults),
        links_(links),
        send_(std::move(send)),
        receive_(std::move(receive)),
        device_name_(std::move(device_name)) {}

  // A message on its way out or in: passes on, later, more than once, changed, or not at all. An
  // errno: it fails to leave, and its sender is to be told.
  Status Pass(Time now, fault::Direction direction, const cm::CmRoute& route,
              const wire::CmMessage& message);
  // An event that a program is about to get.
  void AtEvent(Time now, ProcessId process, std::string_view program, rdma_ucm_event_resp& event);

  // An event that is about to be queued: what keeps it from the program.
  cm::EventWait AtQueue(Time now, std::string_view program, uint32_t event);

  // What barriers hold goes on in its order, with the next look at what is due.
  void LetGo(Time now, const fault::Release& release);
  const auto& held() const { return held_; }

  void Expire(Time now);
  std::optional<Time> NextDeadline() const;

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
  bool HasRoom();
  void Postpone(Time until, Delayed message);
  void Hold(std::string_view rule, Delayed message);
  void Reject(Time now, const fault::Reject& reject, const Delayed& passing);
  void AnswerRequest(Time now, wire::CmMessage answer, const Delayed& request);

  void PassLink(Time now, Delayed passing);

  HostFaults& faults_;
  LinkFaults& links_;
  Door send_, receive_;
  DeviceName device_name_;
  std::multimap<Time, Delayed> delayed_;
  fault::Held<Delayed> held_;
};

}  // namespace rdmaemu
