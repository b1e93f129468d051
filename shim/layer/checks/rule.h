// The rules of the usage checks, from rules.inc.
#pragma once

#include <cstdint>

namespace rdmaemu::layer::checks {

enum class Rule : uint16_t {
#define RULE(name, ...) k##name,
#include "shim/layer/checks/rules.inc"
#undef RULE
  kCount,
};

struct RuleText {
  const char *id, *title, *meaning, *source, *mend;
};

const RuleText& TextOf(Rule rule);

}  // namespace rdmaemu::layer::checks
