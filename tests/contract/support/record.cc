// Reports the connection management events of a test to the runner, which creates docs/events.md
// from them. This program's rdma_get_cm_event stands before the library's, so it records every
// event that the tests fetch. It is hidden, so that a library's own calls of rdma_get_cm_event do
// not come here: a program trace would take them for the test's. Off unless RDMA_TEST_RECORD is
// set.
#include <dlfcn.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

namespace {

using GetCmEvent = int (*)(rdma_event_channel*, rdma_cm_event**);

int Length(const rdma_cm_event& event) {
  const bool datagram =
      event.id != nullptr && (event.id->ps == RDMA_PS_UDP || event.id->ps == RDMA_PS_IPOIB);
  return datagram ? event.param.ud.private_data_len : event.param.conn.private_data_len;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) int rdma_get_cm_event(rdma_event_channel* channel,
                                                                       rdma_cm_event** event) {
  static const auto next = reinterpret_cast<GetCmEvent>(dlsym(RTLD_NEXT, "rdma_get_cm_event"));
  const int result = next(channel, event);
  if (result == 0 && getenv("RDMA_TEST_RECORD") != nullptr) {
    // Each line is one write, because the processes of a test share the descriptor.
    dprintf(STDOUT_FILENO, "@event {\"event\": \"%s\", \"status\": %d, \"private_data_len\": %d}\n",
            rdma_event_str((*event)->event), (*event)->status, Length(**event));
    errno = 0;
  }
  return result;
}
