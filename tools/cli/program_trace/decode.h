// Records of calls, decoded by the table of calls (shim/layer/trace/table.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shim/layer/trace/record.h"
#include "tools/cli/program_trace/reader.h"

namespace rdmaemu::cli {

// A call on its way from its records to its lines.
struct DecodedCall {
  std::string what, object;
  JsonObject arguments;
  std::string result;  // JSON; "" of a call that returns nothing
  std::string error;   // "ENOMEM", when it failed
  std::vector<ExtraLine> extra;
  uint64_t first_object = 0;  // address of the first argument, when it is a pointer
};

// How one row's records are read.
struct CallDecoder {
  const char* what;
  const char* makes;  // kind of the object that the call returns; nullptr: none
  void (*inputs)(RecordBytes&, ObjectNames&, DecodedCall&);
  void (*outputs)(RecordBytes&, ObjectNames&, DecodedCall&);
  void (*whole)(RecordBytes&, ObjectNames&, DecodedCall&);  // RecordKind::kCall
};
// nullptr: no such row.
const CallDecoder* DecoderOf(uint16_t what);

// The completions of a poll or of RecordKind::kCompletions, as lines of `cq`.
void DecodeCompletions(RecordBytes& bytes, ObjectNames& objects, const std::string& cq,
                       std::vector<ExtraLine>& lines);

}  // namespace rdmaemu::cli
