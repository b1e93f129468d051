// A form whose payload the sender's program may copy directly to the reader's program
// (transport/foreign_job.h). Counts what happens to it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "emulator/abi/copy_jobs.h"
#include "emulator/base/unfilled_form.h"
#include "emulator/transport/foreign_job.h"
#include "tests/sim/tally.h"

namespace rdmaemu::sim {

class DirectCopy final : public DirectForm {
 public:
  // `mark` shows that the form's payload is at its destination. `page` stays mapped when the
  // sender's host has crashed.
  DirectCopy(std::shared_ptr<JobPage> page, const JobReference& job, uint8_t mark, Tally& tally)
      : job_(std::move(page), job, mark), tally_(tally) {}

  bool Offer(uint32_t pid, const MemoryRange& to) override;
  bool Withdraw() override;
  std::optional<uint32_t> Recall() override { return job_.Recall(); }
  bool TakeBack() override;
  bool IsOver() const override { return job_.IsOver(); }
  // Act as those of ForeignJob.
  void Decline();
  bool IsDirect() const { return job_.IsDirect(); }
  bool was_offered() const { return job_.was_offered(); }
  void SetOver() { job_.SetOver(); }

 private:
  transport::ForeignJob job_;
  Tally& tally_;
};

}  // namespace rdmaemu::sim
