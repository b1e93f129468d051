// A copy job of another host (abi/copy_jobs.h), as seen by the host that reads the job's form. The
// copy goes into the form, unless this host names its destination.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "emulator/abi/copy_jobs.h"
#include "emulator/base/unfilled_form.h"

namespace rdmaemu::transport {

class ForeignJob final : public DirectForm {
 public:
  // `reference` must name a slot of the page. `placed` is the mark of a form whose payload is at
  // the named destination.
  ForeignJob(std::shared_ptr<JobPage> page, const JobReference& reference, uint8_t placed)
      : page_(std::move(page)), slot_(reference.slot), number_(reference.number), placed_(placed) {}

  bool Offer(uint32_t pid, const MemoryRange& to) override;
  bool Withdraw() override;
  std::optional<uint32_t> Recall() override { return page_->Recall(job(), number_); }
  bool TakeBack() override;
  bool IsOver() const override;
  // The program copies into the form. Call this instead of Offer. Returns false if it does already.
  bool Decline();
  // Returns true while the program may copy, copies, or has copied to the named destination.
  bool IsDirect() const;
  // Returns true if Offer has succeeded, and Withdraw has not.
  bool was_offered() const { return is_offered_; }
  // The form was read, or never will be.
  void SetOver() { is_over_ = true; }

 private:
  // The fields of a job that name its destination.
  struct Destination {
    uint32_t pid, count;
    CopyRange range;
    uint8_t mark;
  };
  CopyJob& job() const { return page_->jobs[slot_]; }
  bool Is(CopyJob::State state) const { return job().Word() == CopyJob::WordOf(state, number_); }
  // Replaces the destination if the job has state `from`. The job is then offered.
  bool Redirect(CopyJob::State from, Destination to);

  std::shared_ptr<JobPage> page_;
  uint32_t slot_, number_;
  uint8_t placed_;
  Destination replaced_{};  // by the last Redirect
  bool is_offered_ = false;
  bool is_over_ = false;
};

}  // namespace rdmaemu::transport
