/* Objects of RDMA programs for the cases of the usage checks. Every function ends the program with
   status 1 when a call fails that must succeed. */
#pragma once

#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, strerror(errno)), exit(1)

/* One rule. `breaks`: the function makes the mistake. Otherwise it makes the same calls correctly
   and leaves nothing. */
struct use {
  const char* rule; /* "CM-001" */
  void (*function)(bool breaks);
  const char* more; /* other rules that the mistake breaks, or NULL */
  bool needs_exit;  /* the rule is one of exit(3) */
};
extern const struct use kCmUses[], kVerbsUses[], kProcessUses[]; /* the last one has no rule */

extern struct addrinfo* address; /* of the device */

/* ---- verbs */
struct device {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
};
struct ibv_context* open_device(void);
struct device make_device(void);
void destroy_device(struct device* device);
struct ibv_qp* make_qp(struct device* device);

/* ---- RDMA CM */
struct side {
  struct rdma_event_channel* channel;
  struct rdma_cm_id* id;
};
struct pair {
  struct side active, passive;
  struct rdma_cm_id* listener;
};
struct rdma_conn_param good_parameters(void);
struct rdma_cm_event* take(struct rdma_event_channel* channel, enum rdma_cm_event_type type);
void take_and_ack(struct rdma_event_channel* channel, enum rdma_cm_event_type type);
/* An id whose address or route is resolved. */
struct side resolved_address(void);
struct side resolved_route(void);
void destroy_side(struct side* side);
void make_cm_qp(struct rdma_cm_id* id);
/* A listener, and an active id that asks for a connection. The passive id is that of the request,
   which is acknowledged. */
struct pair requested(const struct rdma_conn_param* parameters);
void accepts(struct pair* pair);
struct pair connected(void);
void disconnect(struct pair* pair);
void destroy_pair(struct pair* pair);

/* ---- threads */
/* Acknowledges an event when the calling thread has blocked in its next call. */
void ack_when_blocked(struct rdma_cm_event* event);
void ack_cq_when_blocked(struct ibv_cq* cq);
/* Returns when the thread sleeps in a call. */
void wait_until_blocked(pid_t thread);
