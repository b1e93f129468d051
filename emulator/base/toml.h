// TOML text of a file or a client, hostile until it is a table. For sources that read tables: its
// header is large.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>

// toml++ 3.3 asserts that a table's header begins as a key does, and reports the same as an error
// of the file right after it: files are not the program's own, so the report is what counts.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

namespace rdmaemu {

// The table, or what is wrong: "FILE:LINE:COLUMN: ...". The text is ASCII: other characters lead
// toml++ 3.3 to code that it says is never reached (is_non_ascii_horizontal_whitespace,
// is_non_ascii_letter). Columns are told less `column_shift`, which a caller has put before the
// text.
tl::expected<toml::table, std::string> ParseToml(std::string_view text, std::string_view file,
                                                 uint32_t column_shift = 0);

}  // namespace rdmaemu
