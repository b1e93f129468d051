// A host's membership of one IPv4 multicast group on one link. The socket is bound to the group's
// address and port 4791, and receives only datagrams that arrive on that link. Each host of a
// machine that joins the group receives its own copy.
#pragma once

#include "emulator/base/net_address.h"
#include "emulator/base/result.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class GroupPort {
 public:
  // Joins the group on the interface. If `interface_index` is 0, joins on the interface that has
  // the address `local`. Fails with the errors of socket(2), bind(2) and IP_ADD_MEMBERSHIP (ip(7)),
  // and with EAFNOSUPPORT for an IPv6 group.
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
