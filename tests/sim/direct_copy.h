// The reader's side of a form whose payload the sender's program may copy directly to the reader's
// program (base/unfilled_form.h), as runtime/direct_forms.h. The copy is a job in a segment of the
// sender's machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "emulator/abi/copy_jobs.h"
#include "emulator/base/unfilled_form.h"
#include "tests/sim/tally.h"

namespace rdmaemu::sim {

class DirectCopy final : public DirectForm {
 public:
  // `mark` shows that the form's payload is at its destination. `page` stays mapped when the
  // sender's host has crashed.
  DirectCopy(std::shared_ptr<JobPage> page, const JobReference& job, uint8_t mark, Tally& tally)
      : page_(std::move(page)), slot_(job.slot), number_(job.number), mark_(mark), tally_(tally) {}

  bool Offer(uint32_t pid, std::span<const MemoryRange> to) override;
  void Decline() override;
  bool IsDirect() override;
  bool Withdraw() override;
  bool IsOver() const override { return is_over_; }
  // Returns true if Offer has succeeded, and Withdraw has not.
  bool was_offered() const { return is_offered_; }
  void SetOver() { is_over_ = true; }

 private:
  struct Destination {
    uint32_t pid, count;
    std::array<CopyRange, CopyJob::kMaxRanges> ranges;
    uint8_t mark;
  };
  CopyJob& job() const { return page_->jobs[slot_]; }
  Destination Exchange(const Destination& destination);

  std::shared_ptr<JobPage> page_;
  uint32_t slot_, number_;
  uint8_t mark_;
  Tally& tally_;
  Destination in_form_{};
  bool is_offered_ = false;
  bool is_over_ = false;
};

}  // namespace rdmaemu::sim
