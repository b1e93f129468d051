/* A tracer holds a thread that copies its WRITEs' payload at the system call of a copy. Meanwhile
   the receiver deregisters its memory. When ibv_dereg_mr has returned, the memory changes no more.

   An argument names the host of the sending program. */
#include <infiniband/verbs.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 256 << 10, OUTSTANDING = 8, HELD_COPY = 20, FILL = 0x77 };

static void check(int ok, const char* what) {
  if (ok) return;
  perror(what);
  exit(1);
}

struct end {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  char* memory;
};

struct address {
  union ibv_gid gid;
  uint32_t qpn, rkey;
  uint64_t memory;
};

static void open_end(struct end* end, struct address* own) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  check(devices && devices[0], "ibv_get_device_list");
  end->context = ibv_open_device(devices[0]);
  check(end->context != NULL, "ibv_open_device");
  end->pd = ibv_alloc_pd(end->context);
  end->cq = ibv_create_cq(end->context, 64, NULL, NULL, 0);
  struct ibv_qp_init_attr init = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = OUTSTANDING, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
  end->qp = ibv_create_qp(end->pd, &init);
  check(end->qp != NULL, "ibv_create_qp");
  end->memory = malloc(BYTES);
  memset(end->memory, 1, BYTES);
  end->mr =
      ibv_reg_mr(end->pd, end->memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  check(end->mr != NULL, "ibv_reg_mr");
  check(ibv_query_gid(end->context, 1, 0, &own->gid) == 0, "ibv_query_gid");
  own->qpn = end->qp->qp_num;
  own->rkey = end->mr->rkey;
  own->memory = (uintptr_t)end->memory;
}

static void connect_end(struct end* end, const struct address* peer) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  check(ibv_modify_qp(end->qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
        "INIT");
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_4096,
      .dest_qp_num = peer->qpn,
      .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 1}}};
  check(ibv_modify_qp(end->qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0,
        "RTR");
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7};
  check(ibv_modify_qp(end->qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0,
        "RTS");
}

static void exchange(int socket, const struct address* own, struct address* peer) {
  check(write(socket, own, sizeof *own) == sizeof *own, "write");
  check(read(socket, peer, sizeof *peer) == sizeof *peer, "read");
}

/* The tracer sees each process_vm_writev of this thread. */
static void show_copies(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
  check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "PR_SET_SECCOMP");
}

/* Streams WRITEs until one fails. The first one that fails finds the memory deregistered. */
static int send_all(int socket) {
  struct end end;
  struct address own, peer;
  open_end(&end, &own);
  exchange(socket, &own, &peer);
  connect_end(&end, &peer);
  char go;
  check(read(socket, &go, 1) == 1, "the receiver");
  show_copies();
  struct ibv_sge sge = {(uintptr_t)end.memory, BYTES, end.mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge,
                           .num_sge = 1,
                           .opcode = IBV_WR_RDMA_WRITE,
                           .send_flags = IBV_SEND_SIGNALED,
                           .wr.rdma = {peer.memory, peer.rkey}},
                     *bad;
  for (int posted = 0, ended = 0;;) {
    for (; posted - ended < OUTSTANDING; posted++) {
      check(ibv_post_send(end.qp, &wr, &bad) == 0, "ibv_post_send");
    }
    struct ibv_wc wc;
    if (ibv_poll_cq(end.cq, 1, &wc) == 0) continue;
    if (wc.status != IBV_WC_SUCCESS) {
      printf("ends with: %s\n", ibv_wc_status_str(wc.status));
      return wc.status != IBV_WC_REM_ACCESS_ERR;
    }
    ended++;
  }
}

static struct end receiver;
static sem_t may_deregister, has_filled;

static void* deregister(void* unused) {
  sem_wait(&may_deregister);
  check(ibv_dereg_mr(receiver.mr) == 0, "ibv_dereg_mr");
  memset(receiver.memory, FILL, BYTES);
  sem_post(&has_filled);
  return unused;
}

/* Holds one copy until the memory is deregistered, or for 100 ms: the call may wait for the copy.
   Returns the sender's status. */
static int hold_a_copy(pid_t sender) {
  for (int copies = 0;;) {
    int status;
    check(waitpid(sender, &status, __WALL) == sender, "waitpid");
    if (WIFEXITED(status)) {
      check(copies >= HELD_COPY, "the sender made no copies");
      return WEXITSTATUS(status);
    }
    check(WIFSTOPPED(status), "the sender was killed");
    const int is_copy = status >> 8 == (SIGTRAP | PTRACE_EVENT_SECCOMP << 8);
    if (is_copy && ++copies == HELD_COPY) {
      sem_post(&may_deregister);
      struct timespec limit;
      clock_gettime(CLOCK_REALTIME, &limit);
      limit.tv_nsec += 100000000;
      limit.tv_sec += limit.tv_nsec / 1000000000;
      limit.tv_nsec %= 1000000000;
      if (sem_timedwait(&has_filled, &limit) == 0) sem_post(&has_filled);
    }
    const int signal = is_copy || status >> 16 != 0 ? 0 : WSTOPSIG(status);
    check(ptrace(PTRACE_CONT, sender, NULL, signal) == 0, "PTRACE_CONT");
  }
}

int main(int argc, char** argv) {
  int sockets[2];
  check(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
  const pid_t sender = fork();
  if (sender == 0) {
    if (argc > 1) setenv("RDMAEMU_HOST", argv[1], 1);
    return send_all(sockets[1]);
  }
  struct address own, peer;
  open_end(&receiver, &own);
  exchange(sockets[0], &own, &peer);
  connect_end(&receiver, &peer);
  sem_init(&may_deregister, 0, 0);
  sem_init(&has_filled, 0, 0);
  pthread_t thread;
  check(pthread_create(&thread, NULL, deregister, NULL) == 0, "pthread_create");
  check(ptrace(PTRACE_SEIZE, sender, NULL, PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL) == 0,
        "PTRACE_SEIZE");
  check(write(sockets[0], "g", 1) == 1, "write");
  const int status = hold_a_copy(sender);
  pthread_join(thread, NULL);
  for (int i = 0; i < BYTES; i++) {
    if (receiver.memory[i] != FILL) {
      printf("byte %d has changed after ibv_dereg_mr\n", i);
      return 1;
    }
  }
  printf("the memory did not change\n");
  return status;
}
