#include "tools/cli/watch/table.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

namespace rdmaemu::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 13> kHeadings = {
    "HOST",     "PROCS",    "QPS",     "IDS",     "CONNS", "SENT/S", "RECV/S",
    "SENT B/S", "RECV B/S", "LOCAL/S", "MSG B/S", "DROPS", "FIRED"};
// Longer names are cut, so that the numbers stay visible.
constexpr size_t kLongestHostName = 20;

// One row. `rest` is after the last column: the devices, or why there are no numbers.
struct Row {
  std::vector<Span> cells;
  Span rest;
};

struct Rates {
  double packets_sent, packets_received, bytes_sent, bytes_received, local_packets, message_bytes;
};

// Returns nullopt before the second reply of a host.
std::optional<Rates> RatesOf(const HostPoll& host) {
  if (!host.previous()) return std::nullopt;
  const Traffic &before = host.previous()->traffic, &after = host.last()->traffic;
  const double seconds =
      std::chrono::duration<double>(host.last()->at - host.previous()->at).count();
  if (seconds <= 0) return std::nullopt;
  const auto rate = [&](uint64_t Traffic::*counter) {
    return static_cast<double>(after.*counter - std::min(before.*counter, after.*counter)) /
           seconds;
  };
  return Rates{rate(&Traffic::packets_sent),  rate(&Traffic::packets_received),
               rate(&Traffic::bytes_sent),    rate(&Traffic::bytes_received),
               rate(&Traffic::local_packets), rate(&Traffic::message_bytes)};
}

// A total, with its growth since the previous reply: "12 (+3)".
Span GrowthCell(const HostPoll& host, uint64_t HostReply::*total, Style style) {
  const uint64_t now = host.last().value().*total;
  const uint64_t before = host.previous() ? host.previous().value().*total : now;
  if (now <= before) return {ShortNumber(static_cast<double>(now))};
  return {ShortNumber(static_cast<double>(now)) + " (+" +
              ShortNumber(static_cast<double>(now - before)) + ")",
          style};
}

Row RowOf(const HostPoll& host, WatchClock::time_point now) {
  std::string name = Printable(host.name());
  if (name.size() > kLongestHostName) name = name.substr(0, kLongestHostName - 1) + "~";
  const std::string process = host.pid() == 0 ? "" : " (pid " + std::to_string(host.pid()) + ")";
  if (host.has_ended()) return {{{name, Style::kDim}}, {"ended" + process, Style::kDim}};
  if (host.IsSilent(now)) {
    const auto silent_s =
        std::chrono::floor<std::chrono::seconds>(now - *host.unanswered_since()).count();
    return {{{name, Style::kError}},
            {"has not answered for " + std::to_string(silent_s) + " s" + process, Style::kError}};
  }
  const HostReply& reply = *host.last();
  Row row{{{name, Style::kBold}}, {Printable(reply.devices)}};
  for (const uint64_t count : {reply.processes, reply.qps, reply.ids, reply.connections}) {
    row.cells.push_back({ShortNumber(static_cast<double>(count))});
  }
  const std::optional<Rates> rates = RatesOf(host);
  for (double Rates::*rate :
       {&Rates::packets_sent, &Rates::packets_received, &Rates::bytes_sent, &Rates::bytes_received,
        &Rates::local_packets, &Rates::message_bytes}) {
    row.cells.push_back({rates ? ShortNumber((*rates).*rate) : "-"});
  }
  row.cells.push_back(GrowthCell(host, &HostReply::dropped, Style::kWarning));
  row.cells.push_back(GrowthCell(host, &HostReply::rules_fired, Style::kWarning));
  return row;
}

// Pads the cells to the widths of their columns. The first column is aligned left, the others are
// aligned right.
Line LineOf(const Row& row, const std::array<size_t, kHeadings.size()>& widths) {
  Line line;
  for (size_t i = 0; i < row.cells.size(); i++) {
    const Span& cell = row.cells[i];
    const std::string padding(widths[i] - std::min(widths[i], cell.text.size()), ' ');
    if (i > 0) line.push_back({"  " + padding});
    line.push_back(cell);
    if (i == 0) line.push_back({padding});
  }
  line.push_back({"  "});
  line.push_back(row.rest);
  return line;
}

const char* EscapeOf(Style style) {
  switch (style) {
    case Style::kBold:
      return "\033[1m";
    case Style::kDim:
      return "\033[2m";
    case Style::kWarning:
      return "\033[1;33m";
    case Style::kError:
      return "\033[1;31m";
    case Style::kPlain:
      break;
  }
  return "";
}

Json RatesJson(const std::optional<Rates>& rates) {
  if (!rates) return {};
  return {{"packets_sent_per_s", rates->packets_sent},
          {"packets_received_per_s", rates->packets_received},
          {"bytes_sent_per_s", rates->bytes_sent},
          {"bytes_received_per_s", rates->bytes_received},
          {"local_packets_per_s", rates->local_packets},
          {"message_bytes_per_s", rates->message_bytes}};
}

Json HostJson(const HostPoll& host, WatchClock::time_point now) {
  Json json = {{"name", host.name()}, {"pid", host.pid()}};
  if (host.has_ended()) {
    json["state"] = "ended";
  } else if (host.IsSilent(now)) {
    json["state"] = "silent";
    json["silent_s"] = std::chrono::duration<double>(now - *host.unanswered_since()).count();
  } else {
    json = host.last()->status;
    json["state"] = "running";
    json["rules_fired"] = host.last()->rules_fired;
    json["rates"] = RatesJson(RatesOf(host));
  }
  return json;
}

}  // namespace

std::vector<Line> TableOf(const std::vector<const HostPoll*>& hosts, WatchClock::time_point now) {
  std::vector<Row> rows(1);
  for (const char* heading : kHeadings) rows[0].cells.push_back({heading, Style::kBold});
  rows[0].rest = {"DEVICES", Style::kBold};
  for (const HostPoll* host : hosts) rows.push_back(RowOf(*host, now));
  std::array<size_t, kHeadings.size()> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.cells.size(); i++) {
      widths[i] = std::max(widths[i], row.cells[i].text.size());
    }
  }
  std::vector<Line> lines;
  for (const Row& row : rows) lines.push_back(LineOf(row, widths));
  return lines;
}

Json JsonOf(const std::vector<const HostPoll*>& hosts, WatchClock::time_point now) {
  const auto time = std::chrono::system_clock::now().time_since_epoch();
  Json list = Json::array();
  for (const HostPoll* host : hosts) list.push_back(HostJson(*host, now));
  return {{"time", std::chrono::duration<double>(time).count()}, {"hosts", std::move(list)}};
}

std::string PlainText(const Line& line) {
  std::string text;
  for (const Span& span : line) text += span.text;
  return text;
}

std::string TerminalText(const Line& line, size_t width, bool has_colours) {
  std::string text;
  for (const Span& span : line) {
    const std::string piece = span.text.substr(0, width);
    width -= piece.size();
    const bool is_styled = has_colours && span.style != Style::kPlain && !piece.empty();
    text += is_styled ? EscapeOf(span.style) + piece + "\033[0m" : piece;
  }
  return text;
}

std::string ShortNumber(double number) {
  const char* const kUnits = "\0kMGTPE";
  size_t unit = 0;
  // 999.5 is the least number that is printed as 1000.
  for (; number >= 999.5 && unit < 6; unit++) number /= 1000;
  const bool is_whole = unit == 0 && number == static_cast<double>(static_cast<int>(number));
  const int digits = is_whole || number >= 99.95 ? 0 : number >= 9.995 ? 1 : 2;
  std::array<char, 32> text{};
  snprintf(text.data(), text.size(), "%.*f", digits, number);
  return std::string(text.data()) + (unit == 0 ? "" : std::string(1, kUnits[unit]));
}

std::string Printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

}  // namespace rdmaemu::cli
