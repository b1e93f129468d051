// usage RULE[@VARIANT] break|keep ADDRESS
// usage list: prints the rules and variants.
// usage breakpoints: exits with status 0 when a breakpoint of perf_event_open(2) reports an access.
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>

#include "usage.h"

namespace {

bool BreakpointsWork() {
  alignas(8) static volatile uint64_t word;
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_BREAKPOINT;
  attr.bp_type = HW_BREAKPOINT_RW;
  attr.bp_addr = reinterpret_cast<uint64_t>(&word);
  attr.bp_len = HW_BREAKPOINT_LEN_8;
  attr.exclude_kernel = attr.exclude_hv = 1;
  const auto fd = static_cast<int>(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
  word = word + 1;
  uint64_t accesses = 0;
  return fd >= 0 && read(fd, &accesses, sizeof accesses) == sizeof accesses && accesses > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "breakpoints") == 0) return BreakpointsWork() ? 0 : 1;
  if (argc == 2 && strcmp(argv[1], "list") == 0) {
    for (const auto* cases : {&kCmCases, &kQpCases, &kQueueCases, &kExtendedCases, &kExitCases}) {
      for (const Case& each : *cases) puts(each.rule);
    }
    return 0;
  }
  CHECK(argc == 4);
  g_address = argv[3];
  const bool breaks = strcmp(argv[2], "break") == 0;
  for (const auto* cases : {&kCmCases, &kQpCases, &kQueueCases, &kExtendedCases, &kExitCases}) {
    for (const Case& each : *cases) {
      if (strcmp(argv[1], each.rule) != 0) continue;
      each.run(breaks);
      // exit(3) would report the objects that the case did not destroy.
      const bool leaves = cases == &kExitCases || strncmp(each.rule, "EXIT", 4) == 0;
      if (breaks && !leaves) _exit(0);
      return 0;
    }
  }
  fprintf(stderr, "no case %s\n", argv[1]);
  return 2;
}
