#include "tools/trace/report.h"
#include "tools/trace/junit.h"

#include <algorithm>
#include <map>

#include "tools/trace/show.h"

namespace rdmaemu::trace_tools {
namespace {

// The report cuts longer parts of a record. Lines below the record show parts that differ as a
// whole.
constexpr size_t kShownPartBytes = 60;

// A row of the table. Its differences are equal except for the object and the place.
struct Row {
  std::string what, difference, accepted;
  size_t count = 0;
  const Difference* first = nullptr;
};

std::string OrNone(const std::string& value) { return value.empty() ? "(none)" : value; }

std::string Explain(const Difference& difference) {
  if (!difference.b) return "only in a";
  if (!difference.a) return "only in b";
  std::string text;
  for (const PartDifference& part : difference.parts) {
    text += (text.empty() ? "" : "; ") + part.part + ": " + OrNone(part.a) + " | " + OrNone(part.b);
  }
  return text;
}

std::string LineOf(const std::optional<Item>& item) {
  return item && item->line > 0 ? std::to_string(item->line) : "-";
}

std::vector<Row> RowsOf(const Comparison& comparison) {
  std::vector<Row> rows;
  std::map<std::string, size_t> known;
  for (const Difference& difference : comparison.differences) {
    Row row{difference.head, Explain(difference), difference.accepted, 0, &difference};
    const auto [it, is_new] =
        known.try_emplace(row.what + "\n" + row.difference + "\n" + row.accepted, rows.size());
    if (is_new) rows.push_back(row);
    rows[it->second].count++;
  }
  return rows;
}

void AppendFirst(const Difference& first, std::string& out) {
  out += "first difference: " + StreamText(first.stream) + ", after " +
         std::to_string(first.equal_before) +
         (first.equal_before == 1 ? " equal record\n" : " equal records\n");
  const auto line = [&](const char* mark, const std::string& lines, const std::string& text) {
    out += std::string("  ") + mark + " ";
    AppendColumn(lines, 13, out);
    out += ItemLine(text, kShownPartBytes) + "\n";
  };
  for (size_t i = 0; i < first.context_a.size(); i++) {
    line(" ", std::to_string(first.context_a[i].line) + " | " + std::to_string(first.context_b[i]),
         first.context_a[i].text);
  }
  if (first.a) line("a", LineOf(first.a), first.a->text);
  if (!first.a) line("a", "-", "(no such record)");
  if (first.b) line("b", LineOf(first.b), first.b->text);
  if (!first.b) line("b", "-", "(no such record)");
  for (const PartDifference& part : first.parts) {
    out += "    " + part.part + ": a has " + OrNone(part.a) + ", b has " + OrNone(part.b) + "\n";
  }
  out += "\n";
}

void AppendTableOf(const std::vector<Row>& rows, std::string& out) {
  size_t what = 4, difference = 10;
  for (const Row& row : rows) {
    what = std::max(what, row.what.size());
    difference = std::max(difference, std::min<size_t>(row.difference.size(), 60));
  }
  const auto append = [&](const std::string& count, const std::string& name,
                          const std::string& found, const std::string& where) {
    if (count.size() < 5) out.append(5 - count.size(), ' ');
    out += count + "  ";
    AppendColumn(name, what, out);
    AppendColumn(found, difference, out);
    out += where + "\n";
  };
  append("count", "what", "difference", "first at (lines of a | b)");
  for (const Row& row : rows) {
    append(
        std::to_string(row.count), row.what, row.difference,
        LineOf(row.first->a) + " | " + LineOf(row.first->b) + "  " + StreamText(row.first->stream));
    if (!row.accepted.empty()) out += "       accepted: " + Printable(row.accepted) + "\n";
  }
  out += "\n";
}

std::string Count(size_t count, const char* of) {
  return std::to_string(count) + " " + of + (count == 1 ? "" : "s");
}

Json SideJson(const std::optional<Item>& item) {
  if (!item) return nullptr;
  Json side = {{"text", ItemLine(item->text)}};
  if (item->line > 0) side["line"] = item->line;
  return side;
}

Json DifferenceJson(const Difference& difference) {
  const size_t space = std::min(difference.head.find(' '), difference.head.size());
  Json json = {{"kind", difference.head.substr(0, space)},
               {"what", difference.head.substr(std::min(space + 1, difference.head.size()))},
               {"process", difference.stream.process}};
  if (difference.stream.thread != 0) json["thread"] = difference.stream.thread;
  if (!difference.stream.object.empty()) json["object"] = difference.stream.object;
  json["a"] = SideJson(difference.a);
  json["b"] = SideJson(difference.b);
  json["parts"] = Json::array();
  for (const PartDifference& part : difference.parts) {
    json["parts"].push_back({{"part", part.part}, {"a", part.a}, {"b", part.b}});
  }
  json["accepted"] = difference.accepted.empty() ? Json() : Json(difference.accepted);
  return json;
}

constexpr const char* kJunitClass = "rdmaemu trace diff";

}  // namespace

size_t Report::Open() const {
  return static_cast<size_t>(std::ranges::count_if(
      comparison.differences, [](const Difference& each) { return each.accepted.empty(); }));
}

size_t Report::Unused() const {
  return static_cast<size_t>(std::ranges::count_if(acceptances, IsUnused));
}

std::string ReportText(const Report& report) {
  const Comparison& comparison = report.comparison;
  std::string out = "a: " + report.name_a + ", " + Count(comparison.records_a, "record") + ", " +
                    std::to_string(comparison.compared_a) + " compared\nb: " + report.name_b +
                    ", " + Count(comparison.records_b, "record") + ", " +
                    std::to_string(comparison.compared_b) + " compared\n\n";
  if (const Difference* first = comparison.First()) AppendFirst(*first, out);
  if (!comparison.differences.empty()) AppendTableOf(RowsOf(comparison), out);
  for (const StreamKey& stream : comparison.not_aligned) {
    out += "note: " + StreamText(stream) +
           " differs too much to be aligned; its records count as replaced\n";
  }
  for (const Acceptance& each : report.acceptances) {
    if (!IsUnused(each)) continue;
    out += "error: " + report.accept_file + ":" + std::to_string(each.line) +
           ": no difference needs this acceptance of " + Printable(each.what) + "; remove it\n";
  }
  const size_t open = report.Open(), accepted = comparison.differences.size() - open;
  out += open > 0 ? "different: " + Count(open, "difference") : std::string("same");
  if (accepted > 0) out += ", " + std::to_string(accepted) + " accepted";
  if (report.Unused() > 0) out += ", " + Count(report.Unused(), "unused acceptance");
  return out + "\n";
}

Json ReportJson(const Report& report) {
  const Comparison& comparison = report.comparison;
  const Difference* const first = comparison.First();
  Json json = {{"same", first == nullptr},
               {"a",
                {{"trace", report.name_a},
                 {"records", comparison.records_a},
                 {"compared", comparison.compared_a}}},
               {"b",
                {{"trace", report.name_b},
                 {"records", comparison.records_b},
                 {"compared", comparison.compared_b}}}};
  json["first"] = first == nullptr ? Json() : DifferenceJson(*first);
  json["differences"] = Json::array();
  for (const Difference& each : comparison.differences) {
    json["differences"].push_back(DifferenceJson(each));
  }
  json["not_aligned"] = Json::array();
  for (const StreamKey& stream : comparison.not_aligned) {
    json["not_aligned"].push_back(StreamText(stream));
  }
  json["unused_acceptances"] = Json::array();
  for (const Acceptance& each : report.acceptances) {
    if (!IsUnused(each)) continue;
    json["unused_acceptances"].push_back(
        {{"line", each.line}, {"what", each.what}, {"reason", each.reason}});
  }
  return json;
}

std::string ReportJunit(const Report& report) {
  struct Texts {
    std::string open, accepted;
  };
  std::map<StreamKey, Texts> texts;
  for (const StreamKey& stream : report.comparison.streams) texts[stream];
  for (const Difference& each : report.comparison.differences) {
    std::string text = each.head + ": " + Explain(each) + " (lines " + LineOf(each.a) + " | " +
                       LineOf(each.b) + ")";
    if (each.a) text += "\n  a " + ItemLine(each.a->text);
    if (each.b) text += "\n  b " + ItemLine(each.b->text);
    Texts& of = texts[each.stream];
    (each.accepted.empty() ? of.open : of.accepted) +=
        text + (each.accepted.empty() ? "" : "\n  accepted: " + each.accepted) + "\n";
  }
  std::string cases;
  size_t failures = 0, skipped = 0;
  for (const auto& [stream, of] : texts) {
    const bool fails = !of.open.empty();
    failures += fails ? 1 : 0;
    skipped += !fails && !of.accepted.empty() ? 1 : 0;
    cases += JunitCase(kJunitClass, StreamText(stream), fails ? "failure" : "skipped",
                       fails ? of.open : of.accepted);
  }
  for (const Acceptance& each : report.acceptances) {
    failures += IsUnused(each) ? 1 : 0;
    cases += JunitCase(kJunitClass, report.accept_file + ":" + std::to_string(each.line), "failure",
                       !IsUnused(each) ? "" : "no difference needs this acceptance; remove it");
  }
  return JunitReport(report.name_a + " | " + report.name_b,
                     texts.size() + report.acceptances.size(), failures, skipped, cases);
}

}  // namespace rdmaemu::trace_tools
