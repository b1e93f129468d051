// Makes program traces for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tools/trace/record.h"

namespace rdmaemu::trace_tools {

// Lines of one program trace, a microsecond apart.
class TraceText {
 public:
  explicit TraceText(int64_t process = 100) : process_(process) {}

  // Sets the thread of all later records.
  TraceText& Thread(int64_t thread) {
    thread_ = thread;
    return *this;
  }
  TraceText& Process(int64_t process) {
    process_ = process;
    return *this;
  }
  TraceText& Took(int64_t ns) {
    took_ns_ = ns;
    return *this;
  }
  // Adds a record. `more` contains further keys: R"("result":0)".
  TraceText& Add(const std::string& kind, const std::string& what, const std::string& object,
                 const std::string& arguments = "{}", const std::string& more = "") {
    const std::string micros = std::to_string(++time_us_);
    text_ += "{\"time\":1700000000." + std::string(6 - micros.size(), '0') + micros + "000";
    if (kind == "call") text_ += ",\"took_ns\":" + std::to_string(took_ns_);
    text_ += ",\"process\":" + std::to_string(process_) + ",\"thread\":" + std::to_string(thread_) +
             ",\"kind\":\"" + kind + "\"";
    if (!what.empty()) text_ += ",\"what\":\"" + what + "\"";
    if (!object.empty()) text_ += ",\"object\":\"" + object + "\"";
    text_ += ",\"arguments\":" + arguments + (more.empty() ? "" : "," + more) + "}\n";
    return *this;
  }
  TraceText& Start(const std::string& program, int64_t parent = 1) {
    return Add("start", "", "", "{}",
               "\"program\":\"" + program + "\",\"parent\":" + std::to_string(parent));
  }
  TraceText& Call(const std::string& what, const std::string& object,
                  const std::string& arguments = "{}", const std::string& result = "0") {
    return Add("call", what, object, arguments, "\"result\":" + result);
  }
  TraceText& Failed(const std::string& what, const std::string& object, const std::string& error,
                    const std::string& arguments = "{}") {
    return Add("call", what, object, arguments, "\"result\":-1,\"errno\":\"" + error + "\"");
  }
  const std::string& text() const { return text_; }

 private:
  int64_t process_, thread_ = 1, time_us_ = 0, took_ns_ = 100;
  std::string text_;
};

inline void ReadInto(Trace& trace, const std::string& text, const std::string& name = "t.jsonl") {
  const auto read = ReadTrace(name, text, trace);
  ASSERT_TRUE(read) << read.error();
}

}  // namespace rdmaemu::trace_tools
