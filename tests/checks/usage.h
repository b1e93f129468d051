// Programs that break and keep each rule of the usage checks (shim/layer/checks/rules.inc).
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>

#include <cstdint>
#include <vector>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(3);                                                        \
    }                                                                 \
  } while (false)

struct Case {
  const char* rule;  // "CM-001", or "CM-001@name" for another program that breaks it
  void (*run)(bool breaks);
};
extern const std::vector<Case> kCmCases, kQpCases, kQueueCases, kExtendedCases, kExitCases;

// The address of the host's device.
extern const char* g_address;

// ---- verbs

struct Setup {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t max_send_wr = 4, max_recv_wr = 4;
  int cqe = 16;
  bool has_channel = false, has_srq = false;
  uint8_t max_rd_atomic = 1;
};

// A device and a queue pair whose peer is itself, or that of another Verbs.
class Verbs {
 public:
  explicit Verbs(const Setup& setup = {});
  void MakeQp();
  void ToInit();
  void ToRtr();
  void ToRts();
  void Connect() {
    ToInit();
    ToRtr();
    ToRts();
  }
  ibv_sge Sge(uint32_t length = 16) const;
  // An RDMA write to the buffer.
  ibv_send_wr Write(ibv_sge* sge) const;
  int Post(ibv_send_wr wr) const;
  int PostReceive(ibv_sge sge) const;
  // Polls until there is a completion.
  ibv_wc Poll() const;
  // Destroys what is not nullptr.
  void Destroy();

  Setup setup;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_cap cap{};
  uint32_t peer = 0;  // number of another queue pair; 0: itself
  alignas(64) char buffer[4096] = {};
};

// ---- rdma_cm

struct Side {
  rdma_event_channel* channel = nullptr;
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  alignas(64) char buffer[64] = {};

  // Waits for an event of this type.
  rdma_cm_event* Take(rdma_cm_event_type type) const;
  void Await(rdma_cm_event_type type) const;
  void MakeQp();
  void PostReceive() const;
  void Resolve(uint16_t port) const;
  void Destroy();
};

rdma_conn_param Parameters();

class Pair {
 public:
  // Listens, and creates the active id.
  Pair();
  // The active side, up to rdma_connect with these parameters.
  void Request(rdma_conn_param parameters = Parameters());
  // Takes the request, and makes the passive side's queue pair.
  void TakeRequest(bool posts = true);
  void Accept(rdma_conn_param parameters = Parameters());
  void AwaitEstablished();
  void Connect() {
    Request();
    TakeRequest();
    Accept();
    AwaitEstablished();
  }
  void Disconnect();
  void Destroy();

  Side active, passive;
  rdma_cm_id* listener = nullptr;
  uint16_t port = 0;
};
