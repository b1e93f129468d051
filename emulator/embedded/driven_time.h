// What the program's waits drive, and in whose time they end: the hosts inside the process, or the
// time that this process shares with host processes. Not thread-safe: ProcessHost's lock guards it.
#pragma once

#include <optional>
#include <string>

#include "emulator/base/time.h"

namespace rdmaemu::embedded {

class DrivenTime {
 public:
  struct Pause {
    bool moved = false;    // look again
    bool endless = false;  // nothing will happen by itself
    // Not moved: the machine's time until something happens.
    std::optional<Duration> machine = std::nullopt;
  };

  virtual ~DrivenTime() = default;
  // Runs until nothing is ready at this moment. True when anything was.
  virtual bool Settle() = 0;
  // The program waits and nothing has come: lets time go on to what may happen next. `alone`: no
  // thread of the program runs. Virtual time does not pass `limit`, when the first of the program's
  // waits would time out. In program time it moves to that moment, and only for a program that is
  // alone.
  virtual Pause GoOn(bool alone, std::optional<Time> limit) = 0;
  // The program looked and found nothing.
  virtual void Look(bool alone) = 0;
  // A wait of the program timed out: virtual time has reached that moment.
  virtual void PassTo(Time time) = 0;
  virtual Time Now() = 0;
  // Time-outs of the program are counted in this time as well as in the machine's.
  virtual bool limits_waits() const = 0;
  // The program lives in this time.
  virtual bool is_program_time() const = 0;
  virtual bool owes_replies() const = 0;
  // Why time stands when every thread waits.
  virtual std::string WhyTimeStands() const = 0;
  // A line for the person who runs the program.
  virtual void Note(const std::string& text) = 0;

  // The thread that called GoOn last, alone, waits for this as well; -1: for nothing else.
  virtual int wake_fd() const { return -1; }
  // A process that the program has started is about to live in this time, or ends and wakes the
  // program. Asked before the program's threads are looked at.
  virtual bool AwaitsProcess() { return false; }
  // A thread of the program runs again.
  virtual void Resume() {}
};

}  // namespace rdmaemu::embedded
