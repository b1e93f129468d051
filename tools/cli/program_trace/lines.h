// Writes the lines of a program trace from the records of a recording.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>

#include "shim/layer/injected.h"
#include "tools/cli/program_trace/decode.h"
#include "tools/cli/program_trace/recording.h"

namespace rdmaemu::cli {

// Converts times of the recording's clock to CLOCK_REALTIME (ns). The conversion is the line
// through two moments at which both clocks were read.
struct TraceClock {
  uint64_t begin_ticks, begin_ns, end_ticks, end_ns;
  uint64_t Ns(uint64_t ticks) const;
  uint64_t Duration(double ticks) const;
};

// The process that `run` started, and its status of wait(2).
struct ProgramEnd {
  pid_t process;
  int wait_status;
};

class TraceLines {
 public:
  TraceLines(const std::string& path, const Recording& recording, const TraceClock& clock,
             const ProgramEnd& end)
      : recording_(recording), clock_(clock), end_(end), out_(path, std::ios::binary) {}
  // Writes all lines. Returns false and sets errno when the file cannot be written.
  bool Write();

 private:
  struct OpenCall {
    DecodedCall call;
    uint64_t begin;
    bool is_inside;
  };
  struct Injected {
    layer::Injected what;
    uint32_t index;
    std::string rule;
  };
  struct Payloads {
    uint16_t what;
    std::vector<layer::trace::PayloadHash> hashes;
  };
  // A process image. A process has several images when it calls exec(3).
  struct Image {
    uint32_t process = 0;
    ObjectNames objects;
    uint64_t last = 0;  // time of its last record
    bool has_exited = false;
    std::map<std::pair<uint32_t, uint32_t>, OpenCall> open;  // by thread and number
    std::map<uint32_t, std::vector<Injected>> injected;      // by thread, of its present call
    std::map<uint32_t, Payloads> payloads;                   // the same
  };

  void Take(const RecordOfThread& record);
  void Start(const RecordOfThread& record, Image& image);
  void Fork(const RecordOfThread& record, Image& image);
  void Inputs(const RecordOfThread& record, Image& image);
  void Outputs(const RecordOfThread& record, Image& image);
  void WholeCall(const RecordOfThread& record, Image& image);
  void EmptyPolls(const RecordOfThread& record, Image& image);
  void Completions(const RecordOfThread& record, Image& image);
  static void TakePayloads(const RecordOfThread& record, Image& image);
  void TakeInjected(const RecordOfThread& record, Image& image);
  // Moves the fault marks of the thread's present call into `call`.
  static void Mark(Image& image, uint32_t thread, DecodedCall& call);
  void End(uint32_t number, Image& image);
  void EndThoseBefore(uint64_t time);
  void Lost();

  // Writes one line. `rest` is the text after the key "what" and its value.
  void Line(uint64_t ns, const std::string& took, uint32_t process, uint32_t thread,
            const char* kind, const std::string& what, const std::string& rest);
  void CallLine(const RecordOfThread& record, const DecodedCall& call, double took, uint64_t times);
  void ExtraLines(const RecordOfThread& record, const std::vector<ExtraLine>& lines);

  const Recording& recording_;
  TraceClock clock_;
  ProgramEnd end_;
  std::ofstream out_;
  std::map<uint32_t, Image> images_;
  std::map<uint64_t, std::vector<uint32_t>> ends_;  // images by the time of their last record
  uint64_t last_ns_ = 0;
};

}  // namespace rdmaemu::cli
