// The jobs of forms whose payload the sender's program can copy directly to its destination
// (transport/foreign_job.h). They are in memory of the sending host, which this host maps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>

#include "emulator/abi/copy_jobs.h"
#include "emulator/runtime/peer_ring.h"
#include "emulator/transport/foreign_job.h"

namespace rdmaemu::runtime {

// The JobPages of the programs of other hosts, as mapped for this host.
class ForeignJobPages {
 public:
  // The most pages that stay mapped. Above it, all are mapped anew when they are needed.
  static constexpr size_t kMaxPages = 64;

  // Returns the job of a form. `pid` is the host that wrote the form, and `payload` the form's
  // place for its payload. Returns nullptr if the form's reference is wrong.
  std::shared_ptr<transport::ForeignJob> Open(uint32_t pid, std::span<const std::byte> payload);
  // Returns the page to which a permit's offer refers. `pid` is the host that sent the offer.
  // Returns nullptr if the reference is wrong.
  std::shared_ptr<JobPage> OpenPage(uint32_t pid, const JobReference& page) {
    return Find(pid, page);
  }
  // Unmaps the pages whose programs have ended. Call this before the host sleeps.
  void ForgetEnded();
  // Call this when the host with this pid has ended. Another one may get the pid.
  void Forget(uint32_t pid) {
    std::erase_if(pages_, [pid](const auto& each) { return std::get<0>(each.first) == pid; });
  }

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t>;  // pid, segment and offset
  std::shared_ptr<JobPage> Find(uint32_t pid, const JobReference& job);

  std::map<Key, std::shared_ptr<JobPage>> pages_;
};

}  // namespace rdmaemu::runtime
