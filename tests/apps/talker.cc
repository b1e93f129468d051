// Two programs that answer each other's SENDs, and poll. Most messages have 8 bytes. A few are far
// too large for a lane (emulator/abi/send_lane.h).
//   talker ADDRESS PORT MESSAGES RECEIVES POLLED          listens
//   talker ADDRESS PORT MESSAGES RECEIVES POLLED client   connects, and sends first
// RECEIVES is the number of receives that one call posts, and POLLED the most completions of one
// poll (at most 128 each).
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr uint32_t kSmall = 8, kLarge = 65536;
constexpr uint32_t kMessagesForOneLarge = 500;
// One of so many messages is signalled, because completions free the send queue.
constexpr uint32_t kMessagesForOneSignal = 16;
constexpr uint32_t kSendDepth = 2 * kMessagesForOneSignal;
constexpr uint32_t kMostAtOnce = 128;
constexpr uint32_t kReceiveDepth = 2 * kMostAtOnce;

void Check(bool holds, const char* what) {
  if (holds) return;
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

struct AtOnce {
  uint32_t receives, polled;
};

class Talker {
 public:
  Talker(const char* address, const char* port, AtOnce at_once, bool is_client);
  ~Talker();
  // Does not wait for the completion: the peer's answer can be faster than the acknowledgement.
  void Send(uint32_t number);
  // Waits for the message of this number.
  void Receive(uint32_t number);
  // Waits until the peer has all messages.
  void AwaitSent();

 private:
  void CreateQp();
  void PostReceives();
  void Poll();

  const AtOnce at_once_;
  rdma_cm_id *listener_ = nullptr, *id_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::vector<uint8_t> sent_, received_;
  ibv_mr *send_mr_ = nullptr, *receive_mr_ = nullptr;
  uint32_t signalled_ = 0, sends_ = 0, receives_ = 0;  // the last two: completed
  uint32_t used_;                                      // receives that are not posted again
};

Talker::Talker(const char* address, const char* port, AtOnce at_once, bool is_client)
    : at_once_(at_once),
      sent_(kLarge),
      received_(kLarge),
      // The two programs post their lists at different times.
      used_(is_client ? 0 : at_once.receives / 2) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  if (!is_client) hints.ai_flags = RAI_PASSIVE;
  Check(rdma_getaddrinfo(address, port, &hints, &found) == 0, "rdma_getaddrinfo");
  rdma_cm_id*& made = is_client ? id_ : listener_;
  Check(rdma_create_ep(&made, found, nullptr, nullptr) == 0, "rdma_create_ep");
  rdma_freeaddrinfo(found);
  if (!is_client) {
    Check(rdma_listen(listener_, 1) == 0, "rdma_listen");
    puts("listens");
    fflush(stdout);
    Check(rdma_get_request(listener_, &id_) == 0, "rdma_get_request");
  }
  CreateQp();
  Check((is_client ? rdma_connect(id_, nullptr) : rdma_accept(id_, nullptr)) == 0, "connecting");
}

void Talker::CreateQp() {
  cq_ = ibv_create_cq(id_->verbs, kSendDepth + kReceiveDepth, nullptr, nullptr, 0);
  Check(cq_ != nullptr, "ibv_create_cq");
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq_;
  attributes.cap = {kSendDepth, kReceiveDepth, 1, 1, 0};
  attributes.qp_type = IBV_QPT_RC;
  Check(rdma_create_qp(id_, nullptr, &attributes) == 0, "rdma_create_qp");
  send_mr_ = rdma_reg_msgs(id_, sent_.data(), sent_.size());
  receive_mr_ = rdma_reg_msgs(id_, received_.data(), received_.size());
  Check(send_mr_ != nullptr && receive_mr_ != nullptr, "rdma_reg_msgs");
  for (uint32_t posted = 2 * used_; posted < kReceiveDepth; posted += at_once_.receives)
    PostReceives();
}

Talker::~Talker() {
  rdma_disconnect(id_);
  rdma_dereg_mr(send_mr_);
  rdma_dereg_mr(receive_mr_);
  rdma_destroy_qp(id_);
  ibv_destroy_cq(cq_);
  rdma_destroy_ep(id_);
  if (listener_ != nullptr) rdma_destroy_ep(listener_);
}

void Talker::PostReceives() {
  ibv_sge sge{reinterpret_cast<uint64_t>(received_.data()), kLarge, receive_mr_->lkey};
  ibv_recv_wr requests[kMostAtOnce]{}, *bad = nullptr;
  for (uint32_t i = 0; i < at_once_.receives; i++) {
    requests[i] = {0, i + 1 < at_once_.receives ? &requests[i + 1] : nullptr, &sge, 1};
  }
  Check(ibv_post_recv(id_->qp, requests, &bad) == 0, "ibv_post_recv");
}

void Talker::Send(uint32_t number) {
  memcpy(sent_.data(), &number, sizeof number);
  const uint32_t length = number % kMessagesForOneLarge == 0 ? kLarge : kSmall;
  const bool is_signalled = number % kMessagesForOneSignal == 0;
  signalled_ += is_signalled ? 1 : 0;
  Check(rdma_post_send(id_, nullptr, sent_.data(), length, send_mr_,
                       is_signalled ? IBV_SEND_SIGNALED : 0) == 0,
        "rdma_post_send");
}

void Talker::Receive(uint32_t number) {
  while (receives_ < number) Poll();
  uint32_t arrived = 0;
  memcpy(&arrived, received_.data(), sizeof arrived);
  Check(arrived == number, "another message arrived");
  if (++used_ < at_once_.receives) return;
  PostReceives();
  used_ = 0;
}

void Talker::AwaitSent() {
  while (sends_ < signalled_) Poll();
}

void Talker::Poll() {
  ibv_wc completions[kMostAtOnce];
  const int count = ibv_poll_cq(cq_, static_cast<int>(at_once_.polled), completions);
  Check(count >= 0, "ibv_poll_cq");
  for (int i = 0; i < count; i++) {
    Check(completions[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(completions[i].status));
    (completions[i].opcode == IBV_WC_RECV ? receives_ : sends_)++;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc >= 6, "usage: talker ADDRESS PORT MESSAGES RECEIVES POLLED [client]");
  const bool is_client = argc > 6;
  const auto number_at = [&](int i) {
    return static_cast<uint32_t>(strtoul(argv[i], nullptr, 10));
  };
  const AtOnce at_once{number_at(4), number_at(5)};
  Check(kMostAtOnce % at_once.receives == 0 && at_once.polled <= kMostAtOnce, "RECEIVES, POLLED");
  // The last message is signalled.
  const uint32_t messages = number_at(3) / kMessagesForOneSignal * kMessagesForOneSignal;
  Talker talker(argv[1], argv[2], at_once, is_client);
  for (uint32_t number = 1; number <= messages; number++) {
    if (is_client) talker.Send(number);
    talker.Receive(number);
    if (!is_client) talker.Send(number);
  }
  talker.AwaitSent();
  return 0;
}
