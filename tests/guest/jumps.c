/* A signal handler that leaves ibv_get_cq_event by siglongjmp. The parent of the program steps
 * through the call, and sends the signal after one instruction more in each round. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "need.h"

/* The parent begins to step at kBegin. It learns from kEnd that the call has returned first. */
enum { kBegin = SIGSTOP, kEnd = SIGUSR2, kJump = SIGUSR1, kHang_s = 30 };

static sigjmp_buf before_call;
static struct ibv_comp_channel* channel;
static struct ibv_cq* queue;
static struct ibv_qp* qp;

static void jump(int number) {
  (void)number;
  siglongjmp(before_call, 1);
}

static void get_event(void) {
  struct ibv_cq* cq;
  void* context;
  NEED(ibv_get_cq_event(channel, &cq, &context) == 0 && cq == queue);
}

/* A queue pair in the error state completes each request at once. */
static void raise_event(void) {
  struct ibv_send_wr request = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
  NEED(ibv_req_notify_cq(queue, 0) == 0);
  NEED(ibv_post_send(qp, &request, &bad) == 0);
}

static void take_all(void) {
  struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
  while (poll(&readable, 1, 0) == 1) get_event();
  struct ibv_wc completion;
  while (ibv_poll_cq(queue, 1, &completion) == 1) {
  }
}

static void open_queue(void) {
  struct ibv_device** const list = ibv_get_device_list(NULL);
  NEED(list != NULL && list[0] != NULL);
  struct ibv_context* const device = ibv_open_device(list[0]);
  NEED(device != NULL);
  struct ibv_pd* const pd = ibv_alloc_pd(device);
  channel = ibv_create_comp_channel(device);
  queue = ibv_create_cq(device, 64, NULL, channel, 0);
  NEED(pd != NULL && queue != NULL);
  struct ibv_qp_init_attr init = {
      .send_cq = queue, .recv_cq = queue, .cap = {16, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  qp = ibv_create_qp(pd, &init);
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  const int to_init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  NEED(qp != NULL && ibv_modify_qp(qp, &attributes, to_init) == 0);
  attributes.qp_state = IBV_QPS_ERR;
  NEED(ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0);
}

static int step_through_calls(void) {
  NEED(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
  open_queue();
  const struct sigaction action = {.sa_handler = jump};
  NEED(sigaction(kJump, &action, NULL) == 0);
  for (;;) {
    raise_event();
    alarm(kHang_s); /* ends the program */
    if (sigsetjmp(before_call, 1) == 0) {
      raise(kBegin);
      get_event();
      raise(kEnd);
      return 0;
    }
    take_all();
    raise_event();
    get_event();
    take_all();
  }
}

/* Returns the signal that has stopped the program, or 0 and its status if it has ended. */
static int await_stop(pid_t program, int* status) {
  NEED(waitpid(program, status, 0) == program);
  return WIFSTOPPED(*status) ? WSTOPSIG(*status) : 0;
}

static int resume(pid_t program, int how, int number, int* status) {
  NEED(ptrace(how, program, NULL, (void*)(long)number) == 0);
  return await_stop(program, status);
}

int main(void) {
  const pid_t program = fork();
  if (program == 0) return step_through_calls();
  int status = 0, steps = 0;
  for (int stop = await_stop(program, &status); stop != 0;) {
    if (stop == kBegin) {
      steps++;
      for (int i = 0; i < steps && stop != kEnd; i++) {
        stop = resume(program, PTRACE_SINGLESTEP, 0, &status);
        NEED(stop == SIGTRAP || stop == kEnd);
      }
      stop = resume(program, PTRACE_CONT, stop == kEnd ? 0 : kJump, &status);
    } else {
      stop = resume(program, PTRACE_CONT, stop == kEnd ? 0 : stop, &status);
    }
  }
  if (WIFSIGNALED(status)) printf("signal %d after %d steps\n", WTERMSIG(status), steps);
  NEED(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  printf("after each of %d steps\n", steps);
  return 0;
}
