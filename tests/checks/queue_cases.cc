// Memory regions, completion queues, threads and processes.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "usage.h"

namespace {

void OutsideRegion(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_sge sge = verbs.Sge();
  if (breaks) sge.addr += sizeof verbs.buffer - 8;
  verbs.PostReceive(sge);
  verbs.Destroy();
}

ibv_mr* Register(const Verbs& verbs, ibv_pd* pd, int access) {
  static char memory[4096];
  ibv_mr* const mr = ibv_reg_mr(pd, memory, sizeof memory, access);
  CHECK(mr != nullptr || verbs.context == nullptr);
  return mr;
}

void StaleLkey(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_mr* const mr = Register(verbs, verbs.pd, IBV_ACCESS_LOCAL_WRITE);
  const ibv_sge sge{reinterpret_cast<uint64_t>(mr->addr), 16, mr->lkey};
  CHECK(ibv_dereg_mr(mr) == 0);
  verbs.PostReceive(breaks ? sge : verbs.Sge());
  verbs.Destroy();
}

void OtherPd(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_pd* const other = ibv_alloc_pd(verbs.context);
  ibv_mr* const mr = Register(verbs, breaks ? other : verbs.pd, IBV_ACCESS_LOCAL_WRITE);
  verbs.PostReceive({reinterpret_cast<uint64_t>(mr->addr), 16, mr->lkey});
  CHECK(ibv_destroy_qp(verbs.qp) == 0);
  verbs.qp = nullptr;
  CHECK(ibv_dereg_mr(mr) == 0 && ibv_dealloc_pd(other) == 0);
  verbs.Destroy();
}

void ReadOnlyReceive(bool breaks) {
  Verbs verbs;
  verbs.ToInit();
  ibv_mr* const mr = Register(verbs, verbs.pd, breaks ? 0 : IBV_ACCESS_LOCAL_WRITE);
  verbs.PostReceive({reinterpret_cast<uint64_t>(mr->addr), 16, mr->lkey});
  CHECK(ibv_destroy_qp(verbs.qp) == 0);
  verbs.qp = nullptr;
  CHECK(ibv_dereg_mr(mr) == 0);
  verbs.Destroy();
}

void DeregInFlight(bool breaks) {
  Verbs verbs;
  verbs.Connect();
  CHECK(verbs.PostReceive(verbs.Sge()) == 0);
  if (!breaks) {
    CHECK(ibv_destroy_qp(verbs.qp) == 0);
    verbs.qp = nullptr;
  }
  ibv_dereg_mr(verbs.mr);
  verbs.mr = nullptr;
  verbs.Destroy();
}

void RemoteWithoutLocalWrite(bool breaks) {
  Verbs verbs;
  static char memory[4096];
  ibv_mr* const mr = ibv_reg_mr(verbs.pd, memory, sizeof memory,
                                IBV_ACCESS_REMOTE_WRITE | (breaks ? 0 : IBV_ACCESS_LOCAL_WRITE));
  CHECK((mr == nullptr) == breaks);
  if (mr != nullptr) CHECK(ibv_dereg_mr(mr) == 0);
  verbs.Destroy();
}

// A region that only the program changes: peers may write to that of Verbs.
template <uint32_t kLength>
void ChangeInFlight(bool breaks) {
  Verbs verbs;
  verbs.Connect();
  static char memory[65536];
  ibv_mr* const mr = ibv_reg_mr(verbs.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != nullptr);
  ibv_sge sge{reinterpret_cast<uint64_t>(memory), kLength, mr->lkey};
  ibv_send_wr wr = verbs.Write(&sge);
  wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(verbs.buffer);
  CHECK(verbs.Post(wr) == 0);
  if (breaks) memory[kLength - 1]++;
  memory[kLength]++;  // not the send's
  CHECK(verbs.Poll().status == IBV_WC_SUCCESS);
  if (!breaks) memory[kLength - 1]++;
  CHECK(ibv_dereg_mr(mr) == 0);
  verbs.Destroy();
}

enum class Use { kRead, kWrite, kCopy, kPrint };

// A receive of kLength bytes at memory + kOffset, which is used at its byte kAt.
template <Use kUse, uint32_t kLength = 64, uint32_t kOffset = 0, uint32_t kAt = 0>
void UseReceiveEarly(bool breaks) {
  Verbs verbs;
  verbs.Connect();
  alignas(64) static char memory[4096];
  ibv_mr* const mr = ibv_reg_mr(verbs.pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != nullptr);
  for (int round = 0; round < 3; round++) {
    CHECK(verbs.PostReceive({reinterpret_cast<uint64_t>(memory + kOffset), kLength, mr->lkey}) ==
          0);
    ibv_sge sge = verbs.Sge(kLength);
    ibv_send_wr wr = verbs.Write(&sge);
    wr.opcode = IBV_WR_SEND;
    CHECK(verbs.Post(wr) == 0);
    const auto use = [] {
      volatile char* const at = memory + kOffset + kAt;
      static char copy[64];
      static volatile size_t length = kLength - kAt;
      switch (kUse) {
        case Use::kRead:
          copy[0] = *at;
          break;
        case Use::kWrite:
          *at = 1;
          break;
        case Use::kCopy:
          memcpy(copy, const_cast<char*>(at), length);
          break;
        case Use::kPrint:
          snprintf(copy, sizeof copy, "%.8s", const_cast<char*>(at));
          break;
      }
    };
    memory[kOffset + kLength]++;  // not the receive's
    if (breaks) use();
    CHECK(verbs.Poll().status == IBV_WC_SUCCESS);
    CHECK(verbs.Poll().status == IBV_WC_SUCCESS);
    use();
  }
  CHECK(ibv_dereg_mr(mr) == 0);
  verbs.Destroy();
}

void WrongRkey(bool breaks) {
  Verbs verbs, responder;
  verbs.MakeQp();
  responder.MakeQp();
  verbs.peer = responder.qp->qp_num;
  responder.peer = verbs.qp->qp_num;
  verbs.Connect();
  responder.Connect();
  ibv_sge sge = verbs.Sge();
  ibv_send_wr wr = verbs.Write(&sge);
  wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(responder.buffer);
  wr.wr.rdma.rkey = responder.mr->rkey ^ (breaks ? 0x5555u : 0);
  CHECK(verbs.Post(wr) == 0);
  CHECK(verbs.Poll().status == (breaks ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS));
  responder.Destroy();
  verbs.Destroy();
}

void DeallocUsedPd(bool breaks) {
  Verbs verbs;
  if (breaks) CHECK(ibv_dealloc_pd(verbs.pd) == EBUSY);
  verbs.Destroy();
}

void DeregTwice(bool breaks) {
  Verbs verbs;
  CHECK(ibv_dereg_mr(verbs.mr) == 0);
  if (breaks) CHECK(ibv_dereg_mr(verbs.mr) == EINVAL);
  verbs.mr = nullptr;
  verbs.Destroy();
}

void DeallocTwice(bool breaks) {
  Verbs verbs;
  ibv_pd* const pd = ibv_alloc_pd(verbs.context);
  CHECK(ibv_dealloc_pd(pd) == 0);
  if (breaks) CHECK(ibv_dealloc_pd(pd) == EINVAL);
  verbs.Destroy();
}

void WriteToNothing(bool breaks) {
  Verbs verbs;
  verbs.Connect();
  ibv_sge sge = verbs.Sge();
  ibv_send_wr wr = verbs.Write(&sge);
  if (breaks) wr.wr.rdma.remote_addr = wr.wr.rdma.rkey = 0;
  CHECK(verbs.Post(wr) == 0);
  verbs.Poll();
  verbs.Destroy();
}

// ---- completion queues

void OverrunCq(bool breaks) {
  Verbs verbs({.max_recv_wr = 8, .cqe = 4});
  verbs.ToInit();
  const int count = breaks ? verbs.cq->cqe + 1 : verbs.cq->cqe;
  if (count > static_cast<int>(verbs.cap.max_recv_wr)) {
    CHECK(ibv_destroy_qp(verbs.qp) == 0);
    verbs.setup.max_recv_wr = static_cast<uint32_t>(count);
    verbs.qp = nullptr;
    verbs.ToInit();
  }
  for (int i = 0; i < count; i++) CHECK(verbs.PostReceive(verbs.Sge()) == 0);
  verbs.Destroy();
}

void NeverPoll(bool breaks) {
  Verbs verbs;
  verbs.Connect();
  ibv_sge sge = verbs.Sge();
  CHECK(verbs.Post(verbs.Write(&sge)) == 0);
  if (!breaks) verbs.Poll();
  verbs.Destroy();
}

// Makes one completion event and takes it.
void TakeEvent(Verbs& verbs) {
  verbs.Connect();
  CHECK(ibv_req_notify_cq(verbs.cq, 0) == 0);
  ibv_sge sge = verbs.Sge();
  CHECK(verbs.Post(verbs.Write(&sge)) == 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  CHECK(ibv_get_cq_event(verbs.channel, &cq, &context) == 0);
}

void ArmLate(bool breaks) {
  Verbs verbs({.has_channel = true});
  TakeEvent(verbs);
  ibv_ack_cq_events(verbs.cq, 1);
  ibv_wc wc{};
  ibv_sge sge = verbs.Sge();
  if (!breaks) CHECK(ibv_req_notify_cq(verbs.cq, 0) == 0);
  while (ibv_poll_cq(verbs.cq, 1, &wc) > 0) {
  }
  CHECK(verbs.Post(verbs.Write(&sge)) == 0);
  // Fails instead of waiting for an event that may be lost.
  if (breaks) {
    CHECK(ibv_req_notify_cq(verbs.cq, 0) == 0);
    fcntl(verbs.channel->fd, F_SETFL, fcntl(verbs.channel->fd, F_GETFL) | O_NONBLOCK);
  }
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(verbs.channel, &cq, &context) == 0) ibv_ack_cq_events(verbs.cq, 1);
  verbs.Destroy();
}

void DestroyUnackedCq(bool breaks) {
  Verbs verbs({.has_channel = true});
  TakeEvent(verbs);
  verbs.Poll();
  if (!breaks) ibv_ack_cq_events(verbs.cq, 1);
  verbs.Destroy();
}

void AckTooMany(bool breaks) {
  Verbs verbs({.has_channel = true});
  TakeEvent(verbs);
  verbs.Poll();
  ibv_ack_cq_events(verbs.cq, breaks ? 2 : 1);
  if (!breaks) verbs.Destroy();
}

void DestroyUsedCq(bool breaks) {
  Verbs verbs;
  verbs.MakeQp();
  if (breaks) CHECK(ibv_destroy_cq(verbs.cq) == EBUSY);
  verbs.Destroy();
}

void DestroyUsedChannel(bool breaks) {
  Verbs verbs({.has_channel = true});
  if (breaks) CHECK(ibv_destroy_comp_channel(verbs.channel) == EBUSY);
  verbs.Destroy();
}

void ArmWithoutChannel(bool breaks) {
  Verbs verbs({.has_channel = !breaks});
  CHECK(ibv_req_notify_cq(verbs.cq, 0) == 0);
  verbs.Destroy();
}

void DestroyChannelTwice(bool breaks) {
  Verbs verbs;
  ibv_comp_channel* const channel = ibv_create_comp_channel(verbs.context);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
  if (breaks) CHECK(ibv_destroy_comp_channel(channel) == EINVAL);
  verbs.Destroy();
}

void DestroyCqTwice(bool breaks) {
  Verbs verbs;
  CHECK(ibv_destroy_cq(verbs.cq) == 0);
  if (breaks) CHECK(ibv_destroy_cq(verbs.cq) == EINVAL);
  verbs.cq = nullptr;
  verbs.Destroy();
}

// ---- threads and processes

// Runs `wait` in a thread, and returns when the thread blocks.
template <class Function>
void Block(Function wait) {
  static std::atomic<int> thread{0};
  std::thread([wait] {
    thread = gettid();
    wait();
  }).detach();
  while (thread == 0) sched_yield();
  const std::string stat = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (char text[256] = {};;) {
    FILE* const file = fopen(stat.c_str(), "r");
    CHECK(file != nullptr && fgets(text, sizeof text, file) != nullptr);
    fclose(file);
    if (strstr(text, ") S ") != nullptr) return;
    sched_yield();
  }
}

void DestroyWaitedChannel(bool breaks) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  if (breaks) {
    Block([channel] {
      rdma_cm_event* event = nullptr;
      rdma_get_cm_event(channel, &event);
    });
  }
  rdma_destroy_event_channel(channel);
}

void DestroyWaitedCompChannel(bool breaks) {
  Verbs verbs;
  ibv_comp_channel* const channel = ibv_create_comp_channel(verbs.context);
  if (breaks) {
    Block([channel] {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      ibv_get_cq_event(channel, &cq, &context);
    });
  }
  CHECK(ibv_destroy_comp_channel(channel) == 0);
  if (!breaks) verbs.Destroy();
}

void CloseWaitedDevice(bool breaks) {
  Verbs verbs;
  if (breaks) {
    Block([context = verbs.context] {
      ibv_async_event event{};
      ibv_get_async_event(context, &event);
    });
  }
  verbs.Destroy();
}

// Runs a function in a forked child, which ends by _exit.
template <class Function>
void InChild(Function run) {
  const pid_t child = fork();
  if (child == 0) {
    run();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

void UseIdAfterFork(bool breaks) {
  Pair pair;
  InChild([&] {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = inet_addr(g_address);
    if (breaks) rdma_bind_addr(pair.active.id, reinterpret_cast<sockaddr*>(&address));
  });
  pair.Destroy();
}

void List(int) {
  const int error = errno;
  ibv_free_device_list(ibv_get_device_list(nullptr));
  errno = error;
}

void CallInHandler(bool breaks) {
  if (breaks) {
    signal(SIGUSR1, List);
    CHECK(raise(SIGUSR1) == 0);
  } else {
    List(0);
  }
}

void DestroyAfterFork(bool breaks) {
  Verbs verbs;
  verbs.MakeQp();
  InChild([&] {
    if (breaks) ibv_destroy_qp(verbs.qp);
  });
  if (!breaks) verbs.Destroy();
}

}  // namespace

const std::vector<Case> kQueueCases = {
    {"MR-001", OutsideRegion},
    {"MR-002", StaleLkey},
    {"MR-003", OtherPd},
    {"MR-004", ReadOnlyReceive},
    {"MR-005", DeregInFlight},
    {"MR-006", RemoteWithoutLocalWrite},
    {"MR-007", ChangeInFlight<16>},
    {"MR-007@byte", ChangeInFlight<1>},
    {"MR-007@all", ChangeInFlight<128>},
    {"MR-007@words", ChangeInFlight<129>},
    {"MR-007@long", ChangeInFlight<2048>},
    {"MR-008", UseReceiveEarly<Use::kRead>},
    {"MR-008@write", UseReceiveEarly<Use::kWrite>},
    {"MR-008@copy", UseReceiveEarly<Use::kCopy>},
    {"MR-008@print", UseReceiveEarly<Use::kPrint>},
    {"MR-008@short", UseReceiveEarly<Use::kRead, 1>},
    {"MR-008@unaligned", UseReceiveEarly<Use::kRead, 64, 3>},
    {"MR-008@eighth", UseReceiveEarly<Use::kRead, 64, 8, 7>},
    {"MR-009", WrongRkey},
    {"MR-011", DeallocUsedPd},
    {"MR-012", DeregTwice},
    {"MR-013", DeallocTwice},
    {"MR-014", WriteToNothing},
    {"CQ-001", OverrunCq},
    {"CQ-002", NeverPoll},
    {"CQ-003", ArmLate},
    {"CQ-004", DestroyUnackedCq},
    {"CQ-005", AckTooMany},
    {"CQ-007", DestroyUsedCq},
    {"CQ-008", DestroyUsedChannel},
    {"CQ-009", ArmWithoutChannel},
    {"CQ-010", DestroyChannelTwice},
    {"CQ-013", DestroyCqTwice},
    {"THREAD-001", DestroyWaitedChannel},
    {"THREAD-002", DestroyWaitedCompChannel},
    {"THREAD-003", CloseWaitedDevice},
    {"THREAD-005", UseIdAfterFork},
    {"THREAD-006", CallInHandler},
    {"THREAD-007", DestroyAfterFork},
};
