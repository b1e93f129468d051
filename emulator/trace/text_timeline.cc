#include "emulator/trace/text_timeline.h"

#include "emulator/trace/seconds.h"

namespace rdmaemu::trace {
namespace {

// Column widths. A longer value moves the rest of its line to the right.
constexpr size_t kTimeWidth = 15, kHostWidth = 8, kProcessWidth = 5, kKindWidth = 11,
                 kObjectWidth = 12;

void AppendPrintable(std::string_view text, std::string& out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
}

void AppendColumn(std::string_view text, size_t width, std::string& out) {
  AppendPrintable(text, out);
  if (text.size() < width) out.append(width - text.size(), ' ');
  out += "  ";
}

void AppendValue(const Field& field, std::string& out) {
  struct {
    std::string& out;
    void operator()(const std::string& text) const { AppendPrintable(text, out); }
    void operator()(int64_t number) const { out += std::to_string(number); }
    void operator()(uint64_t number) const { out += std::to_string(number); }
  } const write{out};
  std::visit(write, field.value);
}

}  // namespace

TextTimeline::TextTimeline(std::string_view host, Time origin) : host_(host), origin_(origin) {}

void TextTimeline::Append(const Record& record, std::string& out) const {
  std::string time;
  AppendSeconds(record.time - origin_, time);
  if (time.size() < kTimeWidth) out.append(kTimeWidth - time.size(), ' ');
  out += time;
  out += "  ";
  AppendColumn(host_, kHostWidth, out);
  const bool has_process = record.process != ProcessId::kNone;
  AppendColumn(has_process ? "p" + std::to_string(static_cast<uint32_t>(record.process)) : "-",
               kProcessWidth, out);
  AppendColumn(record.kind, kKindWidth, out);
  AppendColumn(record.object, kObjectWidth, out);
  AppendPrintable(record.what, out);
  for (const Field& field : record.fields) {
    out += "  ";
    AppendPrintable(field.key, out);
    out += '=';
    AppendValue(field, out);
  }
  out += '\n';
}

}  // namespace rdmaemu::trace
