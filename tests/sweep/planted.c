/* A small RDMA test that handles every failure, and can be told to handle one of them wrongly:
 * `planted MISTAKE [ADDRESS]`. One thread is both sides of a connection on 127.0.0.1, or on
 * ADDRESS. The sides connect, exchange one message in each direction, and disconnect. Exit status:
 * 0, or 1 after a failure.
 *
 * Each mistake: what is wrong; the fault that shows it; the verdict.
 * - none: nothing.
 * - leak-on-reject: everything is left after REJECTED; event=REJECTED; leaked.
 * - no-ack: an unexpected event is not acknowledged; event=ADDR_ERROR; hung.
 * - wait-on-flush: waits again after a flushed receive; status=WR_FLUSH_ERR; hung.
 * - double-free: destroys the CQ twice; create_qp fails; misused.
 * - ignored-wc: a failed send counts as success; status=RETRY_EXC_ERR; wrong-result.
 * - null-mr: uses the region that was not registered; reg_mr fails; crashed.
 * - ignored-post: waits although the post has failed; post_send fails; hung.
 * - used-id: uses the id after its destruction; event=UNREACHABLE; misused.
 * - false-success: exits with 0; event=ROUTE_ERROR; wrong-result.
 * - leak-cq: the CQ is left; create_qp fails; leaked.
 * These need two faults at once:
 * - pair-retry: the id of the second attempt is left; REJECTED, then resolve_addr; leaked.
 * - pair-region: uses the region after the second failure; reg_mr, then reg_mr again; crashed.
 * - pair-cleanup: waits for DISCONNECTED for ever; a failed send, then rdma_disconnect; hung.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 64, PORT = 7471, RESOLVE_MS = 2000, PATIENCE_MS = 1000 };

struct side {
  struct rdma_event_channel* channel;
  struct rdma_cm_id* id;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_mr* mr;
  char bytes[2 * BYTES]; /* received, sent */
};

static const char *planted = "none", *own_address = "127.0.0.1";

static int is(const char* mistake) { return strcmp(planted, mistake) == 0; }

static int failed(const char* what) {
  fprintf(stderr, "planted: %s failed\n", what);
  return -1;
}

/* Takes the next event. Returns its type, or -1 if none comes. */
static int next_event(struct side* side, int wait_ms, struct rdma_cm_id** id) {
  struct pollfd fd = {side->channel->fd, POLLIN, 0};
  struct rdma_cm_event* event;
  if (poll(&fd, 1, wait_ms) != 1) return -1;
  if (rdma_get_cm_event(side->channel, &event) != 0) return -1;
  const int type = event->event;
  if (id != NULL) *id = event->id;
  if (!(is("no-ack") && type == RDMA_CM_EVENT_ADDR_ERROR)) rdma_ack_cm_event(event);
  return type;
}

static int await_event(struct side* side, int wanted) {
  const int type = next_event(side, PATIENCE_MS, NULL);
  if (type == wanted) return 0;
  fprintf(stderr, "planted: got event %d instead of %d\n", type, wanted);
  return -1;
}

static void clean_up(struct side* side) {
  if (side->id != NULL && side->id->qp != NULL) rdma_destroy_qp(side->id);
  if (side->mr != NULL) ibv_dereg_mr(side->mr);
  if (side->cq != NULL) ibv_destroy_cq(side->cq);
  if (side->pd != NULL) ibv_dealloc_pd(side->pd);
  if (side->id != NULL) rdma_destroy_id(side->id);
  side->id = NULL, side->pd = NULL, side->cq = NULL, side->mr = NULL;
}

static struct ibv_mr* register_bytes(struct side* side) {
  struct ibv_mr* mr = ibv_reg_mr(side->pd, side->bytes, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE);
  if (mr == NULL && !is("null-mr")) {
    /* A registration may fail for a moment. */
    mr = ibv_reg_mr(side->pd, side->bytes, 2 * BYTES, IBV_ACCESS_LOCAL_WRITE);
    if (mr == NULL && is("pair-region")) printf("lkey %u\n", mr->lkey);
  }
  if (mr == NULL && is("null-mr")) printf("lkey %u\n", mr->lkey);
  return mr;
}

/* Creates what a connection needs, on the device of the side's id, and posts a receive. */
static int prepare(struct side* side) {
  side->pd = ibv_alloc_pd(side->id->verbs);
  if (side->pd == NULL) return failed("ibv_alloc_pd");
  side->cq = ibv_create_cq(side->id->verbs, 4, NULL, NULL, 0);
  if (side->cq == NULL) return failed("ibv_create_cq");
  side->mr = register_bytes(side);
  if (side->mr == NULL) return failed("ibv_reg_mr");
  struct ibv_qp_init_attr attributes = {
      .send_cq = side->cq, .recv_cq = side->cq, .cap = {2, 2, 1, 1, 0}, .qp_type = IBV_QPT_RC};
  if (rdma_create_qp(side->id, side->pd, &attributes) != 0) {
    if (is("double-free")) ibv_destroy_cq(side->cq);
    if (is("leak-cq")) side->cq = NULL;
    return failed("rdma_create_qp");
  }
  struct ibv_sge sge = {(uintptr_t)side->bytes, BYTES, side->mr->lkey};
  struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
  if (ibv_post_recv(side->id->qp, &receive, &bad) != 0) return failed("ibv_post_recv");
  return 0;
}

/* Waits for a completion of either side. Gives up when an event says that none will come. */
static int await_completion(struct side* side, struct side* peer, enum ibv_wc_opcode wanted) {
  for (int turns = 0;; turns++) {
    struct ibv_wc wc;
    const int count = ibv_poll_cq(side->cq, 1, &wc);
    if (count < 0) return failed("ibv_poll_cq");
    if (count == 1) {
      if (wc.status == IBV_WC_SUCCESS && wc.opcode == wanted) return 0;
      if (wc.status == IBV_WC_WR_FLUSH_ERR && is("wait-on-flush")) continue;
      if (wc.status == IBV_WC_RETRY_EXC_ERR && is("ignored-wc")) return 0;
      if (wc.status != IBV_WC_SUCCESS) return failed(ibv_wc_status_str(wc.status));
      continue;
    }
    if (is("wait-on-flush") || is("ignored-post")) continue;
    struct pollfd fds[2] = {{side->channel->fd, POLLIN, 0}, {peer->channel->fd, POLLIN, 0}};
    if (poll(fds, 2, turns < PATIENCE_MS ? 1 : 0) > 0) return failed("the connection");
    if (turns >= PATIENCE_MS) return failed("waiting for a completion");
  }
}

static int send_to(struct side* from, struct side* to, const char* text) {
  char* const bytes = from->bytes + BYTES;
  snprintf(bytes, BYTES, "%s", text);
  struct ibv_sge sge = {(uintptr_t)bytes, BYTES, from->mr->lkey};
  struct ibv_send_wr send = {.wr_id = 2,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr* bad;
  if (ibv_post_send(from->id->qp, &send, &bad) != 0 && !is("ignored-post")) {
    return failed("ibv_post_send");
  }
  if (await_completion(from, to, IBV_WC_SEND) != 0) return -1;
  if (await_completion(to, from, IBV_WC_RECV) != 0 && !is("ignored-wc")) return -1;
  if (strcmp(to->bytes, text) != 0 && !is("ignored-wc")) return failed("comparing the message");
  return 0;
}

static int start_listening(struct side* listener) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  inet_pton(AF_INET, own_address, &address.sin_addr);
  if (rdma_create_id(listener->channel, &listener->id, NULL, RDMA_PS_TCP) != 0) {
    listener->id = NULL;
    return failed("rdma_create_id");
  }
  if (rdma_bind_addr(listener->id, (struct sockaddr*)&address) != 0)
    return failed("rdma_bind_addr");
  if (rdma_listen(listener->id, 1) != 0) return failed("rdma_listen");
  return 0;
}

static int resolve(struct side* client) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
  inet_pton(AF_INET, own_address, &address.sin_addr);
  if (rdma_create_id(client->channel, &client->id, NULL, RDMA_PS_TCP) != 0) {
    client->id = NULL;
    return failed("rdma_create_id");
  }
  if (rdma_resolve_addr(client->id, NULL, (struct sockaddr*)&address, RESOLVE_MS) != 0) {
    return failed("rdma_resolve_addr");
  }
  if (await_event(client, RDMA_CM_EVENT_ADDR_RESOLVED) != 0) return -1;
  if (rdma_resolve_route(client->id, RESOLVE_MS) != 0) return failed("rdma_resolve_route");
  if (await_event(client, RDMA_CM_EVENT_ROUTE_RESOLVED) != 0) {
    if (is("false-success")) exit(0);
    return -1;
  }
  return 0;
}

/* Returns 0 when both sides are connected, 1 when the request was rejected, -1 after a failure. */
static int connect_sides(struct side* client, struct side* listener, struct side* server) {
  struct rdma_conn_param parameters = {.retry_count = 7, .rnr_retry_count = 7};
  if (resolve(client) != 0 || prepare(client) != 0) return -1;
  if (rdma_connect(client->id, &parameters) != 0) return failed("rdma_connect");
  /* The request does not arrive if its sender gets an error. */
  struct pollfd fds[2] = {{listener->channel->fd, POLLIN, 0}, {client->channel->fd, POLLIN, 0}};
  if (poll(fds, 2, PATIENCE_MS) <= 0) return failed("waiting for the request");
  if (fds[0].revents != 0) {
    if (next_event(listener, 0, &server->id) != RDMA_CM_EVENT_CONNECT_REQUEST) {
      server->id = NULL; /* an event of the listener */
      return failed("the listener");
    }
    if (prepare(server) != 0) {
      rdma_reject(server->id, NULL, 0);
      return -1;
    }
    if (rdma_accept(server->id, &parameters) != 0) return failed("rdma_accept");
  }
  const int type = next_event(client, PATIENCE_MS, NULL);
  if (type == RDMA_CM_EVENT_UNREACHABLE && is("used-id")) {
    struct rdma_cm_id* const id = client->id;
    clean_up(client);
    rdma_disconnect(id);
    return -1;
  }
  if (type == RDMA_CM_EVENT_REJECTED) return 1;
  if (type != RDMA_CM_EVENT_ESTABLISHED) return failed("rdma_connect");
  if (server->id == NULL) return failed("the server");
  return await_event(listener, RDMA_CM_EVENT_ESTABLISHED);
}

static int exchange(struct side* client, struct side* listener, struct side* server) {
  server->channel = listener->channel;
  if (send_to(client, server, "ping") != 0 || send_to(server, client, "pong") != 0) {
    const int disconnected = rdma_disconnect(client->id);
    if (disconnected != 0 && is("pair-cleanup")) next_event(client, -1, NULL);
    return -1;
  }
  if (rdma_disconnect(client->id) != 0) return failed("rdma_disconnect");
  if (await_event(listener, RDMA_CM_EVENT_DISCONNECTED) != 0) return -1;
  if (rdma_disconnect(server->id) != 0) return failed("rdma_disconnect");
  return await_event(client, RDMA_CM_EVENT_DISCONNECTED);
}

/* Runs the test. A rejected request is repeated once. */
static int run(struct side* client, struct side* listener) {
  struct side server = {0};
  int status = start_listening(listener);
  if (status == 0) status = connect_sides(client, listener, &server);
  if (status == 1) {
    if (is("leak-on-reject")) return -1;
    clean_up(client);
    clean_up(&server);
    status = connect_sides(client, listener, &server);
    if (status != 0 && is("pair-retry")) client->id = NULL;
  }
  if (status == 0) status = exchange(client, listener, &server);
  clean_up(&server);
  clean_up(client);
  clean_up(listener);
  return status;
}

int main(int argc, char** argv) {
  if (argc > 1) planted = argv[1];
  if (argc > 2) own_address = argv[2];
  struct side client = {.channel = rdma_create_event_channel()};
  struct side listener = {.channel = rdma_create_event_channel()};
  int status = client.channel == NULL || listener.channel == NULL
                   ? failed("rdma_create_event_channel")
                   : run(&client, &listener);
  if (client.channel != NULL) rdma_destroy_event_channel(client.channel);
  if (listener.channel != NULL) rdma_destroy_event_channel(listener.channel);
  return status == 0 ? 0 : 1;
}
