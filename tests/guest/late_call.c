/* A call that its host answers late. The library then looks whether the host has ended. A signal
 * interrupts each second look, as the kernel does even if ppoll(2) does not wait. The program's own
 * syscall(2) does this here, because the moment is too short for a real signal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "need.h"

static int interrupts_looks, looks;

long syscall(long number, ...) {
  enum { kArguments = 6 }; /* as many as a system call can have */
  if (number == SYS_ppoll && interrupts_looks && looks++ % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  static __typeof__(&syscall) next;
  if (next == NULL) next = (__typeof__(next))dlsym(RTLD_NEXT, "syscall");
  long a[kArguments];
  va_list arguments;
  va_start(arguments, number);
  for (int i = 0; i < kArguments; i++) a[i] = va_arg(arguments, long);
  va_end(arguments);
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int main(void) {
  struct ibv_device** const list = ibv_get_device_list(NULL);
  NEED(list != NULL && list[0] != NULL);
  struct ibv_context* const device = ibv_open_device(list[0]);
  NEED(device != NULL);
  struct ibv_pd* const domain = ibv_alloc_pd(device);
  NEED(domain != NULL);
  interrupts_looks = 1;
  NEED(ibv_dealloc_pd(domain) == 0);
  interrupts_looks = 0;
  NEED(looks >= 2);
  puts("freed");
  return 0;
}
