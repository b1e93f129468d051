/* Runs a command under a seccomp filter, as a container's profile does; ERRNO and CALL are
 * numbers. usage: sandbox ERRNO CALL[,CALL...] COMMAND... */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { kMaxCalls = 16 };

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const unsigned error = (unsigned)atoi(argv[1]);
  struct sock_filter program[2 * kMaxCalls + 2] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short length = 1;
  for (char* call = argv[2]; *call && length < 2 * kMaxCalls;) {
    const unsigned number = (unsigned)strtoul(call, &call, 10);
    if (*call == ',') call++;
    program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
  }
  program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const struct sock_fprog filter = {length, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
    return perror("seccomp"), 2;
  }
  execvp(argv[3], argv + 3);
  return perror(argv[3]), 127;
}
