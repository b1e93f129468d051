// Two hosts with fault rules, and programs on them: the fixture of the tests of the doors.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "emulator/cm/events.h"
#include "emulator/host/testing/cm_program.h"

namespace rdmaemu::testing {

// Returns the text of a reply to one of the kFault* calls.
inline std::string AskFaults(Client& client, CallOp op, const std::string& text = {}) {
  const Reply reply = client.CallBytes(static_cast<uint32_t>(op), text.data(), text.size());
  EXPECT_EQ(reply.error, 0);
  return {reinterpret_cast<const char*>(reply.body.data()), reply.body.size()};
}

inline void AddRule(Client& client, const std::string& rule) {
  const std::string answer = AskFaults(client, CallOp::kFaultAdd, rule);
  EXPECT_EQ(answer.find("\"error\""), std::string::npos) << answer;
}

// A listener on one host and a client on another.
class FaultWorld : public ::testing::Test {
 protected:
  static constexpr uint16_t kPort = 7471;

  FaultWorld()
      : server_host_(world_.AddHost("server", "127.0.0.1")),
        client_host_(world_.AddHost("client", "127.0.0.2")),
        server_client_(world_, server_host_, "server"),
        client_client_(world_, client_host_, "client"),
        server_(server_client_),
        client_(client_client_) {}

  void OnServer(const std::string& rule) { AddRule(server_client_, rule); }
  void OnClient(const std::string& rule) { AddRule(client_client_, rule); }

  bool Waits(CmProgram& program) { return world_.counters.value(program.counter) > 0; }
  // Returns the next event of a program, which must arrive within the limit.
  rdma_ucm_event_resp EventOf(CmProgram& program, Duration limit = std::chrono::seconds(200)) {
    EXPECT_TRUE(world_.RunUntil([&] { return Waits(program); }, limit)) << "no event";
    return Waits(program) ? program.Event() : rdma_ucm_event_resp{};
  }
  rdma_ucm_event_resp ClientEvent(Duration limit = std::chrono::seconds(200)) {
    return EventOf(client_, limit);
  }
  static cm::EventType TypeOf(const rdma_ucm_event_resp& event) {
    return cm::EventType{event.event};
  }

  World world_;
  Host &server_host_, &client_host_;
  Client server_client_, client_client_;
  CmProgram server_, client_;
};

// One program on the server's host and one on the client's host, each with a connected queue pair,
// and with memory that both may access.
class FaultQps : public FaultWorld {
 protected:
  static constexpr uint32_t kBytes = 64 * 1024;

  FaultQps() { Connect(); }

  // Creates and connects new queue pairs, as at the beginning.
  void Connect() {
    a_ = verb_a_.CreateQp(IBV_QPT_RC, 32);
    b_ = verb_b_.CreateQp(IBV_QPT_RC, 32);
    verb_a_.ConnectRc(a_, "127.0.0.2", b_.made.qpn);
    verb_b_.ConnectRc(b_, "127.0.0.1", a_.made.qpn);
  }
  void PostRecv(uint64_t wr_id, uint32_t bytes = 1024) {
    verb_b_.PostRecv(b_, wr_id, target_.data(), bytes, mr_b_.lkey);
  }
  void PostSend(uint64_t wr_id, uint32_t bytes = 1024) {
    verb_a_.PostSend(a_, wr_id, IBV_WR_SEND, source_.data(), bytes, mr_a_.lkey);
  }
  void PostWrite(uint64_t wr_id, uint32_t bytes) {
    verb_a_.PostSend(a_, wr_id, IBV_WR_RDMA_WRITE, source_.data(), bytes, mr_a_.lkey,
                     [&](PlainSend& wqe) {
                       wqe.wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(target_.data());
                       wqe.wr.wr.rdma.rkey = mr_b_.rkey;
                     });
  }
  static std::vector<ib_uverbs_wc> PollAll(Verb& verb) {
    std::vector<ib_uverbs_wc> all;
    for (ib_uverbs_wc wc; verb.Poll(wc);) all.push_back(wc);
    return all;
  }
  ibv_qp_state StateOf(Verb& verb, const Verb::Qp& qp) {
    QueryQpOut out{};
    EXPECT_EQ(verb.client.Call(CallOp::kQueryQp, HandleIn{qp.made.handle, 0}, out), 0);
    return out.attr.qp_state;
  }
  void Await(Duration time) {
    const Time end = world_.now + time;
    world_.RunUntil([] { return false; }, time);
    world_.now = end;
  }

  Verb verb_a_{server_client_}, verb_b_{client_client_};
  Verb::Qp a_, b_;
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::vector<std::byte> target_ = std::vector<std::byte>(kBytes);
  MrOut mr_a_ = verb_a_.Register(source_.data(), kBytes, IBV_ACCESS_LOCAL_WRITE);
  MrOut mr_b_ =
      verb_b_.Register(target_.data(), kBytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
};

}  // namespace rdmaemu::testing
