// The affinity of a test's own thread.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

namespace rdmaemu::runtime::testing {

inline cpu_set_t Affinity() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

}  // namespace rdmaemu::runtime::testing
