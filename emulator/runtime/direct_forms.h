// The reader's side of forms whose payload the sender's program can copy directly to its
// destination (base/unfilled_form.h). The copy is a job of the sending host (abi/copy_jobs.h), in
// memory that this host maps.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "emulator/abi/copy_jobs.h"
#include "emulator/base/unfilled_form.h"
#include "emulator/runtime/peer_ring.h"

namespace rdmaemu::runtime {

// The JobPages of the programs of other hosts, as mapped for this host.
class ForeignJobPages {
 public:
  // The most pages that stay mapped. Above it, all are mapped anew when they are needed.
  static constexpr size_t kMaxPages = 64;

  // Returns the page of the host with this pid. Returns nullptr if there is no such page.
  std::shared_ptr<JobPage> Find(uint32_t pid, const JobReference& job);
  // Unmaps the pages whose programs have ended. Call this before the host sleeps.
  void ForgetEnded();
  // Call this when the host with this pid has ended. Another one may get the pid.
  void Forget(uint32_t pid) {
    std::erase_if(pages_, [pid](const auto& each) { return std::get<0>(each.first) == pid; });
  }

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t>;  // pid, segment and offset
  std::map<Key, std::shared_ptr<JobPage>> pages_;
};

class FormOfPeer final : public DirectForm {
 public:
  // Returns nullptr if the form's reference is wrong. `pid` is the host that wrote the form, and
  // `payload` the form's place for its payload.
  static std::shared_ptr<FormOfPeer> Open(ForeignJobPages& pages, uint32_t pid,
                                          std::span<const std::byte> payload);

  bool Offer(uint32_t pid, std::span<const MemoryRange> to) override;
  void Decline() override;
  bool IsDirect() override;
  bool Withdraw() override;
  bool IsOver() const override;
  // Returns true if Offer has succeeded, and Withdraw has not.
  bool was_offered() const { return is_offered_; }
  void SetOver() { is_over_ = true; }

 private:
  FormOfPeer(std::shared_ptr<JobPage> page, const JobReference& job)
      : page_(std::move(page)), slot_(job.slot), number_(job.number) {}
  CopyJob& job() const { return page_->jobs[slot_]; }

  std::shared_ptr<JobPage> page_;
  uint32_t slot_, number_;
  // The destination in the form, which Withdraw restores.
  struct Saved {
    uint32_t pid, other_count;
    std::array<CopyRange, CopyJob::kMaxRanges> other;
    uint8_t mark;
  };
  Saved saved_{};
  bool is_offered_ = false;
  bool is_over_ = false;
};

}  // namespace rdmaemu::runtime
