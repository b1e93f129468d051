#include "shim/layer/checks/sample.h"

#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

namespace rdmaemu::layer::checks {

void Sample::Choose(const ibv_sge* sges, int count) {
  const auto words = kWords / static_cast<size_t>(count);
  for (int i = 0; i < count; i++) {
    const ibv_sge& sge = sges[i];
    if (sge.length == 0) continue;
    if (sge.length <= words * kWordBytes) {
      pieces_[count_++] = {sge.addr, sge.length};
      length_ += sge.length;
      continue;
    }
    // The first piece is the beginning of the buffer, and the last one its end.
    const uint64_t last = sge.length - kWordBytes;
    for (size_t word = 0; word < words; word++) {
      pieces_[count_++] = {sge.addr + last * word / (words - 1), kWordBytes};
      length_ += kWordBytes;
    }
  }
}

bool Sample::Read(uint8_t* out) const {
  iovec remote[kWords + kMaxRanges];
  for (int i = 0; i < count_; i++) {
    remote[i] = {reinterpret_cast<void*>(pieces_[i].address), pieces_[i].length};
  }
  const iovec local{out, length_};
  const ssize_t read =
      process_vm_readv(getpid(), &local, 1, remote, static_cast<unsigned long>(count_), 0);
  return read == static_cast<ssize_t>(length_);
}

Sample* Sample::Take(const ibv_sge* sges, int count) {
  if (count <= 0 || count > kMaxRanges) return nullptr;
  Sample taken;
  taken.Choose(sges, count);
  if (taken.count_ == 0 || !taken.Read(taken.bytes_)) return nullptr;
  return new Sample(taken);
}

uint64_t Sample::Changed() const {
  uint8_t now[sizeof bytes_];
  if (!Read(now)) return 0;
  const auto [was, is] = std::mismatch(bytes_, bytes_ + length_, now);
  if (was == bytes_ + length_) return 0;
  auto at = static_cast<size_t>(was - bytes_);
  for (int i = 0; i < count_; at -= pieces_[i++].length) {
    if (at < pieces_[i].length) return pieces_[i].address + at;
  }
  return 0;
}

}  // namespace rdmaemu::layer::checks
