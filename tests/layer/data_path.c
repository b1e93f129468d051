/* Makes each data-path call of verbs.h between two queue pairs of one process. Prints "done".
   With an argument BYTE: sends known bytes, of which one is BYTE (docs/trace.md, payload hashes).
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
  if (!(condition)) fprintf(stderr, "line %d: %s\n", __LINE__, strerror(errno)), exit(1)

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_cq_ex* cq_ex;
static struct ibv_cq *cq, *send_cq;
static struct ibv_mr* mr;
static struct ibv_srq* srq;
static char memory[4096];

static struct ibv_sge part(unsigned at, unsigned length) {
  struct ibv_sge sge = {(uintptr_t)memory + at, length, mr->lkey};
  return sge;
}

static struct ibv_qp* make_qp(struct ibv_srq* with) {
  struct ibv_qp_init_attr_ex init = {
      .send_cq = send_cq, .recv_cq = cq, .srq = with, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
  init.cap.max_send_wr = init.cap.max_recv_wr = 8;
  init.cap.max_send_sge = init.cap.max_recv_sge = 2;
  init.cap.max_inline_data = 32;
  init.pd = pd;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                        IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
                        IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
  return ibv_create_qp_ex(context, &init);
}

static void connect_qp(struct ibv_qp* qp, struct ibv_qp* peer) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
  CHECK(!ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer->qp_num;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 64;
  CHECK(!ibv_query_gid(context, 1, 0, &attr.ah_attr.grh.dgid));
  CHECK(!ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = attr.rnr_retry = 7;
  CHECK(!ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void poll_plain(int wanted) {
  struct ibv_wc wc[4];
  while (wanted > 0) {
    const int got = ibv_poll_cq(send_cq, 4, wc);
    CHECK(got >= 0);
    for (int i = 0; i < got; i++) CHECK(wc[i].status == IBV_WC_SUCCESS);
    wanted -= got;
  }
}

static void poll_extended(int wanted) {
  while (wanted > 0) {
    struct ibv_poll_cq_attr attr = {0};
    int error = ibv_start_poll(cq_ex, &attr);
    if (error == ENOENT) continue;
    CHECK(!error);
    while (!error) {
      CHECK(cq_ex->status == IBV_WC_SUCCESS);
      if (ibv_wc_read_wc_flags(cq_ex) & IBV_WC_WITH_IMM) ibv_wc_read_imm_data(cq_ex);
      ibv_wc_read_opcode(cq_ex), ibv_wc_read_vendor_err(cq_ex), ibv_wc_read_byte_len(cq_ex);
      ibv_wc_read_qp_num(cq_ex), ibv_wc_read_src_qp(cq_ex), ibv_wc_read_slid(cq_ex);
      ibv_wc_read_sl(cq_ex), ibv_wc_read_dlid_path_bits(cq_ex);
      wanted--;
      error = ibv_next_poll(cq_ex);
    }
    ibv_end_poll(cq_ex);
  }
}

static void post_plain(struct ibv_qp* qp, struct ibv_qp* peer) {
  struct ibv_sge sge = part(1024, 64);
  struct ibv_recv_wr recv = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad_recv;
  CHECK(!ibv_post_recv(peer, &recv, &bad_recv));
  CHECK(!ibv_post_srq_recv(srq, &recv, &bad_recv));
  struct ibv_sge from = part(0, 64);
  struct ibv_send_wr write = {.wr_id = 2, .sg_list = &from, .num_sge = 1}, *bad;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
  write.wr.rdma.rkey = mr->rkey;
  struct ibv_send_wr send = {.wr_id = 3, .next = &write, .sg_list = &from, .num_sge = 1};
  send.opcode = IBV_WR_SEND_WITH_IMM;
  send.imm_data = 7;
  CHECK(!ibv_post_send(qp, &send, &bad));
  poll_plain(2);
  poll_extended(1);
  struct ibv_sge three[3] = {from, from, from};
  write.sg_list = three;
  write.num_sge = 3;
  CHECK(ibv_post_send(qp, &write, &bad) != 0);
}

static void post_extended(struct ibv_qp* qp, struct ibv_qp* peer) {
  struct ibv_qp_ex* x = ibv_qp_to_qp_ex(qp);
  CHECK(x != NULL && x == ibv_qp_to_qp_ex(qp));
  struct ibv_sge sge = part(1024, 64);
  struct ibv_recv_wr recv = {.wr_id = 4, .sg_list = &sge, .num_sge = 1}, *bad;
  for (int i = 0; i < 3; i++) CHECK(!ibv_post_recv(peer, &recv, &bad));
  const uint64_t there = (uintptr_t)memory + 2048;
  struct ibv_sge two[2] = {part(0, 8), part(8, 8)};
  struct ibv_data_buf buffers[1] = {{memory, 8}};
  ibv_wr_start(x);
  x->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(x), ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory, 8);
  ibv_wr_send_imm(x, 9), ibv_wr_set_sge_list(x, 2, two);
  ibv_wr_rdma_write(x, mr->rkey, there), ibv_wr_set_inline_data(x, memory, 8);
  ibv_wr_rdma_write_imm(x, mr->rkey, there, 5), ibv_wr_set_inline_data_list(x, 1, buffers);
  CHECK(!ibv_wr_complete(x));
  poll_plain(4);
  poll_extended(3);
  ibv_wr_start(x);
  ibv_wr_rdma_read(x, mr->rkey, there), ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory, 8);
  ibv_wr_atomic_cmp_swp(x, mr->rkey, there, 1, 2);
  ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory, 8);
  ibv_wr_atomic_fetch_add(x, mr->rkey, there, 1);
  ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory, 8);
  CHECK(!ibv_wr_complete(x));
  poll_plain(3);
  ibv_wr_start(x);
  ibv_wr_send(x);
  ibv_wr_abort(x);
}

static void post_receive(struct ibv_qp* qp, uint64_t wr_id, struct ibv_sge* sges, int count) {
  struct ibv_recv_wr recv = {.wr_id = wr_id, .sg_list = sges, .num_sge = count}, *bad;
  if (qp->srq != NULL) {
    CHECK(!ibv_post_srq_recv(qp->srq, &recv, &bad));
  } else {
    CHECK(!ibv_post_recv(qp, &recv, &bad));
  }
}

static void post_one(struct ibv_qp* qp, enum ibv_wr_opcode opcode, int flags, struct ibv_sge* sges,
                     int count) {
  struct ibv_send_wr wr = {.wr_id = 9, .sg_list = sges, .num_sge = count}, *bad;
  wr.opcode = opcode;
  wr.send_flags = flags;
  wr.wr.rdma.remote_addr = (uintptr_t)memory;
  wr.wr.rdma.rkey = mr->rkey;
  CHECK(!ibv_post_send(qp, &wr, &bad));
  poll_plain(1);
}

static void post_payloads(struct ibv_qp* qp, struct ibv_qp* peer, int byte) {
  for (int i = 0; i < 64; i++) memory[i] = i;
  memory[5] = byte;
  struct ibv_sge gather[2] = {part(0, 30), part(30, 34)};
  struct ibv_sge scatter[2] = {part(1024, 16), part(2048, 100)};
  post_receive(peer, 1, scatter, 2);
  post_one(qp, IBV_WR_SEND, 0, gather, 2);
  poll_extended(1);
  char outside[8] = "12345678";
  struct ibv_sge inlined = {(uintptr_t)outside, 8, 0};
  post_receive(peer, 2, scatter, 2);
  post_one(qp, IBV_WR_SEND, IBV_SEND_INLINE, &inlined, 1);
  poll_extended(1);
  struct ibv_sge whole = part(3000, 64);
  post_one(qp, IBV_WR_RDMA_READ, 0, &whole, 1);
  post_receive(peer, 3, NULL, 0);
  post_one(qp, IBV_WR_RDMA_WRITE_WITH_IMM, 0, &whole, 1);
  poll_extended(1);
  post_receive(peer, 4, scatter, 2);
  struct ibv_qp_ex* x = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(x);
  ibv_wr_send(x), ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory, 64);
  ibv_wr_rdma_read(x, mr->rkey, (uintptr_t)memory);
  ibv_wr_set_sge(x, mr->lkey, (uintptr_t)memory + 3000, 5);
  CHECK(!ibv_wr_complete(x));
  poll_plain(2);
  poll_extended(1);
}

/* Two receives of a shared queue with one wr_id cannot be told apart. */
static void post_to_shared(struct ibv_qp* qp, struct ibv_qp* shared) {
  struct ibv_sge one = part(1024, 64), other = part(2048, 64), from = part(0, 64);
  post_receive(shared, 5, &one, 1);
  post_one(qp, IBV_WR_SEND, 0, &from, 1);
  poll_extended(1);
  post_receive(shared, 6, &one, 1);
  post_receive(shared, 6, &other, 1);
  post_one(qp, IBV_WR_SEND, 0, &from, 1);
  poll_extended(1);
}

int main(int argc, char** argv) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list && list[0] && (context = ibv_open_device(list[0])));
  ibv_free_device_list(list);
  struct ibv_cq_init_attr_ex cq_attr = {.cqe = 32, .wc_flags = IBV_WC_STANDARD_FLAGS};
  struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 8, .max_sge = 1}};
  CHECK((pd = ibv_alloc_pd(context)) && (cq_ex = ibv_create_cq_ex(context, &cq_attr)));
  cq = ibv_cq_ex_to_cq(cq_ex);
  CHECK((send_cq = ibv_create_cq(context, 32, NULL, NULL, 0)));
  CHECK((srq = ibv_create_srq(pd, &srq_attr)));
  mr = ibv_reg_mr(pd, memory, sizeof memory,
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
  CHECK(mr != NULL);
  struct ibv_qp *qp = make_qp(NULL), *peer = make_qp(NULL), *shared = make_qp(srq);
  CHECK(qp && peer && shared);
  CHECK(!ibv_req_notify_cq(cq, 0));
  connect_qp(qp, peer);
  connect_qp(peer, qp);
  if (argc > 1) {
    struct ibv_qp* const sender = make_qp(NULL);
    CHECK(sender);
    connect_qp(sender, shared);
    connect_qp(shared, sender);
    post_payloads(qp, peer, atoi(argv[1]));
    post_to_shared(sender, shared);
    puts("done");
    return 0;
  }
  post_plain(qp, peer);
  post_extended(qp, peer);
  struct ibv_poll_cq_attr unknown = {.comp_mask = 1u << 31};
  CHECK(ibv_start_poll(cq_ex, &unknown) != 0);
  struct ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
  CHECK(mw && !ibv_dealloc_mw(mw));
  CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peer) && !ibv_destroy_qp(shared));
  CHECK(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq) && !ibv_destroy_cq(send_cq));
  CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
  puts("done");
  return 0;
}
