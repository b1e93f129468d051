// A check's access to the state of the module, and the findings that the check makes.
#pragma once

#include <errno.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "shim/layer/checks/rule.h"

namespace rdmaemu::layer::checks {

struct Object;

// Return addresses in the program's code, innermost first.
struct Site {
  static constexpr int kMaxFrames = 6;
  const void* frames[kMaxFrames];
  int count = 0;
};

// Returns the program's frames of the current call. When the call is made in a signal handler, the
// next Section reports RDMAEMU-THREAD-006.
Site CallSite();

// While a Section exists, its thread owns the module's state. In two cases a Section is false, and
// the caller must not touch the state:
// - A signal handler interrupted a Section of its own thread.
// - _Fork(3) or clone(2) created the process.
//
// The destructor releases the state, and then stores the findings. Preserves errno. A Section must
// not exist during a call of the library behind.
class Section {
 public:
  Section();
  ~Section();
  Section(const Section&) = delete;
  Section& operator=(const Section&) = delete;
  explicit operator bool() const { return is_entered_; }

 private:
  int error_ = errno;
  bool is_entered_;
};

// Reports a finding about the current call of the program. `call` is the call's name. A finding
// names at most three objects, which may be nullptr. Call this only within a Section.
__attribute__((format(printf, 6, 7))) void Report(Rule rule, const char* call, const Object* first,
                                                  const Object* second, const Object* third,
                                                  const char* format, ...);
// Acts as Report, for a mistake at an earlier call. `place` is the CallPlace of that call.
__attribute__((format(printf, 6, 7))) void ReportAt(Rule rule, const char* call, const void* place,
                                                    const Object* first, const Object* second,
                                                    const char* format, ...);
// Acts as Report, for objects that exist at exit. The reported place is where `object` was created.
// `times` is the number of objects.
void ReportLeft(Rule rule, const Object& object, uint64_t times);

// Records for `rdmaemu run` that the system has no breakpoints, so that RDMAEMU-MR-008 is not
// checked. `error` is an errno or kBreakpointsIgnored. Call this only within a Section.
void NoteUnwatched(int error);

// Appends "module+0xoffset (symbol)". addr2line(1) accepts the offset.
void AppendAddress(const void* address, std::string& out);

// Returns the place of the program's current call.
const void* CallPlace();

// Reports RDMAEMU-THREAD-006 when this call is in a signal handler and its place is new. For calls
// of the data path.
void CheckHandler(const char* call);

// Returns this process's number among the forked copies of the module's state: 0 in the first.
uint32_t Generation();

// Opens the directory that RDMAEMU_LAYER_CHECKS_DIRECTORY contains. Call it once, in a constructor.
void OpenFindings();

}  // namespace rdmaemu::layer::checks
