/* Prints this machine's numbers of the system calls that the tests forbid. */
#include <stdio.h>
#include <sys/syscall.h>

int main(void) {
  printf("process_vm %d,%d\n", SYS_process_vm_readv, SYS_process_vm_writev);
  printf("memory %d,%d,%d,%d\n", SYS_process_vm_readv, SYS_process_vm_writev, SYS_preadv,
         SYS_pwritev);
  printf("close_range %d\n", SYS_close_range);
  printf("epoll_pwait2 %d\n", SYS_epoll_pwait2);
  printf("madvise %d\n", SYS_madvise);
  return 0;
}
