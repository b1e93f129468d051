// The grammar of a rule as a table: which keys there are, at which points they stand, and what each
// is. The reader (rule_reader.h) and the schema for editors (docs/scenario.schema.json) follow it.
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
  kRule,       // its name and its place
  kMatch,      // which moments
  kFrequency,  // how often
  kAction,     // what happens; a rule has one
  kDetail,     // of an action
};
enum class Shape : uint8_t { kText, kInteger, kNumber, kFlag, kTextOrInteger, kTextOrTexts };

struct Key {
  std::string_view name;
  Role role;
  Shape shape;
  PointSet points;
  std::vector<std::string> of = {};  // kDetail: the actions that it goes with
};

std::span<const Key> Keys();
const Key* FindKey(std::string_view name);
// Whether the key can stand at the point, and where it says which moments, whether any of those of
// this subject (empty: of whichever) could be meant: of CM messages a REQ and a SIDR_REQ alone name
// a service port, and calls of connection management have no device.
bool CanStand(const Key& key, Point point, std::string_view subject = {});
// Names of the keys with this role that can stand there.
std::vector<std::string> KeysAt(Point point, Role role, std::string_view subject = {});

// "cm": the word of a point before the dot.
const char* PointName(Point point);
std::optional<Point> PointOf(std::string_view name);
std::vector<std::string> PointNames();

// A key whose action is a Deed: it can stand anywhere, and `device` beside it names whose it is.
bool IsDeed(std::string_view action);

// ibv_event_type in small letters, in its order: "cq_err", "qp_fatal", ...
const std::vector<std::string>& AsyncEvents();
// Those of the same kind of object as this one.
std::vector<std::string> AsyncEventsLike(size_t type);

// ibv_wc_status in small letters: "success", "loc_len_err", ...
const std::vector<std::string>& CompletionStatuses();

}  // namespace rdmaemu::fault
