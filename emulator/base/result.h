// Results: a value or an errno. Every function of the emulator that can fail returns one. The
// function that detects a failure therefore chooses the program's errno.
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
