// A host's membership of one IPv4 multicast group on one link: a socket bound to the group's
// address and port 4791, which takes what comes there by that link and nothing else. Hosts of one
// machine may be members of the same group: each has a copy.
#pragma once

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class GroupPort {
 public:
  // The membership is on the interface; where that is 0, on the one that has the address `local`.
  // Errors as socket(2), bind(2) and IP_ADD_MEMBERSHIP of ip(7); EAFNOSUPPORT but for IPv4.
  static Result<GroupPort> Open(const NetAddress& local, uint32_t interface_index,
                                const NetAddress& group);

  int fd() const { return fd_.get(); }
  const NetAddress& local() const { return local_; }
  const NetAddress& group() const { return group_; }

 private:
  GroupPort(UniqueFd fd, const NetAddress& local, const NetAddress& group)
      : fd_(std::move(fd)), local_(local), group_(group) {}

  UniqueFd fd_;
  NetAddress local_, group_;
};

}  // namespace rdmaemu::runtime
