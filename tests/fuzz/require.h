// Checks that must hold for every input. When one fails, the fuzzer keeps the input.
#pragma once

#include <cstdio>
#include <cstdlib>

#define REQUIRE(condition)                                                                \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)
