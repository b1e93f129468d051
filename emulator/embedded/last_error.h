// Error reporting of the functions of rdmaemu.h: a negative errno, and a message per thread.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "emulator/embedded/process_host.h"

namespace rdmaemu::embedded {

inline std::string& LastError() {
  thread_local std::string message;
  return message;
}

inline int Refuse(int error, std::string message) {
  LastError() = std::move(message);
  return -error;
}
inline int NoText(const char* what) {
  return Refuse(EINVAL, std::string(what) + " is NULL; give a text");
}
inline int RefuseWithoutHost() {
  return Refuse(ENOENT,
                "this process has no embedded host; open one with rdmaemu_open first, or "
                "start the program with `rdmaemu run`");
}

// Runs the body of a function of the C API and converts exceptions to errors.
template <class Body>
int AtDoor(Body&& body) {
  LastError().clear();
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return -ENOMEM;
  } catch (const std::exception& failure) {
    return Refuse(EINVAL, failure.what());
  }
}

// Calls `use` with the hosts. Returns its result, 0 or a negative errno.
template <class Use>
int WithHosts(Use&& use) {
  int result = 0;
  const int missing = ProcessHost::Get().With([&](EmbeddedHosts& host) {
    result = use(host);
    return 0;
  });
  return missing != 0 ? RefuseWithoutHost() : result;
}

}  // namespace rdmaemu::embedded
