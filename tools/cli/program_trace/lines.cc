#include "tools/cli/program_trace/lines.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>

namespace rdmaemu::cli {

namespace format = layer::trace;

namespace {

constexpr int kTraceVersion = 1;

RecordBytes BodyOf(const RecordOfThread& record) {
  const char* const begin = reinterpret_cast<const char*>(record.header);
  return {begin + sizeof(format::RecordHeader), begin + record.header->bytes};
}

// Returns the keys "object" and "arguments". Omits a key without a value.
std::string Rest(const std::string& object, const std::string& arguments) {
  std::string rest;
  if (!object.empty()) rest += ",\"object\":" + Quoted(object);
  if (arguments != "{}") rest += ",\"arguments\":" + arguments;
  return rest;
}

std::string InjectedText(const std::string& rule) {
  return rule.empty() ? "" : ",\"injected\":" + Quoted(rule);
}

// Returns the keys of Rest, and the keys "version" and "injected" of a call that has them.
std::string CallRest(const DecodedCall& call) {
  std::string rest = Rest(call.object, call.arguments.text());
  if (call.version != nullptr) rest += ",\"version\":" + Quoted(call.version);
  return rest + InjectedText(call.injected);
}

std::string TakeText(RecordBytes& bytes, bool* is_cut = nullptr) {
  const auto head = bytes.Take<uint16_t>();
  const auto length = static_cast<uint16_t>(head & ~format::kTextIsCut);
  if (is_cut != nullptr) *is_cut = head != length;
  return {bytes.TakeBytes(length), length};
}

// Returns a call's name as fault rules have it, without the prefix of libibverbs.
const char* NameOfCall(const char* symbol) {
  for (const char* prefix : {"_ibv_", "ibv_"}) {
    if (std::strncmp(symbol, prefix, std::strlen(prefix)) == 0) {
      return symbol + std::strlen(prefix);
    }
  }
  return symbol;
}

const char* LossName(format::Loss loss) {
  constexpr const char* kNames[] = {"limit", "disk", "file", "handler"};
  static_assert(std::size(kNames) == static_cast<size_t>(format::Loss::kCount));
  return kNames[static_cast<size_t>(loss)];
}

}  // namespace

uint64_t TraceClock::Ns(uint64_t ticks) const {
  if (ticks <= begin_ticks || end_ticks <= begin_ticks) return begin_ns;
  return begin_ns + static_cast<uint64_t>(static_cast<unsigned __int128>(ticks - begin_ticks) *
                                          (end_ns - begin_ns) / (end_ticks - begin_ticks));
}

uint64_t TraceClock::Duration(double ticks) const {
  if (ticks <= 0 || end_ticks <= begin_ticks) return 0;
  return static_cast<uint64_t>(ticks * static_cast<double>(end_ns - begin_ns) /
                               static_cast<double>(end_ticks - begin_ticks));
}

bool TraceLines::Write() {
  // The first pass finds the last record of each process image. The second pass writes the lines.
  recording_.ForEach([&](const RecordOfThread& record) {
    Image& image = images_[record.image];
    image.process = record.process;
    image.last = std::max(image.last, record.header->time);
    image.has_exited |=
        static_cast<format::RecordKind>(record.header->kind) == format::RecordKind::kEnd;
  });
  for (const auto& [number, image] : images_) ends_[image.last].push_back(number);
  recording_.ForEach([&](const RecordOfThread& record) {
    EndThoseBefore(record.header->time);
    Take(record);
  });
  EndThoseBefore(UINT64_MAX);
  Lost();
  out_.flush();
  return out_.good();
}

void TraceLines::Take(const RecordOfThread& record) {
  Image& image = images_[record.image];
  switch (static_cast<format::RecordKind>(record.header->kind)) {
    case format::RecordKind::kStart:
      return Start(record, image);
    case format::RecordKind::kFork:
      return Fork(record, image);
    case format::RecordKind::kInputs:
      return Inputs(record, image);
    case format::RecordKind::kOutputs:
      return Outputs(record, image);
    case format::RecordKind::kCall:
      return WholeCall(record, image);
    case format::RecordKind::kEmptyPolls:
      return EmptyPolls(record, image);
    case format::RecordKind::kCompletions:
      return Completions(record, image);
    case format::RecordKind::kInjected:
      return TakeInjected(record, image);
    case format::RecordKind::kPayloads:
      return TakePayloads(record, image);
    case format::RecordKind::kEnd:
      break;
  }
}

void TraceLines::Start(const RecordOfThread& record, Image&) {
  RecordBytes bytes = BodyOf(record);
  JsonObject fields;
  const auto parent = bytes.Take<uint32_t>();
  const bool is_emulator = bytes.Take<uint32_t>() != 0;
  fields.Text("program", TakeText(bytes));
  std::string list = "[";
  bool is_cut = false;
  const std::string arguments = TakeText(bytes, &is_cut);
  for (size_t at = 0; at < arguments.size();) {
    const size_t end = std::min(arguments.find('\0', at), arguments.size());
    list += (at == 0 ? "" : ",") + Quoted(arguments.substr(at, end - at));
    at = end + 1;
  }
  fields.Raw("arguments", list + "]");
  if (is_cut) fields.Raw("arguments_cut", "true");
  fields.Text("backend", is_emulator ? "emulator" : "system");
  fields.Number("version", kTraceVersion);
  if (recording_.hashes_payloads()) fields.Text("payload_hashes", "crc32c");
  fields.Text("libibverbs", TakeText(bytes));
  fields.Text("librdmacm", TakeText(bytes));
  fields.Number("parent", parent);
  Line(clock_.Ns(record.header->time), "", record.process, record.thread, "start", "process",
       Rest("", fields.text()));
}

void TraceLines::Fork(const RecordOfThread& record, Image& image) {
  RecordBytes bytes = BodyOf(record);
  JsonObject fields;
  fields.Number("parent", bytes.Take<uint32_t>());
  // The child inherits its parent's objects and their names.
  const auto parent = images_.find(bytes.Take<uint32_t>());
  if (parent != images_.end()) image.objects = parent->second.objects;
  Line(clock_.Ns(record.header->time), "", record.process, record.thread, "fork", "process",
       Rest("", fields.text()));
}

void TraceLines::Inputs(const RecordOfThread& record, Image& image) {
  const CallDecoder* const decoder = DecoderOf(record.header->what);
  if (decoder == nullptr || decoder->inputs == nullptr) return;
  RecordBytes bytes = BodyOf(record);
  const auto number = bytes.Take<uint32_t>();
  const bool is_inside = bytes.Take<uint32_t>() != 0;
  OpenCall open{{}, record.header->time, is_inside};
  open.call.what = NameOfCall(decoder->what);
  open.call.version = decoder->version;
  // Arguments of calls between the libraries are not the program's, so they get no names.
  if (!is_inside) decoder->inputs(bytes, image.objects, open.call);
  image.open[{record.thread, number}] = std::move(open);
}

void TraceLines::Outputs(const RecordOfThread& record, Image& image) {
  const CallDecoder* const decoder = DecoderOf(record.header->what);
  RecordBytes bytes = BodyOf(record);
  const auto found = image.open.find({record.thread, bytes.Take<uint32_t>()});
  bytes.Take<uint32_t>();
  if (decoder == nullptr || decoder->outputs == nullptr || found == image.open.end()) return;
  OpenCall open = std::move(found->second);
  image.open.erase(found);
  if (open.is_inside) {
    // The object that the call created gets its name when the program first uses it.
    bytes.Take<int32_t>();
    const auto address = bytes.Take<uint64_t>();
    const auto numbers = bytes.Take<format::ObjectNumbers>();
    if (decoder->makes == nullptr || address == 0) return;
    image.objects.Create(decoder->makes, address);
    image.objects.Learn(decoder->makes, address, numbers);
    return;
  }
  decoder->outputs(bytes, image.objects, open.call);
  Mark(image, record.thread, open.call);
  CallLine(record, open.call, static_cast<double>(record.header->time - open.begin), 1);
  ExtraLines(record, open.call.extra);
}

void TraceLines::WholeCall(const RecordOfThread& record, Image& image) {
  const CallDecoder* const decoder = DecoderOf(record.header->what);
  if (decoder == nullptr) return;
  RecordBytes bytes = BodyOf(record);
  DecodedCall call;
  call.what = NameOfCall(decoder->what);
  const auto payloads = image.payloads.find(record.thread);
  if (payloads != image.payloads.end()) {
    // A call in a signal handler may be between the hashes and their call.
    if (payloads->second.what == record.header->what) {
      call.payloads = std::move(payloads->second.hashes);
    }
    image.payloads.erase(payloads);
  }
  decoder->whole(bytes, image.objects, call);
  Mark(image, record.thread, call);
  CallLine(record, call, record.header->took, 1);
  ExtraLines(record, call.extra);
}

void TraceLines::EmptyPolls(const RecordOfThread& record, Image& image) {
  RecordBytes bytes = BodyOf(record);
  const auto count = bytes.Take<uint64_t>();
  const auto cq = bytes.Take<uint64_t>();
  const auto wanted = bytes.Take<int64_t>();
  DecodedCall call;
  call.what = wanted < 0 ? "start_poll" : "poll_cq";
  call.object = image.objects.Name("cq", cq);
  call.arguments.Text("cq", call.object);
  if (wanted >= 0) call.arguments.Number("num_entries", static_cast<uint64_t>(wanted));
  call.result = wanted < 0 ? std::to_string(ENOENT) : "0";
  if (wanted < 0) call.error = "ENOENT";
  Mark(image, record.thread, call);
  CallLine(record, call, record.header->took, count);
}

void TraceLines::Completions(const RecordOfThread& record, Image& image) {
  RecordBytes bytes = BodyOf(record);
  const std::string cq = image.objects.Name("cq", bytes.Take<uint64_t>());
  std::vector<ExtraLine> lines;
  DecodeCompletions(bytes, image.objects, cq, lines);
  ExtraLines(record, lines);
}

void TraceLines::TakeInjected(const RecordOfThread& record, Image& image) {
  RecordBytes bytes = BodyOf(record);
  Injected mark{};
  mark.what = static_cast<layer::Injected>(bytes.Take<uint32_t>());
  mark.index = bytes.Take<uint32_t>();
  mark.rule = TakeText(bytes);
  image.injected[record.thread].push_back(std::move(mark));
}

void TraceLines::TakePayloads(const RecordOfThread& record, Image& image) {
  RecordBytes bytes = BodyOf(record);
  Payloads& payloads = image.payloads[record.thread];
  payloads.what = record.header->what;
  for (auto left = bytes.Take<uint16_t>(); left > 0; left--) {
    payloads.hashes.push_back(bytes.Take<format::PayloadHash>());
  }
}

void TraceLines::Mark(Image& image, uint32_t thread, DecodedCall& call) {
  const auto marks = image.injected.find(thread);
  if (marks == image.injected.end()) return;
  for (const Injected& mark : marks->second) {
    const bool is_line = mark.what == layer::Injected::kLine && mark.index < call.extra.size();
    std::string& rules = is_line ? call.extra[mark.index].injected : call.injected;
    rules += (rules.empty() ? "" : ", ") + mark.rule;
  }
  image.injected.erase(marks);
}

void TraceLines::EndThoseBefore(uint64_t time) {
  while (!ends_.empty() && ends_.begin()->first < time) {
    for (const uint32_t number : ends_.begin()->second) End(number, images_[number]);
    ends_.erase(ends_.begin());
  }
}

void TraceLines::End(uint32_t number, Image& image) {
  const uint64_t ns = clock_.Ns(image.last);
  // Calls that never returned.
  for (auto& [key, open] : image.open) {
    if (open.is_inside) continue;
    Mark(image, key.first, open.call);
    Line(ns, "", image.process, key.first, "call", open.call.what,
         CallRest(open.call) + ",\"unfinished\":true");
  }
  image.open.clear();
  bool has_successor = false;
  for (const auto& [other, each] : images_) {
    has_successor |= other > number && each.process == image.process;
  }
  std::string what = "gone";
  JsonObject fields;
  if (image.has_exited) {
    what = "exit";
  } else if (has_successor) {
    what = "exec";
  } else if (static_cast<pid_t>(image.process) != end_.process &&
             kill(static_cast<pid_t>(image.process), 0) == 0) {
    what = "running";
  }
  if (static_cast<pid_t>(image.process) == end_.process && !has_successor) {
    if (WIFSIGNALED(end_.wait_status)) {
      what = "signal";
      const char* const name = sigabbrev_np(WTERMSIG(end_.wait_status));
      fields.Text("signal", name == nullptr ? std::to_string(WTERMSIG(end_.wait_status))
                                            : "SIG" + std::string(name));
    } else {
      what = "exit";
      fields.Number("status", static_cast<uint64_t>(WEXITSTATUS(end_.wait_status)));
    }
  }
  Line(ns, "", image.process, 0, "end", what, Rest("", fields.text()));
}

void TraceLines::Lost() {
  for (uint32_t i = 0; i < static_cast<uint32_t>(format::Loss::kCount); i++) {
    const auto loss = static_cast<format::Loss>(i);
    if (recording_.lost(loss) == 0) continue;
    JsonObject fields;
    fields.Number("records", recording_.lost(loss));
    Line(last_ns_, "", 0, 0, "lost", LossName(loss), Rest("", fields.text()));
  }
  for (const UnopenedProcess& each : recording_.unopened()) {
    JsonObject fields;
    fields.Number("process", each.process);
    fields.Text("reason", each.reason);
    Line(last_ns_, "", 0, 0, "lost", "process", Rest("", fields.text()));
  }
}

void TraceLines::Line(uint64_t ns, const std::string& took, uint32_t process, uint32_t thread,
                      const char* kind, const std::string& what, const std::string& rest) {
  last_ns_ = std::max(last_ns_, ns);
  char head[160];
  snprintf(head, sizeof head,
           "{\"time\":%" PRIu64 ".%09" PRIu64 "%s,\"process\":%u,\"thread\":%u,\"kind\":\"%s\"",
           ns / 1'000'000'000, ns % 1'000'000'000, took.c_str(), process,
           thread & ~format::kIsHandlers, kind);
  out_ << head << ",\"what\":" << Quoted(what) << rest << "}\n";
}

void TraceLines::CallLine(const RecordOfThread& record, const DecodedCall& call, double took,
                          uint64_t times) {
  std::string rest = CallRest(call);
  if (!call.result.empty()) rest += ",\"result\":" + call.result;
  if (!call.error.empty()) rest += ",\"errno\":" + Quoted(call.error);
  if (times != 1) rest += ",\"times\":" + std::to_string(times);
  Line(clock_.Ns(record.header->time), ",\"took_ns\":" + std::to_string(clock_.Duration(took)),
       record.process, record.thread, "call", call.what, rest);
}

void TraceLines::ExtraLines(const RecordOfThread& record, const std::vector<ExtraLine>& lines) {
  for (const ExtraLine& line : lines) {
    Line(clock_.Ns(record.header->time), "", record.process, record.thread, line.kind, line.what,
         Rest(line.object, line.arguments) + InjectedText(line.injected));
  }
}

}  // namespace rdmaemu::cli
