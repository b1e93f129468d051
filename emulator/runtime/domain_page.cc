#include "emulator/runtime/domain_page.h"

#include <algorithm>
#include <chrono>

#include "emulator/runtime/clock.h"
#include "emulator/runtime/registry.h"

namespace rdmaemu::runtime {
namespace {

constexpr uint64_t kMagic = 0x33656d6974'6d6472;  // changes with every change of the layout

}  // namespace

DomainPage BeginDomain() {
  DomainPage page{};
  page.magic = kMagic;
  page.generation = 1;
  for (size_t i = 0; i < TimeDomain::kClocks.size(); i++) {
    page.clock_bases_ns[i] =
        Duration(std::chrono::ceil<std::chrono::seconds>(MachineTime(TimeDomain::kClocks[i])))
            .count();
  }
  return page;
}

bool IsValid(const DomainPage& page) {
  const int64_t most = Duration(TimeDomain::kMaxTime).count();
  if (page.magic != kMagic || page.offset_ns < 0 || page.offset_ns > most || page.target_ns < 0 ||
      page.target_ns > most) {
    return false;
  }
  return std::ranges::all_of(page.slots, [](const DomainSlot& slot) {
    return slot.IsFree() ||
           (slot.addresses <= TimeDomain::kMaxAddressesPerHost && slot.next_deadline_ns >= 0 &&
            slot.host[sizeof slot.host - 1] == '\0' && !CheckHostName(slot.host));
  });
}

void Put(const TimeDomain::Alarm& alarm, DomainSlot& slot) {
  slot.alarm_ns = alarm.due ? ToNs(*alarm.due) : 0;
  slot.alarm_interval_ns = alarm.interval.count();
}

TimeDomain::Alarm NextAlarm(const DomainSlot& slot, int64_t now_ns) {
  int64_t due_ns = slot.alarm_ns;
  const int64_t interval_ns = slot.alarm_interval_ns;
  const int64_t most = Duration(TimeDomain::kMaxTime).count();
  if (due_ns <= 0 || due_ns > most || interval_ns < 0 || interval_ns > most) return {};
  if (due_ns <= now_ns) {
    if (interval_ns == 0) return {};
    due_ns += ((now_ns - due_ns) / interval_ns + 1) * interval_ns;
  }
  return {Time(Duration(due_ns)), Duration(interval_ns)};
}

}  // namespace rdmaemu::runtime
