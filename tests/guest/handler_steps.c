/* A signal handler that interrupts the library after every instruction: a signal handler polls a CQ
 * of its own, while the processor executes calls in single steps. Needs an x86-64 processor. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "need.h"

static struct ibv_cq* idle;
static unsigned long steps;

static void poll_idle(int signal_number) {
  (void)signal_number;
  const int before = errno;
  struct ibv_wc wc;
  steps++;
  (void)ibv_poll_cq(idle, 1, &wc);
  errno = before;
}

/* Sets or clears the processor's trap flag. While the flag is set, each instruction ends with
 * SIGTRAP. The compiler may use the 128 bytes below the stack pointer, so the code skips them. */
static void set_steps(int are_on) {
#ifdef __x86_64__
  unsigned long flags;
  __asm__ volatile(
      "sub $128, %%rsp\n\tpushfq\n\tpop %0\n\tand $~0x100, %0\n\tor %1, %0\n\tpush %0\n\tpopfq\n\t"
      "add $128, %%rsp"
      : "=&r"(flags)
      : "r"(are_on ? 0x100UL : 0UL)
      : "memory", "cc");
#else
  (void)are_on;
#endif
}

int main(void) {
  struct ibv_device** const list = ibv_get_device_list(NULL);
  NEED(list != NULL && list[0] != NULL);
  struct ibv_context* const device = ibv_open_device(list[0]);
  NEED(device != NULL);
  idle = ibv_create_cq(device, 1, NULL, NULL, 0);
  struct ibv_cq* const polled = ibv_create_cq(device, 1, NULL, NULL, 0);
  NEED(idle != NULL && polled != NULL);
  const struct sigaction action = {.sa_handler = poll_idle};
  NEED(sigaction(SIGTRAP, &action, NULL) == 0);
  for (int round = 0; round < 3; round++) {
    struct ibv_wc wc;
    set_steps(1);
    struct ibv_pd* const domain = ibv_alloc_pd(device);
    const int freed = domain == NULL ? -1 : ibv_dealloc_pd(domain);
    const int found = ibv_poll_cq(polled, 1, &wc);
    set_steps(0);
    NEED(freed == 0 && found == 0);
  }
#ifdef __x86_64__
  NEED(steps > 1000);
#endif
  puts("called");
  return 0;
}
