#include "bench/rdma/base.h"

#include <sys/mman.h>
#include <time.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace rdma_bench {

namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
}

void FailErrno(const std::string& what) { throw Failure(what + ": " + std::strerror(errno)); }

double NowSeconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Buffer::Buffer(size_t bytes, Pages pages)
    : bytes_((bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes) {
  // Maps one huge page more, so that the buffer begins at a huge page. Otherwise two buffers differ
  // by chance.
  const size_t mapped = bytes_ + kHugePageBytes;
  void* const base =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Require(base != MAP_FAILED, "mmap of " + std::to_string(mapped) + " bytes");
  const auto begin = reinterpret_cast<uintptr_t>(base);
  const uintptr_t aligned = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  data_ = reinterpret_cast<std::byte*>(aligned);
  if (aligned > begin) munmap(base, aligned - begin);
  munmap(data_ + bytes_, begin + mapped - aligned - bytes_);
  // A kernel without transparent huge pages refuses both. HugeBytes shows the result.
  madvise(data_, bytes_, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(data_, 1, bytes_);
}

Buffer::~Buffer() {
  if (is_own_) munmap(data_, bytes_);
}

size_t Buffer::HugeBytes() const {
  std::ifstream maps("/proc/self/smaps");
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  bool inside = false;
  size_t total = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &from, &to) == 2) {
      inside = from < begin + bytes_ && to > begin;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %lu kB", &kib) == 1) {
      total += kib * 1024;
    }
  }
  return total;
}

}  // namespace rdma_bench
