// usage RULE[@VARIANT] break|keep ADDRESS
#include <string.h>
#include <unistd.h>

#include <initializer_list>

#include "usage.h"

int main(int argc, char** argv) {
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
