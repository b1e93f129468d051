// The interface to a train that a network has sent before the train's payload was there.
#pragma once

#include <cstddef>
#include <span>

namespace rdmaemu {

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
  // Shows the form to its receiver. If it is not filled, the train is lost.
  virtual void Finish(bool filled) = 0;
  // As Finish(false). The network never uses the form's memory again, because another process may
  // write it. The caller keeps this object as long.
  virtual void Abandon() = 0;
};

}  // namespace rdmaemu
