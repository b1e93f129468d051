// The terminal of `rdmaemu hosts --watch`, and the signals that change or end the command.
#pragma once

#include <termios.h>

#include <csignal>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::cli {

// Catches the signals that end the command (SIGINT, SIGTERM, SIGHUP, SIGQUIT), that stop and
// continue it, and that report a new size of the terminal. Signals that the caller ignores stay
// ignored. The destructor restores the former actions. Only one object may exist.
class WatchSignals {
 public:
  WatchSignals();
  ~WatchSignals();
  WatchSignals(const WatchSignals&) = delete;
  WatchSignals& operator=(const WatchSignals&) = delete;

  // Becomes readable when a signal arrives.
  int fd() const { return read_end_.get(); }
  // Takes the next signal that has arrived. 0: none.
  int Take();
  // Makes `fd` unreadable until the next signal. Take still returns the earlier signals.
  void Drain();
  // The first signal that ends the command. 0: none has arrived.
  static int ending();
  // Stops this process as an uncaught SIGTSTP does. Returns when the process continues.
  void Stop();

 private:
  runtime::UniqueFd read_end_, write_end_;
  std::deque<int> arrived_;
  std::vector<std::pair<int, struct sigaction>> former_;
};

struct TerminalSize {
  size_t rows, columns;
};

// Shows frames on the terminal of standard output, on its alternate screen. Restores the terminal
// at the end of the object's life.
class Terminal {
 public:
  Terminal() { Enter(); }
  ~Terminal() { Leave(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Returns whether standard output is a terminal that interprets escapes.
  static bool IsUsable();
  // Returns whether NO_COLOR is unset or empty (https://no-color.org).
  static bool AllowsColours();

  // Switches to the alternate screen, and makes standard input deliver single keys without echo.
  // May be called again after another process has changed the terminal.
  void Enter();
  void Leave();

  // The current size of the window. 24 rows of 80 columns if the terminal does not have one.
  TerminalSize size() const;
  // Shows the lines, which must fit into the window. Fails as WriteOutput does.
  bool Show(const std::vector<std::string>& lines, WatchSignals& signals);

  // Standard input if it is a terminal, else -1.
  int key_fd() const { return key_fd_; }
  // Reads the next key. Returns '\0' when there are no more keys.
  char ReadKey();
  // Call this when the terminal of `key_fd` is gone.
  void ForgetKeys() { key_fd_ = -1; }

 private:
  std::optional<termios> former_;  // of standard input
  int key_fd_ = -1;
};

// Writes to standard output. Gives up when a signal ends the command. Returns false, with errno, if
// the text was not written.
bool WriteOutput(std::string_view text, WatchSignals& signals);

}  // namespace rdmaemu::cli
