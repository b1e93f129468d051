#include "tests/sim/tally.h"

namespace rdmaemu::sim {
namespace {

constexpr std::string_view kRequired[] = {
    "network.lost",      "network.repeated", "network.reordered", "network.delayed",
    "network.corrupted", "network.refused",  "op.SEND",           "status.success",
};

}  // namespace

std::vector<std::string> Tally::Missing() const {
  std::vector<std::string> missing;
  for (const std::string_view what : kRequired) {
    if (Of(what) == 0) missing.emplace_back(what);
  }
  return missing;
}

std::string Tally::ToText() const {
  std::string text;
  for (const auto& [what, times] : counts_) {
    text += "  " + what + std::string(what.size() < 44 ? 44 - what.size() : 1, ' ') +
            std::to_string(times) + "\n";
  }
  return text;
}

}  // namespace rdmaemu::sim
