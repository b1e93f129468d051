/* A server and its client as two programs, with a mistake that only the crash of the other program
 * shows.
 *
 * usage: planted_pair server|client ADDRESS PORT [MISTAKE]
 *
 * mistake           what the program does                    a fault that shows it
 * hang-on-crash     waits for its message alone, and         the other program ends
 *                   never for DISCONNECTED
 */
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <string.h>

static char message[64];
static int hangs;

/* Returns 0 when a request has completed, -1 when it failed or the connection is lost. */
static int await_completion(struct rdma_cm_id* id, struct ibv_comp_channel* channel,
                            struct ibv_cq* cq) {
  struct ibv_wc wc;
  for (;;) {
    int found = ibv_poll_cq(cq, 1, &wc);
    if (found == 0 && ibv_req_notify_cq(cq, 0) != 0) return -1;
    if (found == 0) found = ibv_poll_cq(cq, 1, &wc);
    if (found != 0) return found > 0 && wc.status == IBV_WC_SUCCESS ? 0 : -1;
    struct pollfd fds[2] = {{channel->fd, POLLIN, 0}, {id->channel->fd, POLLIN, 0}};
    if (poll(fds, hangs ? 1 : 2, -1) < 0) return -1;
    if (fds[0].revents != 0) {
      void* context;
      struct ibv_cq* of;
      if (ibv_get_cq_event(channel, &of, &context) != 0) return -1;
      ibv_ack_cq_events(of, 1);
    } else {
      struct rdma_cm_event* event;
      if (rdma_get_cm_event(id->channel, &event) == 0) rdma_ack_cm_event(event);
      return -1; /* no event of a connection is good news */
    }
  }
}

static int await_receive(struct rdma_cm_id* id) {
  return await_completion(id, id->recv_cq_channel, id->recv_cq);
}

static int send_message(struct rdma_cm_id* id, struct ibv_mr* mr) {
  if (rdma_post_send(id, NULL, message, sizeof message, mr, IBV_SEND_SIGNALED) != 0) return -1;
  return await_completion(id, id->send_cq_channel, id->send_cq);
}

static int exchange_as_client(struct rdma_cm_id* id, struct ibv_mr* mr) {
  struct rdma_conn_param parameters = {.retry_count = 3, .rnr_retry_count = 3};
  if (rdma_post_recv(id, NULL, message, sizeof message, mr) != 0) return -1;
  if (rdma_connect(id, &parameters) != 0) return -1;
  const int status = send_message(id, mr) == 0 && await_receive(id) == 0 ? 0 : -1;
  rdma_disconnect(id);
  return status;
}

static int exchange_as_server(struct rdma_cm_id* id, struct ibv_mr* mr) {
  struct rdma_conn_param parameters = {.retry_count = 3, .rnr_retry_count = 3};
  if (rdma_post_recv(id, NULL, message, sizeof message, mr) != 0) return -1;
  if (rdma_accept(id, &parameters) != 0) return -1;
  int status = await_receive(id) == 0 && send_message(id, mr) == 0 ? 0 : -1;
  struct rdma_cm_event* event;
  if (status == 0) {
    status = rdma_get_cm_event(id->channel, &event);
    if (status == 0) rdma_ack_cm_event(event);
  }
  rdma_disconnect(id);
  return status;
}

static int with_region(struct rdma_cm_id* id,
                       int (*exchange)(struct rdma_cm_id* id, struct ibv_mr* mr)) {
  struct ibv_mr* const mr = rdma_reg_msgs(id, message, sizeof message);
  const int status = mr == NULL ? -1 : exchange(id, mr);
  if (mr != NULL) rdma_dereg_mr(mr);
  rdma_destroy_ep(id);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const int is_server = strcmp(argv[1], "server") == 0;
  hangs = argc > 4 && strcmp(argv[4], "hang-on-crash") == 0;
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP,
                                .ai_flags = is_server ? RAI_PASSIVE : 0};
  struct rdma_addrinfo* address;
  if (rdma_getaddrinfo(argv[2], argv[3], &hints, &address) != 0) return 1;
  struct ibv_qp_init_attr attr = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
  struct rdma_cm_id *id, *child;
  int status = rdma_create_ep(&id, address, NULL, &attr);
  rdma_freeaddrinfo(address);
  if (status != 0) return 1;
  if (!is_server) return with_region(id, exchange_as_client) == 0 ? 0 : 1;
  status = rdma_listen(id, 1);
  if (status == 0) status = rdma_get_request(id, &child);
  if (status == 0) status = with_region(child, exchange_as_server);
  rdma_destroy_ep(id);
  return status == 0 ? 0 : 1;
}
