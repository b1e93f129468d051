// Parses the TOML text of a file or a client. The text is untrusted until it is a table. Include
// this header only in sources that read tables, because toml++ is large.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

// toml++ 3.3 asserts that a table's header begins as a key does. toml++ then reports the same
// mistake as a parse error. A file may contain anything, so this macro disables the assertion and
// the report remains.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

namespace rdmaemu {

// Returns the table, or an error text: "FILE:LINE:COLUMN: ...". Refuses text that is not ASCII. For
// other characters, toml++ 3.3 executes code that it declares unreachable
// (is_non_ascii_horizontal_whitespace, is_non_ascii_letter). Subtracts `column_shift` from the
// columns in errors. `column_shift` is the number of characters that the caller put before the
// text.
tl::expected<toml::table, std::string> ParseToml(std::string_view text, std::string_view file,
                                                 uint32_t column_shift = 0);

}  // namespace rdmaemu
