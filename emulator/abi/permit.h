// Permits: a program's thread executes WRITEs and READs of a queue pair itself, within
// ibv_post_send. The host does not take part. It learns later how many requests were executed, and
// counts them as if it had executed them.
//
// A host grants a permit after it has executed a request of the same kind. The permit holds until
// the program posts a request that it does not execute itself, or until the host ends the permit.
// A thread copies only while JobPage::busy has its number, and only while JobPage::recalls does not
// change (copy_jobs.h). So a host that ends a permit can wait for a copy that has begun, and
// prevents one that has not.
//
// A permit for a peer on another host of the same user has two halves. The program's own host
// writes one, and the peer's host the other one (LentPermit), in memory of the program's host that
// it maps. Both must be there. Either host can end its half, and waits for copies in the same way.
//
// The hosts trust nothing that the program writes here. A false number of executed requests changes
// only the program's own connection and counters.
#pragma once

#include <atomic>
#include <cstdint>

#include "emulator/abi/numbered.h"

namespace rdmaemu {

// The longest request that a program executes itself, in bytes. A longer copy would delay the
// return of ibv_post_send.
inline constexpr uint64_t kMaxPermittedBytes = 8192;

// The bytes of a memory region, as a key names them and as the process maps them.
struct PermittedRegion {
  uint64_t iova, address, length;
  uint32_t key;
  uint32_t access;  // IBV_ACCESS_*

  // Returns true if the key, the range and the right are those of this region.
  bool Covers(uint32_t its_key, uint64_t at, uint64_t bytes, uint32_t right) const {
    return its_key == key && (access & right) == right && at >= iova && bytes <= length &&
           at - iova <= length - bytes;
  }
  uint64_t AddressOf(uint64_t at) const { return address + (at - iova); }
};

// The host writes it. A reader compares `number` before and after it has read the other members.
struct Permit {
  uint32_t number;             // 0: none. Each permit of a queue pair has another number.
  uint32_t index;              // the permit holds while the send ring is empty at this index
  uint32_t pid;                // of the other process, as the program sees it
  uint32_t mtu_bytes;          // of the path
  uint32_t lent_slot;          // of JobPage::lent, from 1; 0: `pid` and `other` are here
  uint32_t lent_number;        // of the permit in that slot
  uint32_t lane, lane_number;  // only for SENDs, by this lane under this number (send_lane.h)
  PermittedRegion own, other;  // `own` has key 0 if only inline data was sent

  // Publishes a permit, or ends the published one (`to.number` is 0).
  void Publish(const Permit& to) { PublishNumbered(*this, to); }
  uint32_t Number() { return std::atomic_ref(number).load(std::memory_order_seq_cst); }
  // Returns the permit. Its number is 0 if there is none.
  Permit Read() { return ReadNumbered(*this); }
};

// How many requests the program has executed. The program writes it, before it posts another
// request. `packets` are those of the payload, as PSNs count them. `padding` are their pad bytes,
// and `ends` those packets that are a message's first or last one.
struct Executed {
  struct Requests {
    uint64_t count, bytes, packets, padding, ends;

    // Adds a request of `length` bytes, above 0. Only one thread may call this at a time.
    void Add(uint64_t length, uint32_t mtu_bytes) {
      const auto add = [](uint64_t& counter, uint64_t more) {
        std::atomic_ref(counter).store(counter + more, std::memory_order_relaxed);
      };
      const uint64_t in_packets = (length + mtu_bytes - 1) / mtu_bytes;
      add(count, 1);
      add(bytes, length);
      add(packets, in_packets);
      add(padding, -length & 3);
      add(ends, in_packets > 1 ? 2 : 1);
    }
  };
  Requests writes, reads;
};

// A permit's half of the peer's host. It has a number, `pid` and `other`.
//
// The host of an earlier user of the slot may write it at the same time, because its offer was
// late. `check` tells such a mixture.
struct LentPermit {
  uint32_t owner;     // the program's host writes it: each QP that uses the slot has another one
  Permit permit;      // the peer's host writes it
  uint64_t check;     // the same
  Executed executed;  // the program writes it; all requests by permits of this slot

  void Publish(const Permit& to) {
    std::atomic_ref(check).store(CheckOf(to), std::memory_order_relaxed);
    permit.Publish(to);
  }
  // Returns the permit. Its number is 0 if there is none.
  Permit Read() {
    Permit copy = permit.Read();
    if (std::atomic_ref(check).load(std::memory_order_acquire) != CheckOf(copy)) copy.number = 0;
    return copy;
  }

 private:
  // FNV-1a of the members that the peer's host sets.
  static uint64_t CheckOf(const Permit& permit) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const uint64_t each :
         {uint64_t{permit.number}, uint64_t{permit.pid}, permit.other.iova, permit.other.address,
          permit.other.length, uint64_t{permit.other.key} << 32 | permit.other.access}) {
      hash = (hash ^ each) * 0x100000001b3;
    }
    return hash;
  }
};

}  // namespace rdmaemu
