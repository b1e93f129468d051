#include "tools/cli/trace.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "tools/cli/commands.h"
#include "tools/cli/ladder/page.h"
#include "tools/trace/capture.h"
#include "tools/trace/report.h"
#include "tools/trace/select.h"
#include "tools/trace/show.h"
#include "tools/trace/summary.h"

namespace rdmaemu::cli {
namespace {

using trace_tools::Record;
using trace_tools::Trace;

// Parses a time since the first record ("1.5s", "250ms", "0s"). Returns nanoseconds.
std::optional<int64_t> ParseMoment(const std::string& text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}};
  constexpr double kMostNs = 9e18;
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  for (const auto& [name, length] : kUnits) {
    if (std::string_view(end, last) == name && number * length < kMostNs) {
      return std::llround(number * length);
    }
  }
  return std::nullopt;
}

runtime::OrMessage<std::string> ReadText(const std::string& path, size_t most, const char* limit) {
  std::ifstream file(path, std::ios::binary);
  constexpr size_t kChunkBytes = size_t{64} << 10;
  std::string text;
  // Reads on until the text is longer than allowed. A pipe has no size to ask for.
  while (file && text.size() <= most) {
    const size_t before = text.size();
    text.resize(before + kChunkBytes);
    file.read(text.data() + before, kChunkBytes);
    text.resize(before + static_cast<size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    return tl::unexpected("cannot read " + path + ": " + std::strerror(errno != 0 ? errno : EIO));
  }
  if (text.size() > most) return tl::unexpected(path + " is longer than " + limit);
  return text;
}

struct Loaded {
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<std::string> names;
  std::vector<Record> merged;
};

runtime::OrMessage<Loaded> LoadAll(const std::vector<std::string>& files) {
  Loaded loaded;
  std::vector<Trace*> traces;
  for (const std::string& file : files) {
    auto trace = LoadTrace(file);
    if (!trace) return tl::unexpected(trace.error());
    traces.push_back(trace->get());
    loaded.names.push_back(file);
    loaded.traces.push_back(std::move(*trace));
  }
  for (Trace* trace : traces) {
    if (trace->of_capture) trace_tools::AlignCapture(traces, *trace);
  }
  loaded.merged = trace_tools::Merge(traces);
  const bool has_wall_clock =
      std::ranges::any_of(traces, [](const Trace* trace) { return !trace->has_own_clock; });
  for (const Trace* trace : traces) {
    if (!trace->has_own_clock || !has_wall_clock) continue;
    fprintf(stderr,
            "note: the trace %s does not contain the time of day of its time 0; the trace is shown"
            " from the first record of the other files on\n",
            trace->name.c_str());
  }
  return loaded;
}

// Sets the times of a selection. Returns the error message, if any.
std::optional<std::string> SetMoments(const std::optional<std::string>& from,
                                      const std::optional<std::string>& to,
                                      trace_tools::Selection& selection) {
  for (const auto& [text, moment] :
       {std::pair(&from, &selection.from_ns), std::pair(&to, &selection.to_ns)}) {
    if (!*text) continue;
    *moment = ParseMoment(**text);
    if (*moment) continue;
    return "\"" + **text +
           "\" is not a moment: give a number and its unit, ns, us, ms, s, min or h, as in 1.5s";
  }
  return std::nullopt;
}

std::vector<LadderFile> LadderFilesOf(const Loaded& loaded) {
  std::vector<LadderFile> files;
  for (const auto& trace : loaded.traces) {
    const bool is_capture = trace->of_capture;
    files.push_back({trace->name,
                     is_capture       ? "capture"
                     : trace->of_host ? "host"
                                      : "program",
                     trace->records.size(), trace->is_cut, trace->has_own_clock});
  }
  return files;
}

std::set<std::string> SetOf(const std::vector<std::string>& words) {
  return {words.begin(), words.end()};
}

void PrintJson(const trace_tools::Json& json) {
  printf("%s\n", json.dump(2, ' ', false, trace_tools::Json::error_handler_t::replace).c_str());
}

}  // namespace

runtime::OrMessage<std::unique_ptr<Trace>> LoadTrace(const std::string& path) {
  auto text = ReadText(path, trace_tools::kMaxTraceBytes, "1 GiB");
  if (!text) return tl::unexpected(text.error());
  auto trace = std::make_unique<Trace>();
  const bool is_capture = trace_tools::IsCapture(*text);
  const auto read = is_capture ? trace_tools::ReadCapture(path, *text, *trace)
                               : trace_tools::ReadTrace(path, std::move(*text), *trace);
  if (!read) return tl::unexpected(read.error());
  if (trace->is_cut) {
    fprintf(stderr, "note: the last %s of %s is incomplete and is left out\n",
            is_capture ? "packet" : "line", path.c_str());
  }
  return trace;
}

runtime::OrMessage<std::vector<trace_tools::Acceptance>> LoadAcceptances(const std::string& path) {
  if (path.empty()) return std::vector<trace_tools::Acceptance>();
  const auto text = ReadText(path, trace_tools::kMaxAcceptBytes, "1 MiB");
  if (!text) return tl::unexpected(text.error());
  return trace_tools::ParseAcceptances(*text, path);
}

int TraceShow(const TraceShowRequest& request) {
  trace_tools::Selection selection{SetOf(request.objects),
                                   SetOf(request.kinds),
                                   SetOf(request.whats),
                                   SetOf(request.processes),
                                   {},
                                   {}};
  if (const auto wrong = SetMoments(request.from, request.to, selection)) {
    return Fail(kUsage, *wrong);
  }
  const auto loaded = LoadAll(request.files);
  if (!loaded) return Fail(kFailed, loaded.error());
  std::string out;
  for (const Record& record : trace_tools::Select(loaded->merged, selection)) {
    if (request.json) {
      out.append(record.text).append("\n");
    } else {
      trace_tools::AppendLine(record, loaded->merged.front().time_ns, out);
    }
    fwrite(out.data(), 1, out.size(), stdout);
    out.clear();
  }
  return 0;
}

int TraceSummary(const std::vector<std::string>& files, bool json) {
  const auto loaded = LoadAll(files);
  if (!loaded) return Fail(kFailed, loaded.error());
  const trace_tools::Summary summary = trace_tools::Summarize(loaded->merged);
  if (json) {
    PrintJson(trace_tools::SummaryJson(summary, loaded->names));
  } else {
    fputs(trace_tools::SummaryText(summary, loaded->names).c_str(), stdout);
  }
  return 0;
}

int TraceLadder(const TraceLadderRequest& request) {
  trace_tools::Selection selection;
  if (const auto wrong = SetMoments(request.from, request.to, selection)) {
    return Fail(kUsage, *wrong);
  }
  for (const std::string& file : request.files) {
    std::error_code missing;
    if (std::filesystem::equivalent(file, request.out, missing)) {
      return Fail(kUsage, "-o " + request.out + " would replace " + file + "; name another file");
    }
  }
  const auto loaded = LoadAll(request.files);
  if (!loaded) return Fail(kFailed, loaded.error());
  size_t left_out = 0;
  const std::string page =
      LadderPage(trace_tools::Select(loaded->merged, selection), LadderFilesOf(*loaded), left_out);
  std::ofstream file(request.out, std::ios::binary);
  file << page;
  file.close();
  if (!file) return Fail(kFailed, "cannot write " + request.out + ": " + std::strerror(errno));
  if (left_out > 0) {
    fprintf(stderr,
            "note: %s lacks the last %zu records, because a page has at most %zu records and %zu"
            " MiB; choose a shorter range with --from and --to\n",
            request.out.c_str(), left_out, kMaxLadderRecords, kMaxLadderBytes >> 20);
  }
  return 0;
}

int CompareAndReport(const Trace& a, const Trace& b, const std::vector<RunStatus>& statuses,
                     std::vector<trace_tools::Acceptance> acceptances,
                     const CompareOptions& options, int failed) {
  const auto canonical = trace_tools::Canonicalize(a, b, {options.timing});
  if (!canonical) return Fail(failed, canonical.error());
  trace_tools::Comparison comparison = trace_tools::Compare(canonical->first, canonical->second);
  for (const RunStatus& status : statuses) {
    if (status.a == status.b) continue;
    trace_tools::AddRunDifference(status.what, status.a, status.b, comparison);
  }
  trace_tools::Accept(acceptances, comparison);
  const trace_tools::Report report{a.name, b.name, comparison, acceptances, options.accept};
  if (!options.junit.empty()) {
    std::ofstream file(options.junit, std::ios::binary);
    file << trace_tools::ReportJunit(report);
    file.close();
    if (!file) return Fail(failed, "cannot write " + options.junit + ": " + std::strerror(errno));
  }
  if (options.json) {
    PrintJson(trace_tools::ReportJson(report));
  } else {
    fputs(trace_tools::ReportText(report).c_str(), stdout);
  }
  if (report.Open() > 0) return kDifferent;
  return report.Unused() > 0 ? kUnusedAcceptance : 0;
}

int TraceDiff(const std::string& a, const std::string& b, const CompareOptions& options) {
  auto acceptances = LoadAcceptances(options.accept);
  if (!acceptances) return Fail(kFailed, acceptances.error());
  const auto trace_a = LoadTrace(a);
  if (!trace_a) return Fail(kFailed, trace_a.error());
  const auto trace_b = LoadTrace(b);
  if (!trace_b) return Fail(kFailed, trace_b.error());
  return CompareAndReport(**trace_a, **trace_b, {}, std::move(*acceptances), options, kFailed);
}

}  // namespace rdmaemu::cli
