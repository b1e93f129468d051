// Two kinds of programs for fairness.py. The victim sends itself messages and makes calls for a
// given number of rounds, and reports its end. A hog repeats one forbidden action as fast as
// possible and for ever; it prints "hogging" when it has begun.
//
// usage: fairness_worker victim ROUNDS | fairness_worker hog KIND
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}
template <class T>
T* Need(T* made, const char* what) {
  if (made == nullptr) Fail(what);
  return made;
}
void NeedZero(int result, const char* what) {
  if (result > 0) errno = result;
  if (result != 0) Fail(what);
}
void Say(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
}

// A device with two connected queue pairs.
struct Loop {
  explicit Loop(int cq_entries = 64) {
    int count = 0;
    ibv_device** list = Need(ibv_get_device_list(&count), "ibv_get_device_list");
    if (count == 0) Fail("no device");
    context = Need(ibv_open_device(list[0]), "ibv_open_device");
    ibv_free_device_list(list);
    pd = Need(ibv_alloc_pd(context), "ibv_alloc_pd");
    channel = Need(ibv_create_comp_channel(context), "ibv_create_comp_channel");
    cq = Need(ibv_create_cq(context, cq_entries, nullptr, channel, 0), "ibv_create_cq");
    mr = Need(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
    NeedZero(ibv_query_gid(context, 1, 1, &gid), "ibv_query_gid");
    a = Create();
    b = Create();
    Connect(a, b->qp_num);
    Connect(b, a->qp_num);
  }
  ibv_qp* Create() {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {16, 16, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    return Need(ibv_create_qp(pd, &init), "ibv_create_qp");
  }
  void Connect(ibv_qp* qp, uint32_t peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    NeedZero(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             "INIT");
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.dgid = gid;
    attr.ah_attr.grh.sgid_index = 1;
    attr.ah_attr.grh.hop_limit = 64;
    NeedZero(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                               IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
             "RTR");
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 18;
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    NeedZero(ibv_modify_qp(qp, &attr,
                           IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
             "RTS");
  }
  void Post() {
    ibv_sge sge{reinterpret_cast<uint64_t>(memory), 64, mr->lkey};
    ibv_recv_wr receive{}, *bad_receive;
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ibv_post_recv(b, &receive, &bad_receive);
    ibv_send_wr send{}, *bad_send;
    send.sg_list = &sge;
    send.num_sge = 1;
    send.opcode = IBV_WR_SEND;
    send.send_flags = IBV_SEND_SIGNALED;
    ibv_post_send(a, &send, &bad_send);
  }
  // Returns false when the queue was empty.
  bool Take() {
    ibv_wc wc{};
    const int got = ibv_poll_cq(cq, 1, &wc);
    if (got > 0 && wc.status != IBV_WC_SUCCESS) Fail(ibv_wc_status_str(wc.status));
    return got > 0;
  }

  ibv_context* context;
  ibv_pd* pd;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_mr* mr;
  ibv_gid gid;
  ibv_qp *a, *b;
  char memory[64] = {};
};

int Victim(int rounds) {
  Loop loop;
  for (int round = 0; round < rounds; round++) {
    loop.Post();
    for (int left = 2; left > 0;) {
      if (loop.Take()) {
        left--;
      } else {
        std::this_thread::yield();
      }
    }
    ibv_port_attr port{};
    if (round % 4 == 0) NeedZero(ibv_query_port(loop.context, 1, &port), "ibv_query_port");
  }
  std::printf("%d rounds\n", rounds);
  return 0;
}

// ---- hogs

// Makes calls without a pause.
void Calls() {
  Loop loop;
  Say("hogging");
  ibv_port_attr port{};
  for (;;) ibv_query_port(loop.context, 1, &port);
}

// Creates ids and never fetches their events. First it creates as many as the host permits, then it
// destroys and creates ids.
void CmEvents() {
  rdma_event_channel* channel = Need(rdma_create_event_channel(), "rdma_create_event_channel");
  std::vector<rdma_cm_id*> ids;
  for (uint16_t port = 1;; port++) {
    rdma_cm_id* id = nullptr;
    if (ids.size() < 20000 && rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0) {
      ids.push_back(id);
    } else {
      id = ids[port % ids.size()];
      rdma_destroy_id(id);
      ids[port % ids.size()] = ids.back();
      ids.pop_back();
      if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) continue;
      ids.push_back(id);
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    inet_pton(AF_INET, std::getenv("RDMA_TEST_LOCAL"), &to.sin_addr);
    rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000);
    if (ids.size() == 2000) Say("hogging");
  }
}

// Creates completion events and never fetches them. The queue is armed for each event.
void CompletionEvents() {
  Loop loop;
  Say("hogging");
  for (;;) {
    ibv_req_notify_cq(loop.cq, 0);
    loop.Post();
    for (int left = 2; left > 0;) left -= loop.Take() ? 1 : 0;
  }
}

// Overruns completion queues again and again, and never fetches the asynchronous events. Destroying
// a queue drops its events, so the last thousand queues remain.
void AsyncEvents() {
  constexpr size_t kKept = 1000;
  Loop loop;
  ibv_cq* const usual = loop.cq;
  std::vector<ibv_cq*> overrun;
  Say("hogging");
  for (size_t next = 0;; next++) {
    if (overrun.size() < kKept) {
      overrun.push_back(nullptr);
    } else if (ibv_destroy_cq(overrun[next % kKept]) != 0) {
      Fail("ibv_destroy_cq");
    }
    ibv_cq*& cq = overrun[next % kKept];
    cq = Need(ibv_create_cq(loop.context, 1, nullptr, nullptr, 0), "ibv_create_cq");
    loop.cq = cq;
    ibv_qp* const a = std::exchange(loop.a, loop.Create());
    ibv_qp* const b = std::exchange(loop.b, loop.Create());
    loop.Connect(loop.a, loop.b->qp_num);
    loop.Connect(loop.b, loop.a->qp_num);
    for (int i = 0; i < 8; i++) loop.Post();
    // The host executes the posted work while the old objects are destroyed.
    NeedZero(ibv_destroy_qp(a), "ibv_destroy_qp");
    NeedZero(ibv_destroy_qp(b), "ibv_destroy_qp");
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    for (int i = 0; i < 1000 && ibv_query_qp(loop.a, &attr, IBV_QP_STATE, &init) == 0; i++) {
      if (attr.qp_state == IBV_QPS_ERR) break;
    }
    loop.cq = usual;
    NeedZero(ibv_destroy_qp(loop.a), "ibv_destroy_qp");
    NeedZero(ibv_destroy_qp(loop.b), "ibv_destroy_qp");
    loop.a = loop.Create();
    loop.b = loop.Create();
  }
}

// Rings all doorbells of all possible queues.
void Doorbells() {
  Loop loop;
  std::ifstream maps("/proc/self/maps");
  std::vector<std::atomic<uint64_t>*> words;
  for (std::string line; std::getline(maps, line) && words.empty();) {
    if (line.find("memfd:rdmaemu") == line.npos) continue;
    auto* page = reinterpret_cast<std::atomic<uint64_t>*>(std::strtoull(line.c_str(), nullptr, 16));
    // DoorbellPage of emulator/abi/ring.h: 64 bytes, then summary and queues.
    for (size_t i = 8; i < 8 + 16 + 1024; i++) words.push_back(page + i);
  }
  if (words.empty()) Fail("no shared segment");
  Say("hogging");
  for (;;) {
    for (size_t i = words.size(); i-- > 0;) words[i]->store(UINT64_MAX);
  }
}

// Keeps a counter full while the host has events to count.
void FullCounters() {
  Loop loop;
  std::thread filler([&] {
    const int fd = loop.channel->fd;
    for (;;) {
      uint64_t taken;
      iovec into{&taken, sizeof taken};
      [[maybe_unused]] ssize_t ignored = preadv2(fd, &into, 1, -1, RWF_NOWAIT);
      fcntl(fd, F_SETFL, O_NONBLOCK);
      for (uint64_t room = UINT64_MAX - 1; room > 0; room /= 2) {
        ignored = write(fd, &room, sizeof room);
      }
      fcntl(fd, F_SETFL, 0);
    }
  });
  Say("hogging");
  for (;;) {
    ibv_req_notify_cq(loop.cq, 0);
    loop.Post();
    for (int left = 2; left > 0;) left -= loop.Take() ? 1 : 0;
  }
}

int Hog(const std::string& kind) {
  if (kind == "calls") Calls();
  if (kind == "cm_events") CmEvents();
  if (kind == "completion_events") CompletionEvents();
  if (kind == "async_events") AsyncEvents();
  if (kind == "doorbells") Doorbells();
  if (kind == "full_counters") FullCounters();
  std::fprintf(stderr, "no such hog: %s\n", kind.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "victim") == 0) return Victim(std::atoi(argv[2]));
  if (argc == 3 && std::strcmp(argv[1], "hog") == 0) return Hog(argv[2]);
  std::fprintf(stderr, "usage: fairness_worker victim ROUNDS | fairness_worker hog KIND\n");
  return 2;
}
