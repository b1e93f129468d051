// The interfaces to a train that a network has sent before the train's payload was there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "emulator/base/memory.h"

namespace rdmaemu {

// Where another host of the same user finds the copy job of a form (abi/copy_jobs.h).
struct JobReference {
  uint32_t segment = 0;  // SegmentId
  int32_t fd = -1;       // the segment's descriptor in the sending host
  uint32_t offset = 0;   // of the JobPage in the segment, in bytes
  uint32_t slot = 0, number = 0;
};

// The form of a train (transport/train_form.h) in the network, whose payload is missing. Its
// receiver waits for Finish or Abandon. The network calls neither.
class UnfilledForm {
 public:
  virtual ~UnfilledForm() = default;
  // Returns the payload's place. Valid while this object exists.
  virtual std::span<std::byte> payload() const = 0;
  // A byte behind the payload that shows the form to its receiver, as Finish(true) does. A program
  // writes it after the payload. nullptr: there is none.
  virtual std::byte* mark() const { return nullptr; }
  // The value for that byte.
  virtual std::byte filled_mark() const { return std::byte{0}; }
  // Returns true if the form was shown by its mark.
  virtual bool IsFilled() const { return false; }
  // Returns false if Refer is impossible, or costs more than it saves.
  virtual bool takes_references() const { return false; }
  // Lets the receiver name the destination of the job's copy (DirectForm). Writes to the payload's
  // place. Call this only after takes_references, and before any thread may take the job.
  virtual void Refer(const JobReference& /*job*/) {}
  // Shows the form to its receiver. If it is not filled, the train is lost.
  virtual void Finish(bool filled) = 0;
  // As Finish(false). The network never uses the form's memory again, because another process may
  // write it. The caller keeps this object as long.
  virtual void Abandon() = 0;
};

// The result of an attempt to name the destination of a form.
enum class Naming : uint8_t {
  kNamed,
  kLater,  // the forms in front of it must be executed first
  kNever,  // no other process can write there
};

// The receiver's side of a form whose sender has called Refer. The sender's program can copy the
// payload into the memory of the receiver's program, or into the form.
class DirectForm {
 public:
  virtual ~DirectForm() = default;
  // Names the destination to the sender's program. `pid` is its process, as all processes of both
  // hosts see it. Returns false if the sender no longer waits for it.
  virtual bool Offer(uint32_t pid, const MemoryRange& to) = 0;
  // Takes the offer back, if no thread has taken it. Returns false while a thread copies. Call it
  // again then.
  virtual bool Withdraw() = 0;
  // Asks the thread that has taken the offer not to begin its copy, and returns the thread. When
  // the caller has then seen that the thread does not copy (Memory::CopyStateOf), TakeBack
  // withdraws the offer, unless the thread has ended it. Recall returns nothing if no thread has
  // it.
  virtual std::optional<uint32_t> Recall() = 0;
  virtual bool TakeBack() = 0;
  // Returns true when the receiver has read the form, or never will, and no thread copies.
  virtual bool IsOver() const = 0;
};

}  // namespace rdmaemu
