// Decodes records of calls by the table of calls (shim/layer/trace/table.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shim/layer/trace/record.h"
#include "tools/cli/program_trace/reader.h"

namespace rdmaemu::cli {

// A decoded call, before it is written as lines.
struct DecodedCall {
  std::string what, object;
  JsonObject arguments;
  std::string result;             // JSON; "" when the call returns nothing
  std::string error;              // "ENOMEM", when it failed
  const char* version = nullptr;  // of the symbol; nullptr: the default version
  std::string injected;           // the rules that acted in the call
  std::vector<ExtraLine> extra;
  std::vector<layer::trace::PayloadHash> payloads = {};  // of the work that the call posts
  uint64_t first_object = 0;  // address of the first argument, when it is a pointer
};

// The functions that decode the records of one row of the table.
struct CallDecoder {
  const char* what;
  const char* makes;  // kind of the object that the call returns; nullptr: none
  void (*inputs)(RecordBytes&, ObjectNames&, DecodedCall&);
  void (*outputs)(RecordBytes&, ObjectNames&, DecodedCall&);
  void (*whole)(RecordBytes&, ObjectNames&, DecodedCall&);  // RecordKind::kCall
  const char* version;                                      // as DecodedCall::version
};
// Returns the decoder of row `what`, or nullptr when the table has no such row.
const CallDecoder* DecoderOf(uint16_t what);

// Appends the completions of a poll or of a RecordKind::kCompletions record to `lines`. `cq` is the
// name of their CQ.
void DecodeCompletions(RecordBytes& bytes, ObjectNames& objects, const std::string& cq,
                       std::vector<ExtraLine>& lines);

}  // namespace rdmaemu::cli
