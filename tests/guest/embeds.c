/* A library for LD_PRELOAD. The program runs on a host of its own process. */
#include <stdio.h>
#include <stdlib.h>

int rdmaemu_open(const void* options);
const char* rdmaemu_last_error(void);

__attribute__((constructor)) static void embed(void) {
  if (rdmaemu_open(NULL) == 0) return;
  fprintf(stderr, "rdmaemu_open: %s\n", rdmaemu_last_error());
  exit(125);
}
