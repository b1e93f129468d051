// Measures the cost of fault rules to messages that do not match them. Compares a host without
// rules to hosts with one rule that never fires, at the door that the message passes or at another
// one. Two queue pairs of one host are in this process, without other processes, clocks and system
// calls, so only the host's own work is measured. The hosts take turns, so that other load on the
// machine affects all of them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "emulator/abi/slab.h"
#include "emulator/host/testing/world.h"

namespace {

using namespace rdmaemu;
using namespace rdmaemu::testing;

constexpr uint32_t kBatch = 16, kRounds = 400, kBatchesPerRound = 32;
constexpr uint32_t kMostBytes = 64 * 1024;
constexpr const char* kAddress = "127.0.0.1";

struct Kind {
  const char* name;
  const char* rule;  // "": none
};
// The conditions after `at` match nothing in this program.
constexpr std::array<Kind, 6> kKinds = {{
    {"no rules", ""},
    {"at call", R"(at = "call.reg_mr", errno = "ENOMEM")"},
    {"at cm", R"(at = "cm.req", drop = true)"},
    {"at wc", R"(at = "wc", qp = 1, drop = true)"},
    {"at packet", R"(at = "packet", qp = 1, drop = true)"},
    {"at memory", R"(at = "memory", program = "nobody", unmapped = true)"},
}};

class Scene {
 public:
  explicit Scene(const std::string& rule) {
    a_.ConnectRc(qp_a_, kAddress, qp_b_.made.qpn);
    b_.ConnectRc(qp_b_, kAddress, qp_a_.made.qpn);
    if (rule.empty()) return;
    const Reply reply =
        client_a_.CallBytes(static_cast<uint32_t>(CallOp::kFaultAdd), rule.data(), rule.size());
    const std::string said(reinterpret_cast<const char*>(reply.body.data()), reply.body.size());
    if (reply.error != 0 || said.find("\"error\"") != std::string::npos) {
      throw std::runtime_error("the rule was not taken: " + said);
    }
  }
  // Returns the nanoseconds per message of `bytes`. Messages are posted and polled on both sides as
  // the library does it.
  double Send(uint32_t bytes) {
    const auto begin = std::chrono::steady_clock::now();
    for (uint32_t batch = 0; batch < kBatchesPerRound; batch++) {
      for (uint32_t i = 0; i < kBatch; i++) {
        b_.PostRecv(qp_b_, i, to_.data(), bytes, mr_b_.lkey);
      }
      for (uint32_t i = 0; i < kBatch; i++) {
        a_.PostSend(qp_a_, i, IBV_WR_SEND, from_.data(), bytes, mr_a_.lkey,
                    [&](PlainSend& wqe) { wqe.state = bytes <= kSlabBytes ? kPayloadTaken : 0; });
      }
      world_.Settle();
      if (Drain(a_) != kBatch || Drain(b_) != kBatch) {
        throw std::runtime_error("a message did not arrive");
      }
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / (kBatch * kBatchesPerRound);
  }

 private:
  static uint32_t Drain(Verb& verb) {
    uint32_t good = 0;
    for (ib_uverbs_wc wc; verb.Poll(wc);) good += wc.status == IBV_WC_SUCCESS;
    return good;
  }

  World world_;
  Host& host_ = world_.AddHost("host", kAddress);
  Client client_a_{world_, host_, "a"}, client_b_{world_, host_, "b"};
  Verb a_{client_a_}, b_{client_b_};
  Verb::Qp qp_a_ = a_.CreateQp(IBV_QPT_RC, 2 * kBatch), qp_b_ = b_.CreateQp(IBV_QPT_RC, 2 * kBatch);
  std::vector<std::byte> from_ = std::vector<std::byte>(kMostBytes),
                         to_ = std::vector<std::byte>(kMostBytes);
  MrOut mr_a_ = a_.Register(from_.data(), kMostBytes, IBV_ACCESS_LOCAL_WRITE);
  MrOut mr_b_ = b_.Register(to_.data(), kMostBytes, IBV_ACCESS_LOCAL_WRITE);
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void Measure(uint32_t bytes) {
  std::vector<std::unique_ptr<Scene>> scenes;
  for (const Kind& kind : kKinds) scenes.push_back(std::make_unique<Scene>(kind.rule));
  std::array<std::vector<double>, kKinds.size()> took_ns, ratio;
  for (uint32_t round = 0; round < kRounds; round++) {
    for (size_t i = 0; i < scenes.size(); i++) {
      took_ns[i].push_back(scenes[i]->Send(bytes));
      ratio[i].push_back(took_ns[i].back() / took_ns[0].back());
    }
  }
  for (size_t i = 0; i < scenes.size(); i++) {
    printf("| SEND %u bytes, %s | %.0f ns | %.2f |\n", bytes, kKinds[i].name, Median(took_ns[i]),
           Median(ratio[i]));
  }
}

}  // namespace

int main() {
  printf("| message, rule | a message | of no rules |\n|---|---|---|\n");
  for (const uint32_t bytes : {64u, kMostBytes}) Measure(bytes);
  return 0;
}
