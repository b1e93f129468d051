// Results: a value or an errno. Every call of the emulator that can fail answers with one,
// so that what a program sees as errno is chosen where the failure is found.
#pragma once

#include <cerrno>
#include <tl/expected.hpp>

namespace rdmaemu {

// A positive errno value, as in <cerrno>.
struct Error {
  int code;
  friend bool operator==(Error, Error) = default;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> Fail(int errno_value) {
  return tl::make_unexpected(Error{errno_value});
}

}  // namespace rdmaemu
