// The functions that the fixture needs from the test framework. testing.h (GoogleTest), catch2.hpp
// and doctest.hpp each fill in one Framework. Without them, a failure throws an exception. Header
// only.
#pragma once

#include <errno.h>
#include <rdmaemu/rdmaemu.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace rdmaemu::testing {

// Fail throws this where no framework is used.
struct TestFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// Skip throws this where the framework cannot end a running test as skipped.
struct TestSkipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Framework {
  // Records a failure of the running test. The test continues.
  void (*fail)(const std::string& text) = [](const std::string& text) { throw TestFailed(text); };
  // Ends the running test as skipped, by an exception. Call this only in the test's own thread.
  void (*skip)(const std::string& reason) = [](const std::string& reason) {
    throw TestSkipped(reason);
  };
  // Adds a text to the message of a failed test.
  void (*tell)(const std::string& text) = [](const std::string& text) {
    std::fprintf(stderr, "%s\n", text.c_str());
  };
  // Adds the text to failures as long as the result lives. nullptr: the framework cannot do this.
  std::shared_ptr<void> (*label)(const std::string& text) = nullptr;
  // Returns the name of the running test, for a file name.
  std::string (*test_name)() = [] { return std::string(program_invocation_short_name); };
};

// Set before main. A program uses one framework.
inline Framework& TheFramework() {
  static Framework framework;
  return framework;
}

inline void Fail(const std::string& text) { TheFramework().fail(text); }

// Counts the failures that frameworks have reported. Saves the timeline at the first failure of the
// running test, because the hosts keep their latest records only.
class FailureCount {
 public:
  static FailureCount& Get() {
    static FailureCount count;
    return count;
  }
  // Records one failure. A framework's listener calls this in any thread.
  void Add() {
    failures_++;
    if (has_first_.exchange(true)) return;
    const int bytes = rdmaemu_timeline(nullptr, 0);
    if (bytes < 0) return;
    std::string text(static_cast<size_t>(bytes) + 1, '\0');
    rdmaemu_timeline(text.data(), text.size());
    text.resize(std::strlen(text.c_str()));
    const std::lock_guard lock(mutex_);
    first_timeline_ = std::move(text);
  }
  void BeginTest() {
    has_first_ = false;
    is_skipping_ = false;
    const std::lock_guard lock(mutex_);
    first_timeline_.reset();
  }
  uint64_t failures() const { return failures_; }
  // The timeline at the first failure. Nothing when no failure was reported, or no host was open.
  std::optional<std::string> first_timeline() const {
    const std::lock_guard lock(mutex_);
    return first_timeline_;
  }

  // Records that an exception skipped the test, which is not a failure.
  void NoteSkip() { is_skipping_ = true; }
  bool is_skipping() const { return is_skipping_; }

 private:
  std::atomic<uint64_t> failures_{0};
  std::atomic<bool> has_first_{false};
  std::atomic<bool> is_skipping_{false};
  mutable std::mutex mutex_;
  std::optional<std::string> first_timeline_;
};

// Ends the running test as skipped. The reason is a sentence without a full stop.
[[noreturn]] inline void Skip(const std::string& reason) {
  FailureCount::Get().NoteSkip();
  TheFramework().skip(reason);
  throw TestSkipped(reason);
}

}  // namespace rdmaemu::testing
