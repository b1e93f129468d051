// The grammar of a rule as a table: the keys, the points where they are allowed, and their types.
// The reader (rule_reader.h) and the schema for editors (docs/scenario.schema.json) use it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/fault/rule.h"

namespace rdmaemu::fault {

class PointSet {
 public:
  constexpr PointSet(std::initializer_list<Point> points) {
    for (const Point point : points) bits_ |= 1u << static_cast<unsigned>(point);
  }
  static constexpr PointSet All() {
    PointSet all({});
    all.bits_ = (1u << kPoints) - 1;
    return all;
  }
  constexpr bool Has(Point point) const { return (bits_ >> static_cast<unsigned>(point) & 1) != 0; }

 private:
  uint32_t bits_ = 0;
};

enum class Role : uint8_t {
  kRule,       // the rule's name and its place
  kMatch,      // selects moments
  kFrequency,  // how often
  kAction,     // the action; a rule has one
  kDetail,     // a parameter of an action
};
enum class Shape : uint8_t { kText, kInteger, kNumber, kFlag, kTextOrInteger, kTextOrTexts };

struct Key {
  std::string_view name;
  Role role;
  Shape shape;
  PointSet points;
  std::vector<std::string> of = {};  // kDetail: the actions that it belongs to
};

std::span<const Key> Keys();
const Key* FindKey(std::string_view name);
// Returns true when the key is allowed at the point. A key that selects moments must also apply to
// the subject (empty: to any subject). For example, only REQ and SIDR_REQ have a service port.
// Calls of connection management have no device.
bool CanStand(const Key& key, Point point, std::string_view subject = {});
// Returns the names of the keys with this role that are allowed there.
std::vector<std::string> KeysAt(Point point, Role role, std::string_view subject = {});

// Converts a name such as "SIDR_REQ" or "RC CmpSwap" to the words of rules: sidr_req, rc cmp_swap.
std::string SubjectOf(std::string_view name);

// Returns a point's word before the dot, such as "cm".
const char* PointName(Point point);
std::optional<Point> PointOf(std::string_view name);
std::vector<std::string> PointNames();

// Returns true for a key whose action is a Deed. The key `device` then names the device of the
// action.
bool IsDeed(std::string_view action);

// Returns ibv_event_type in lower case, in its order: "cq_err", "qp_fatal", ...
const std::vector<std::string>& AsyncEvents();
// Returns what event `type` can become: the events for the same kind of object, and DEVICE_FATAL
// for an event of a port. An event of a queue is acknowledged to the queue, so it must stay one.
std::vector<std::string> AsyncEventsLike(size_t type);

// Returns ibv_wc_status in lower case: "success", "loc_len_err", ...
const std::vector<std::string>& CompletionStatuses();

}  // namespace rdmaemu::fault
