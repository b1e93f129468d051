// The interface to the time that a program's waits advance and in which their time-outs expire.
// This is the time of the hosts inside the process, or a time shared with host processes. Not
// thread-safe: ProcessHost's lock guards it.
#pragma once

#include <optional>
#include <string>

#include "emulator/base/time.h"
#include "emulator/embedded/program_timers.h"

namespace rdmaemu::embedded {

class DrivenTime {
 public:
  struct Pause {
    bool moved = false;    // true: call GoOn again
    bool endless = false;  // true: nothing more happens without the program
    // If `moved` is false: the machine's time until the next event.
    std::optional<Duration> machine = std::nullopt;
  };

  virtual ~DrivenTime() = default;
  // Runs until no work is ready at the present time. Returns true if any work was ready.
  virtual bool Settle() = 0;
  // Advances time to the next event. Call this when the program waits and no work is ready.
  // `alone`: no thread of the program runs. Virtual time does not advance beyond `limit`, the first
  // time-out of the program's waits. Program time advances to `limit`, but only if `alone`.
  virtual Pause GoOn(bool alone, std::optional<Time> limit) = 0;
  // Handles a poll of the program that found no completion.
  virtual void Look(bool alone) = 0;
  // Advances virtual time to the time-out of a program's wait.
  virtual void PassTo(Time time) = 0;
  virtual Time Now() = 0;
  // Returns true if the program's time-outs expire in this time as well as in the machine's.
  virtual bool limits_waits() const = 0;
  // Returns true if the program's clocks show this time.
  virtual bool is_program_time() const = 0;
  virtual bool owes_replies() const = 0;
  // Returns the reason why time does not advance although every thread waits.
  virtual std::string WhyTimeStands() const = 0;
  // Prints a line for the user of the program.
  virtual void Note(const std::string& text) = 0;

  // A descriptor for which the last thread that called GoOn with `alone` also waits. -1: none.
  virtual int wake_fd() const { return -1; }
  // Returns true if a child process is about to join this time, or has ended and is waking up its
  // parent. Call this before checking the program's threads.
  virtual bool AwaitsProcess() { return false; }
  // Stores the program's alarm(2) for a program that this process executes.
  virtual void KeepAlarm(const TimerSetting&) {}
  // Records that a thread of the program runs again.
  virtual void Resume() {}
  // Shows the current time to the program, whose process may have been stopped.
  virtual void LookAgain() {}
};

}  // namespace rdmaemu::embedded
