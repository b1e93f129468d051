/* A call that its host answers late. The library then looks whether the host has ended. A signal
 * interrupts each second look, as the kernel does even if ppoll(2) does not wait. The program's own
 * syscall(2) does this here, because the moment is too short for a real signal. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "need.h"

enum { kArguments = 6 };

static int interrupts_looks, looks;

static long call_kernel(long number, const long* argument) {
  long result;
  register long r10 __asm__("r10") = argument[3];
  register long r8 __asm__("r8") = argument[4];
  register long r9 __asm__("r9") = argument[5];
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(argument[0]), "S"(argument[1]), "d"(argument[2]), "r"(r10),
                     "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

long syscall(long number, ...) {
  if (number == SYS_ppoll && interrupts_looks && looks++ % 2 == 0) {
    errno = EINTR;
    return -1;
  }
  long argument[kArguments];
  va_list arguments;
  va_start(arguments, number);
  for (int i = 0; i < kArguments; i++) argument[i] = va_arg(arguments, long);
  va_end(arguments);
  const long result = call_kernel(number, argument);
  if (result >= 0 || result < -4095) return result;
  errno = (int)-result;
  return -1;
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
