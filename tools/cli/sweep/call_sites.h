// Where in the program the calls of a run are made, as the libraries have recorded it
// (shim/client/call_sites.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace rdmaemu::cli {

// The program's frames of a stack, innermost first: "FILE+0xOFFSET" or "FILE+0xOFFSET SYMBOL".
// Empty: the stack is unknown.
using ProgramStack = std::vector<std::string>;

class CallSites {
 public:
  // Reads the files of all processes in a directory.
  static CallSites Read(const std::string& directory);

  // Returns the stack of a process's nth call at a place such as "call.reg_mr".
  const ProgramStack& StackOf(uint64_t process, const std::string& place, uint64_t nth) const;
  // True if a process has made more calls than the libraries record.
  bool is_cut() const { return is_cut_; }

 private:
  void ReadFile(const std::string& path);

  std::vector<ProgramStack> stacks_;
  std::map<std::tuple<uint64_t, std::string, uint64_t>, size_t> stack_of_;
  bool is_cut_ = false;
};

// Returns texts for people for each frame: "send_all (client.c:12)", and the functions into which
// that one was inlined, if addr2line(1) is installed and the file has debug information. Else
// "client+0x1234 (send_all)".
using FrameTexts = std::map<std::string, std::vector<std::string>>;
FrameTexts DescribeFrames(const std::set<std::string>& frames);

}  // namespace rdmaemu::cli
