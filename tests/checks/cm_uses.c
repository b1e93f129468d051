/* Uses of RDMA CM, by rule. */
#include "uses.h"

static void cm_001(bool breaks) {
  struct side side;
  CHECK(side.channel = rdma_create_event_channel());
  CHECK(!rdma_create_id(side.channel, &side.id, NULL, RDMA_PS_TCP));
  CHECK(!rdma_resolve_addr(side.id, NULL, address->ai_addr, 5000));
  struct rdma_cm_event* event = take(side.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  if (breaks) {
    ack_when_blocked(event);
  } else {
    CHECK(!rdma_ack_cm_event(event));
  }
  destroy_side(&side);
}

static void cm_002(bool breaks) {
  struct pair pair;
  CHECK(pair.passive.channel = rdma_create_event_channel());
  CHECK(!rdma_create_id(pair.passive.channel, &pair.listener, NULL, RDMA_PS_TCP));
  CHECK(!rdma_bind_addr(pair.listener, address->ai_addr) && !rdma_listen(pair.listener, 4));
  pair.active = resolved_route();
  make_cm_qp(pair.active.id);
  struct rdma_conn_param good = good_parameters();
  CHECK(!rdma_connect(pair.active.id, &good));
  struct rdma_cm_event* event = take(pair.passive.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  pair.passive.id = event->id;
  if (breaks) {
    ack_when_blocked(event);
  } else {
    CHECK(!rdma_ack_cm_event(event));
  }
  CHECK(!rdma_destroy_id(pair.listener));
  CHECK(!rdma_destroy_id(pair.passive.id));
  rdma_destroy_event_channel(pair.passive.channel);
  take_and_ack(pair.active.channel, RDMA_CM_EVENT_REJECTED);
  destroy_side(&pair.active);
}

static void cm_003(bool breaks) {
  struct side side;
  CHECK(side.channel = rdma_create_event_channel());
  CHECK(!rdma_create_id(side.channel, &side.id, NULL, RDMA_PS_TCP));
  CHECK(!rdma_resolve_addr(side.id, NULL, address->ai_addr, 5000));
  struct rdma_cm_event* event = take(side.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(!rdma_ack_cm_event(event));
  if (breaks) rdma_ack_cm_event(event);
  destroy_side(&side);
}

static void cm_005(bool breaks) {
  struct pair pair = connected();
  disconnect(&pair);
  if (breaks) {
    rdma_destroy_id(pair.passive.id);
    return;
  }
  destroy_pair(&pair);
}

static void cm_006(bool breaks) {
  struct pair pair = connected();
  struct rdma_conn_param good = good_parameters();
  if (breaks) rdma_accept(pair.passive.id, &good);
  disconnect(&pair);
  destroy_pair(&pair);
}

static void cm_007(bool breaks) {
  static const char data[57];
  struct rdma_conn_param parameters = good_parameters();
  parameters.private_data = data;
  parameters.private_data_len = breaks ? 57 : 56;
  if (breaks) {
    struct side side = resolved_route();
    make_cm_qp(side.id);
    rdma_connect(side.id, &parameters);
    return;
  }
  struct pair pair = requested(&parameters);
  accepts(&pair);
  disconnect(&pair);
  destroy_pair(&pair);
}

static void reject(struct pair* pair) {
  CHECK(!rdma_reject(pair->passive.id, NULL, 0));
  take_and_ack(pair->active.channel, RDMA_CM_EVENT_REJECTED);
}

static void cm_008(bool breaks) {
  struct pair pair = requested(NULL);
  struct rdma_conn_param good = good_parameters();
  reject(&pair);
  if (breaks) CHECK(rdma_connect(pair.active.id, &good));
  destroy_pair(&pair);
}

static void cm_009(bool breaks) {
  struct pair pair = requested(NULL);
  reject(&pair);
  if (!breaks) {
    destroy_pair(&pair);
    return;
  }
  rdma_destroy_qp(pair.active.id);
  CHECK(!rdma_destroy_id(pair.passive.id));
  CHECK(!rdma_destroy_id(pair.listener));
  rdma_destroy_event_channel(pair.passive.channel);
}

static void cm_010(bool breaks) {
  struct rdma_event_channel* other = rdma_create_event_channel();
  struct side side;
  CHECK(other && (side.channel = rdma_create_event_channel()));
  CHECK(!rdma_create_id(side.channel, &side.id, NULL, RDMA_PS_TCP));
  CHECK(!rdma_resolve_addr(side.id, NULL, address->ai_addr, 5000));
  struct rdma_cm_event* event = take(side.channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  if (breaks) {
    ack_when_blocked(event);
  } else {
    CHECK(!rdma_ack_cm_event(event));
  }
  CHECK(!rdma_migrate_id(side.id, other));
  rdma_destroy_event_channel(side.channel);
  side.channel = other;
  destroy_side(&side);
}

static void cm_012(bool breaks) {
  struct side side;
  struct rdma_cm_id* request;
  side.channel = breaks ? rdma_create_event_channel() : NULL;
  CHECK(!rdma_create_id(side.channel, &side.id, NULL, RDMA_PS_TCP));
  CHECK(!rdma_bind_addr(side.id, address->ai_addr) && !rdma_listen(side.id, 4));
  if (breaks) {
    CHECK(rdma_get_request(side.id, &request));
    return;
  }
  struct side active = resolved_route();
  struct rdma_conn_param good = good_parameters();
  make_cm_qp(active.id);
  CHECK(!rdma_connect(active.id, &good));
  CHECK(!rdma_get_request(side.id, &request));
  CHECK(!rdma_reject(request, NULL, 0));
  take_and_ack(active.channel, RDMA_CM_EVENT_REJECTED);
  CHECK(!rdma_destroy_id(request) && !rdma_destroy_id(side.id));
  destroy_side(&active);
}

static void cm_013(bool breaks) {
  if (breaks) {
    struct side side;
    CHECK(side.channel = rdma_create_event_channel());
    CHECK(!rdma_create_id(side.channel, &side.id, NULL, RDMA_PS_TCP));
    CHECK(rdma_resolve_route(side.id, 1000));
    return;
  }
  struct side side = resolved_route();
  destroy_side(&side);
}

static void cm_014(bool breaks) {
  if (breaks) {
    struct side side = resolved_address();
    struct rdma_conn_param good = good_parameters();
    make_cm_qp(side.id);
    CHECK(rdma_connect(side.id, &good));
    return;
  }
  struct pair pair = connected();
  disconnect(&pair);
  destroy_pair(&pair);
}

static void cm_015(bool breaks) {
  struct pair pair = requested(NULL);
  struct rdma_conn_param good = good_parameters();
  good.qp_num = 1;
  if (breaks) CHECK(rdma_accept(pair.listener, &good));
  accepts(&pair);
  disconnect(&pair);
  destroy_pair(&pair);
}

static void cm_016(bool breaks) {
  struct pair pair = requested(NULL);
  if (breaks) CHECK(rdma_reject(pair.listener, NULL, 0));
  reject(&pair);
  destroy_pair(&pair);
}

static void cm_017(bool breaks) {
  if (breaks) {
    struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
    struct side side;
    CHECK(side.channel = rdma_create_event_channel());
    CHECK(!rdma_create_id(side.channel, &side.id, NULL, RDMA_PS_TCP));
    CHECK(rdma_create_qp(side.id, NULL, &init));
    return;
  }
  struct side side = resolved_address();
  make_cm_qp(side.id);
  destroy_side(&side);
}

static void cm_018(bool breaks) {
  struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
  struct side side = resolved_address();
  make_cm_qp(side.id);
  if (breaks) CHECK(rdma_create_qp(side.id, NULL, &init));
  destroy_side(&side);
}

static void cm_020(bool breaks) {
  struct side side = resolved_address();
  if (breaks) {
    rdma_destroy_event_channel(side.channel);
    return;
  }
  destroy_side(&side);
}

static void cm_021(bool breaks) {
  struct side side = resolved_address();
  CHECK(!rdma_resolve_route(side.id, 5000));
  struct rdma_cm_event* event = take(side.channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  if (breaks) {
    rdma_destroy_event_channel(side.channel);
    return;
  }
  CHECK(!rdma_ack_cm_event(event));
  destroy_side(&side);
}

static void cm_022(bool breaks) {
  struct rdma_conn_param good = good_parameters();
  good.initiator_depth = good.responder_resources = 2;
  struct pair pair = requested(&good);
  make_cm_qp(pair.passive.id);
  good.initiator_depth = breaks ? 3 : 2;
  rdma_accept(pair.passive.id, &good);
  if (breaks) return;
  take_and_ack(pair.active.channel, RDMA_CM_EVENT_ESTABLISHED);
  take_and_ack(pair.passive.channel, RDMA_CM_EVENT_ESTABLISHED);
  disconnect(&pair);
  destroy_pair(&pair);
}

static void connects_with(const struct rdma_conn_param* parameters) {
  struct pair pair = requested(parameters);
  accepts(&pair);
  disconnect(&pair);
  destroy_pair(&pair);
}

static void cm_023(bool breaks) {
  struct rdma_conn_param parameters = good_parameters();
  parameters.retry_count = breaks ? 0 : 1;
  connects_with(&parameters);
}

static void cm_024(bool breaks) {
  struct rdma_conn_param parameters = good_parameters();
  parameters.rnr_retry_count = breaks ? 0 : 1;
  connects_with(&parameters);
}

static void cm_025(bool breaks) {
  struct side side = resolved_route();
  struct rdma_conn_param parameters = good_parameters();
  parameters.qp_num = breaks ? 0 : 77;
  CHECK(!rdma_connect(side.id, &parameters));
  take_and_ack(side.channel, RDMA_CM_EVENT_REJECTED); /* nobody listens */
  destroy_side(&side);
}

static void cm_026(bool breaks) {
  struct side side = resolved_route();
  if (breaks) CHECK(rdma_disconnect(side.id));
  destroy_side(&side);
}

static void cm_027(bool breaks) {
  struct side side = resolved_address();
  struct rdma_cm_id* id = side.id;
  destroy_side(&side);
  if (breaks) CHECK(rdma_resolve_route(id, 1000));
}

static void cm_029(bool breaks) {
  struct side side = resolved_address();
  struct rdma_event_channel* channel = side.channel;
  struct rdma_cm_event* event;
  destroy_side(&side);
  if (breaks) CHECK(rdma_get_cm_event(channel, &event));
}

const struct use kCmUses[] = {
    {.rule = "CM-001", cm_001}, {.rule = "CM-002", cm_002},
    {.rule = "CM-003", cm_003}, {.rule = "CM-005", cm_005},
    {.rule = "CM-006", cm_006}, {.rule = "CM-007", cm_007},
    {.rule = "CM-008", cm_008}, {.rule = "CM-009", cm_009, .more = "EXIT-003", .needs_exit = true},
    {.rule = "CM-010", cm_010}, {.rule = "CM-012", cm_012},
    {.rule = "CM-013", cm_013}, {.rule = "CM-014", cm_014},
    {.rule = "CM-015", cm_015}, {.rule = "CM-016", cm_016},
    {.rule = "CM-017", cm_017}, {.rule = "CM-018", cm_018},
    {.rule = "CM-020", cm_020}, {.rule = "CM-021", cm_021, .more = "CM-020"},
    {.rule = "CM-022", cm_022}, {.rule = "CM-023", cm_023},
    {.rule = "CM-024", cm_024}, {.rule = "CM-025", cm_025},
    {.rule = "CM-026", cm_026}, {.rule = "CM-027", cm_027},
    {.rule = "CM-029", cm_029}, {0},
};
