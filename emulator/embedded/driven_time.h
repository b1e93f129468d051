// The time that the program's waits drive and in which they end: that of the hosts inside the
// process, or one shared with host processes. Not thread-safe: ProcessHost's lock guards it.
#pragma once

#include <optional>
#include <string>

#include "emulator/base/time.h"
#include "emulator/embedded/program_timers.h"

namespace rdmaemu::embedded {

class DrivenTime {
 public:
  struct Pause {
    bool moved = false;    // call GoOn again
    bool endless = false;  // nothing will happen by itself
    // If nothing moved: the machine's time until something happens.
    std::optional<Duration> machine = std::nullopt;
  };

  virtual ~DrivenTime() = default;
  // Runs until nothing is ready at this moment. Returns true if anything was.
  virtual bool Settle() = 0;
  // Lets time pass to the next event, because the program waits and nothing is ready. `alone`: no
  // thread of the program runs. Virtual time does not pass `limit`, the first time-out of the
  // program's waits. Program time moves to `limit`, but only for a program that is alone.
  virtual Pause GoOn(bool alone, std::optional<Time> limit) = 0;
  // Handles a poll of the program that found nothing.
  virtual void Look(bool alone) = 0;
  // Moves virtual time to the time-out of a program's wait.
  virtual void PassTo(Time time) = 0;
  virtual Time Now() = 0;
  // Returns true if time-outs of the program count in this time as well as in the machine's.
  virtual bool limits_waits() const = 0;
  // Returns true if the program lives in this time.
  virtual bool is_program_time() const = 0;
  virtual bool owes_replies() const = 0;
  // Says why time does not move when every thread waits.
  virtual std::string WhyTimeStands() const = 0;
  // Prints a line for the user of the program.
  virtual void Note(const std::string& text) = 0;

  // The last thread that called GoOn alone also waits for this descriptor. -1: for no other one.
  virtual int wake_fd() const { return -1; }
  // Returns true if a child process is about to join this time, or has ended and wakes the program.
  // Call this before checking the program's threads.
  virtual bool AwaitsProcess() { return false; }
  // Keeps the program's alarm(2) for a program that this process executes.
  virtual void KeepAlarm(const TimerSetting&) {}
  // Notes that a thread of the program runs again.
  virtual void Resume() {}
};

}  // namespace rdmaemu::embedded
