// The results of a sweep as JUnit's XML and as a page.
#include <algorithm>
#include <map>

#include "tools/cli/sweep/outcome.h"
#include "tools/trace/junit.h"

namespace rdmaemu::cli {
namespace {

using trace_tools::Xml;

constexpr const char* kStyle =
    "body{font:14px system-ui,sans-serif;margin:1.5em;color:#222}"
    "table{border-collapse:collapse}th,td{border:1px solid #ccc;padding:2px 6px}"
    "th{background:#f4f4f4;text-align:left}td a{color:inherit}"
    ".survived{background:#dff3df}.failed{background:#eef7e4}.not-reached{color:#888}"
    ".finding{background:#f7c6c6}.known{background:#fbe6b8}"
    "pre{background:#f4f4f4;padding:.6em;overflow:auto}"
    "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}"
    "th,pre{background:#242424}.survived{background:#1d3a1d}.failed{background:#2c3a1d}"
    ".finding{background:#5a2020}.known{background:#544012}th,td{border-color:#444}}";

std::string Join(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
  return line;
}

std::string TextOf(const Outcome& outcome) {
  std::string text = std::string(VerdictName(outcome.verdict)) + ": " + outcome.reason;
  for (const std::string& code : outcome.code) text += "\nat " + code;
  for (const std::string& line : outcome.details) text += "\n" + line;
  return text + "\nagain: " + outcome.command + "\n" + outcome.rules;
}

std::string ClassOf(const Outcome& outcome) {
  if (!IsFinding(outcome.verdict)) return VerdictName(outcome.verdict);
  return outcome.known.empty() ? "finding" : "known";
}

// A case "PLACE#N: FAULT" is in the row of its place and moment, and in the column of its fault.
// Cases of several faults are listed below the table.
std::string Table(const std::vector<Outcome>& outcomes) {
  std::vector<std::string> rows, columns;
  std::map<std::pair<std::string, std::string>, size_t> cells;
  for (size_t i = 0; i < outcomes.size(); i++) {
    const std::string& id = outcomes[i].id;
    const size_t colon = id.find(": ");
    if (colon == id.npos || id.find(" + ") != id.npos) continue;
    const std::string row = id.substr(0, colon), column = id.substr(colon + 2);
    if (std::ranges::find(rows, row) == rows.end()) rows.push_back(row);
    if (std::ranges::find(columns, column) == columns.end()) columns.push_back(column);
    cells[{row, column}] = i;
  }
  std::string html = "<table><tr><th>moment</th>";
  for (const std::string& column : columns) html += "<th>" + Xml(column) + "</th>";
  html += "</tr>\n";
  for (const std::string& row : rows) {
    html += "<tr><th>" + Xml(row) + "</th>";
    for (const std::string& column : columns) {
      const auto cell = cells.find({row, column});
      if (cell == cells.end()) {
        html += "<td></td>";
        continue;
      }
      const Outcome& outcome = outcomes[cell->second];
      html += "<td class=\"" + ClassOf(outcome) + "\" title=\"" + Xml(outcome.reason) +
              "\"><a href=\"#case" + std::to_string(cell->second) + "\">" +
              VerdictName(outcome.verdict) + "</a></td>";
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string Section(const Outcome& outcome, size_t index) {
  std::string html = "<h3 id=\"case" + std::to_string(index) + "\">" + Xml(outcome.id) +
                     "</h3>\n<p class=\"" + ClassOf(outcome) + "\">" +
                     VerdictName(outcome.verdict) + ": " + Xml(outcome.reason) + "</p>\n";
  for (const std::string& code : outcome.code) html += "<p>At " + Xml(code) + "</p>\n";
  if (!outcome.known.empty()) html += "<p>Known: " + Xml(outcome.known) + "</p>\n";
  if (!IsFinding(outcome.verdict)) return html;
  std::string details;
  for (const std::string& line : outcome.details) details += line + "\n";
  if (!details.empty()) html += "<pre>" + Xml(details) + "</pre>\n";
  html += "<p>Again:</p><pre>" + Xml(outcome.command) + "</pre>\n<pre>" + Xml(outcome.rules) +
          "</pre>\n";
  if (outcome.report.empty()) return html;
  return html + "<p><a href=\"" + Xml(outcome.report) + "/\">report of the run</a></p>\n";
}

}  // namespace

std::string ToJunit(const SweepResults& results) {
  std::string cases;
  size_t failures = 0, skipped = 0;
  for (const Outcome& each : results.outcomes) {
    const bool fails = each.is_new_finding() || each.verdict == Verdict::kNotRun;
    const bool is_skipped = !fails && (!each.known.empty() || each.verdict == Verdict::kNotReached);
    failures += fails ? 1 : 0;
    skipped += is_skipped ? 1 : 0;
    cases += trace_tools::JunitCase("rdmaemu sweep", each.id, fails ? "failure" : "skipped",
                                    fails        ? TextOf(each)
                                    : is_skipped ? each.reason + " " + each.known
                                                 : "");
  }
  return trace_tools::JunitReport(Join(results.test), results.outcomes.size(), failures, skipped,
                                  cases);
}

std::string ToHtml(const SweepResults& results) {
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>rdmaemu sweep</title><style>" +
      std::string(kStyle) + "</style></head><body>\n<h1>rdmaemu sweep</h1>\n<pre>" +
      Xml(Join(results.test)) + "</pre>\n<p>" + std::to_string(results.outcomes.size()) +
      " runs at " + std::to_string(results.sites.size()) + " sites, " +
      std::to_string(results.NewFindings()) + " new findings.</p>\n" +
      (results.omitted.empty() ? "" : "<p>" + Xml(results.omitted) + ".</p>\n") + "<ul>";
  for (int i = 0; i <= static_cast<int>(kLastVerdict); i++) {
    const auto verdict = static_cast<Verdict>(i);
    if (results.Count(verdict) == 0) continue;
    html += "<li>" + std::to_string(results.Count(verdict)) + " " + VerdictName(verdict) + "</li>";
  }
  html += "</ul>\n" + Table(results.outcomes) + "<h2>Cases</h2>\n";
  for (size_t i = 0; i < results.outcomes.size(); i++) html += Section(results.outcomes[i], i);
  return html + "</body></html>\n";
}

}  // namespace rdmaemu::cli
