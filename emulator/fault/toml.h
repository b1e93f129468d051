// toml++ as this folder uses it.
#pragma once

// toml++ 3.3 asserts that a table's header begins as a key does, and reports the same as an error
// of the file right after it: files are not the program's own, so the report is what counts.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>
