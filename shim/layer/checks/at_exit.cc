// Reports the remaining objects when the program calls exit(3) or returns from main.
#include <map>

#include "shim/layer/checks/install.h"
#include "shim/layer/checks/objects.h"

namespace rdmaemu::layer::checks {
namespace {

// librdmacm creates the queue pair of rdma_create_qp, and the program destroys it.
bool IsPrograms(const Object& object) { return object.is_programs; }
bool IsPrograms(const Qp& qp) {
  return qp.is_programs || std::string_view(qp.made_by).starts_with("rdma_create_qp");
}

// Reports the objects of a type, once for each place that created some. `rule_of` returns the rule
// of an object.
template <class T, class RuleOf>
void CheckLeft(RuleOf rule_of) {
  struct Left {
    const T* first;
    uint64_t count;
  };
  std::map<std::pair<Rule, const void*>, Left> left;
  All<T>().ForEachAlive([&](const T& object) {
    if (!IsPrograms(object) || object.generation != Generation()) return;
    const void* const place = object.site.count > 0 ? object.site.frames[0] : nullptr;
    left.try_emplace({rule_of(object), place}, Left{&object, 0}).first->second.count++;
  });
  for (const auto& [key, each] : left) ReportLeft(key.first, *each.first, each.count);
}

template <class T>
void CheckLeft(Rule rule) {
  CheckLeft<T>([rule](const T&) { return rule; });
}

}  // namespace

void CheckAtExit() {
  const Section section;
  if (!section) return;
  CheckLeft<Event>(Rule::kEXIT_001);
  CheckLeft<Id>([](const Id& id) { return id.failed >= 0 ? Rule::kCM_009 : Rule::kEXIT_002; });
  CheckLeft<EventChannel>(Rule::kEXIT_003);
  CheckLeft<Qp>(Rule::kEXIT_004);
  CheckLeft<Cq>(Rule::kEXIT_005);
  CheckLeft<CompChannel>(Rule::kEXIT_006);
  CheckLeft<Mr>(Rule::kEXIT_007);
  CheckLeft<Pd>(Rule::kEXIT_008);
  CheckLeft<Srq>(Rule::kEXIT_009);
  CheckLeft<Ah>(Rule::kEXIT_010);
  CheckLeft<Context>(Rule::kEXIT_011);
  CheckLeft<DeviceList>(Rule::kEXIT_012);
}

}  // namespace rdmaemu::layer::checks
