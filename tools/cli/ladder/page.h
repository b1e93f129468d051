// Makes the page of `rdmaemu trace ladder`: one HTML file with its style, its script and the
// records of traces. docs/ladder.md describes the page. No function here does I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/trace/record.h"

namespace rdmaemu::cli {

// Limits of one page. A browser draws a page of this size without delay. The page omits records
// behind a limit, and shows their number.
inline constexpr size_t kMaxLadderRecords = 250'000;
inline constexpr size_t kMaxLadderBytes = size_t{256} << 20;

struct LadderFile {
  std::string name;
  std::string_view kind;  // "host", "program" or "capture"
  size_t records = 0;
  bool is_cut = false;         // the page omits its last line, which was cut
  bool has_own_clock = false;  // its times do not count from 1970
};

// A source file of the page. The build embeds the files of this folder (BUILD).
struct LadderSource {
  std::string_view file_name, text;
};
const std::vector<LadderSource>& LadderSources();

// Returns the page. `records` are merged, so sorted by time, and their `file` is an index of
// `files`. Sets `left_out` to the number of records behind a limit.
std::string LadderPage(const std::vector<trace_tools::Record>& records,
                       const std::vector<LadderFile>& files, size_t& left_out);

}  // namespace rdmaemu::cli
