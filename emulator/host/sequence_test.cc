// Sequences have the effects, replies and records of the same calls made singly, and the host
// executes none of their calls where a rule may decide about each.
#include "emulator/abi/sequence.h"

#include <gtest/gtest.h>

#include "emulator/base/nothing_queued.h"
#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

constexpr uint32_t kAllDevices = UINT32_MAX;

struct StepResult {
  uint32_t step;
  int error;
  std::vector<std::byte> out;

  template <class Out>
  Out As() const {
    Out value{};
    std::memcpy(&value, out.data(), std::min(out.size(), sizeof value));
    return value;
  }
};

// The bytes of a sequence.
class Steps {
 public:
  explicit Steps(uint32_t devices = kAllDevices) {
    const SequenceIn in{0, devices};
    Append(&in, sizeof in);
  }
  template <class In>
  Steps& Add(uint32_t op, const In& in, StepLink link = StepLink::kNone) {
    const StepGift gift = op == static_cast<uint32_t>(CallOp::kCreateQp) ? StepGift::kQueuePair
                          : op == CmProgram::Op(RDMA_USER_CM_CMD_INIT_QP_ATTR)
                              ? StepGift::kAttributes
                          : op == CmProgram::Op(RDMA_USER_CM_CMD_GET_EVENT) ? StepGift::kEvent
                                                                            : StepGift::kNothing;
    const StepHeader header{op, sizeof in, static_cast<uint32_t>(link),
                            static_cast<uint32_t>(gift)};
    Append(&header, sizeof header);
    Append(&in, sizeof in);
    bytes.resize(PaddedStep(bytes.size()));
    uint32_t count;
    std::memcpy(&count, bytes.data(), sizeof count);
    count++;
    std::memcpy(bytes.data(), &count, sizeof count);
    return *this;
  }
  template <class In>
  Steps& AddCm(const CmProgram& program, uint32_t command, const In& in,
               StepLink link = StepLink::kNone) {
    return Add(CmProgram::Op(command), CmCall<In>{program.channel, 0, in}, link);
  }
  Steps& AddEventAndQueries(const CmProgram& program) {
    AddCm(program, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{});
    for (const uint32_t option :
         {RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_GID, RDMA_USER_CM_QUERY_PATH}) {
      AddCm(program, RDMA_USER_CM_CMD_QUERY, rdma_ucm_query{0, 0, option}, StepLink::kEvent);
    }
    return *this;
  }

  std::vector<std::byte> bytes;

 private:
  void Append(const void* from, size_t size) {
    bytes.resize(bytes.size() + size);
    std::memcpy(bytes.data() + bytes.size() - size, from, size);
  }
};

class SequenceTest : public FaultWorld {
 protected:
  SequenceTest() { world_.trace.keep_records = true; }

  static Reply Send(Client& client, const Steps& steps) {
    return client.CallBytes(static_cast<uint32_t>(CallOp::kSequence), steps.bytes.data(),
                            steps.bytes.size());
  }
  static std::vector<StepResult> Run(Client& client, const Steps& steps) {
    const Reply reply = Send(client, steps);
    EXPECT_EQ(reply.error, 0);
    std::vector<StepResult> results;
    if (reply.body.size() < sizeof(SequenceOut)) return results;
    SequenceOut out;
    std::memcpy(&out, reply.body.data(), sizeof out);
    size_t at = sizeof out;
    for (uint32_t i = 0; i < out.results; i++) {
      ResultHeader header;
      std::memcpy(&header, reply.body.data() + at, sizeof header);
      at += sizeof header;
      const auto body = reply.body.begin() + static_cast<ptrdiff_t>(at);
      results.push_back({header.step, header.error, {body, body + header.size}});
      at += PaddedStep(header.size);
    }
    EXPECT_EQ(at, reply.body.size());
    return results;
  }
  static std::vector<uint32_t> StepsOf(const std::vector<StepResult>& results) {
    std::vector<uint32_t> steps;
    for (const StepResult& each : results) steps.push_back(each.step);
    return steps;
  }
  // The calls that the hosts have traced.
  std::vector<std::string> TracedCalls() const {
    std::vector<std::string> calls;
    for (const trace::Record& each : world_.trace.records) {
      if (each.kind == "call") calls.push_back(std::string(each.what));
    }
    return calls;
  }
  uint32_t Resolving() {
    const uint32_t id = client_.CreateId(RDMA_PS_TCP);
    client_.Do(RDMA_USER_CM_CMD_RESOLVE_IP,
               rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", kPort), id, 2000});
    EXPECT_TRUE(world_.RunUntil([&] { return Waits(client_); }, std::chrono::seconds(1)));
    return id;
  }
  CreateQpIn QpOf(const Verb& verb) const {
    CreateQpIn in{};
    in.pd = verb.pd;
    in.send_cq = in.recv_cq = verb.cq.handle;
    in.type = IBV_QPT_RC;
    in.cap = {4, 4, 1, 1, 0};
    in.context = verb.context;
    return in;
  }
};

TEST_F(SequenceTest, AnEventComesWithTheQueriesThatTheLibraryMakesAfterIt) {
  const uint32_t id = Resolving();
  auto results = Run(client_client_, Steps().AddEventAndQueries(client_));
  EXPECT_EQ(StepsOf(results), (std::vector<uint32_t>{0, 1, 2})) << "no path yet";
  EXPECT_EQ(results.at(0).As<rdma_ucm_event_resp>().id, id);
  EXPECT_EQ(results.at(1).As<rdma_ucm_query_addr_resp>().port_num, 1);
  client_.Do(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 2000});
  results = Run(client_client_, Steps().AddEventAndQueries(client_));
  EXPECT_EQ(StepsOf(results), (std::vector<uint32_t>{0, 3}));
  EXPECT_EQ(results.at(1).As<CmQueryPathOut>().num_paths, 1u);
}

TEST_F(SequenceTest, ARequestComesWithTheQueriesOfItsNewId) {
  const uint32_t listener = server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 4);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  ASSERT_TRUE(world_.RunUntil([&] { return Waits(server_); }, std::chrono::seconds(1)));
  const auto results = Run(server_client_, Steps().AddEventAndQueries(server_));
  EXPECT_EQ(StepsOf(results), (std::vector<uint32_t>{0, 1, 2, 3}));
  const uint32_t id = results.at(0).As<rdma_ucm_event_resp>().id;
  EXPECT_NE(id, listener);
  rdma_ucm_query_addr_resp singly{}, together = results.at(1).As<rdma_ucm_query_addr_resp>();
  ASSERT_EQ(
      server_client_.Call(
          CallOp{CmProgram::Op(RDMA_USER_CM_CMD_QUERY)},
          CmCall<rdma_ucm_query>{server_.channel, 0, {0, id, RDMA_USER_CM_QUERY_ADDR}}, singly),
      0);
  EXPECT_EQ(std::memcmp(&singly, &together, sizeof singly), 0);
}

TEST_F(SequenceTest, TheHostStopsBeforeAQueryOfADeviceThatTheLibraryDoesNotUse) {
  Resolving();
  const auto results = Run(client_client_, Steps(/*devices=*/0).AddEventAndQueries(client_));
  EXPECT_EQ(StepsOf(results), (std::vector<uint32_t>{0, 1}));
}

TEST_F(SequenceTest, AnEmptyQueueOfEventsEndsTheSequence) {
  const auto results = Run(client_client_, Steps().AddEventAndQueries(client_));
  ASSERT_EQ(StepsOf(results), std::vector<uint32_t>{0});
  EXPECT_EQ(results[0].error, kNothingQueued);
}

TEST_F(SequenceTest, ACreatedQueuePairMovesToInitWithTheHostsAttributes) {
  Verb verb(client_client_);
  const uint32_t id = Resolving();
  client_.Event();
  ModifyQpIn modify{};
  modify.attr.qp_state = IBV_QPS_INIT;
  const auto before = TracedCalls().size();
  const auto results = Run(
      client_client_,
      Steps()
          .Add(static_cast<uint32_t>(CallOp::kCreateQp), QpOf(verb))
          .AddCm(client_, RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, id, IBV_QPS_INIT})
          .Add(static_cast<uint32_t>(CallOp::kModifyQp), modify, StepLink::kAttributes));
  ASSERT_EQ(StepsOf(results), (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(results[2].error, 0);
  QueryQpOut qp{};
  ASSERT_EQ(client_client_.Call(CallOp::kQueryQp,
                                HandleIn{results[0].As<CreateQpOut>().handle, verb.context}, qp),
            0);
  EXPECT_EQ(qp.attr.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(qp.attr.port_num, 1);
  const auto calls = TracedCalls();
  EXPECT_EQ(
      (std::vector<std::string>(calls.begin() + static_cast<ptrdiff_t>(before), calls.end() - 1)),
      (std::vector<std::string>{"create_qp", "init_qp_attr", "modify_qp"}))
      << "each call has its record, and the sequence has none";
}

TEST_F(SequenceTest, ACallThatFailsIsTheLast) {
  Verb verb(client_client_);
  ModifyQpIn modify{};
  modify.attr.qp_state = IBV_QPS_INIT;
  const auto results =
      Run(client_client_,
          Steps()
              .Add(static_cast<uint32_t>(CallOp::kCreateQp), QpOf(verb))
              .AddCm(client_, RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, 999, 1})
              .Add(static_cast<uint32_t>(CallOp::kModifyQp), modify, StepLink::kAttributes));
  ASSERT_EQ(StepsOf(results), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(results[1].error, ENOENT);
}

TEST_F(SequenceTest, AQueuePairKeepsTheDepthsThatTheProgramChose) {
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 4);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const uint32_t id = EventOf(server_).id;
  Verb verb(server_client_);
  const uint32_t qp = verb.CreateQp(IBV_QPT_RC).made.handle;
  const auto moves = [&](uint8_t depth, StepLink to_rtr, StepLink to_rts) {
    Steps steps;
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ModifyQpIn modify{};
      modify.handle = qp;
      modify.attr.qp_state = state;
      modify.attr.max_dest_rd_atomic = modify.attr.max_rd_atomic = depth;
      steps.AddCm(server_, RDMA_USER_CM_CMD_INIT_QP_ATTR, rdma_ucm_init_qp_attr{0, id, state});
      steps.Add(static_cast<uint32_t>(CallOp::kModifyQp), modify,
                state == IBV_QPS_RTR   ? to_rtr
                : state == IBV_QPS_RTS ? to_rts
                                       : StepLink::kAttributes);
    }
    EXPECT_EQ(Run(server_client_, steps).size(), 6u);
    QueryQpOut out{};
    EXPECT_EQ(server_client_.Call(CallOp::kQueryQp, HandleIn{qp, 0}, out), 0);
    EXPECT_EQ(out.attr.qp_state, IBV_QPS_RTS);
    return out.attr;
  };
  const ibv_qp_attr own =
      moves(4, StepLink::kAttributesButDestReads, StepLink::kAttributesButReads);
  EXPECT_EQ(own.max_dest_rd_atomic, 4);
  EXPECT_EQ(own.max_rd_atomic, 4);
  ibv_qp_attr reset{};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(server_client_.Call(CallOp::kModifyQp, ModifyQpIn{qp, IBV_QP_STATE, reset}), 0);
  EXPECT_NE(moves(4, StepLink::kAttributes, StepLink::kAttributes).max_dest_rd_atomic, 4)
      << "of the request";
}

TEST_F(SequenceTest, WhileThereIsARuleNoCallOfASequenceIsExecuted) {
  const uint32_t id = Resolving();
  const auto bit = [&] {
    const auto* const page =
        reinterpret_cast<DoorbellPage*>(client_client_.At(client_client_.hello.doorbells));
    return page->watched_calls & DoorbellPage::kNoSequences;
  };
  EXPECT_EQ(bit(), 0u);
  OnClient("name = \"any\", at = \"packet.rc_acknowledge\", nth = 1000, drop = true");
  EXPECT_NE(bit(), 0u);
  EXPECT_TRUE(Run(client_client_, Steps().AddEventAndQueries(client_)).empty());
  AskFaults(client_client_, CallOp::kFaultRemove, "any");
  EXPECT_EQ(bit(), 0u);
  const auto results = Run(client_client_, Steps().AddEventAndQueries(client_));
  ASSERT_EQ(results.size(), 3u) << "the event was still queued";
  EXPECT_EQ(results[0].As<rdma_ucm_event_resp>().id, id);
}

TEST_F(SequenceTest, AMalformedSequenceIsRefusedBeforeItsFirstCall) {
  const uint32_t id = Resolving();
  const rdma_ucm_disconnect plain{id};
  const Steps good = Steps().AddEventAndQueries(client_);
  std::vector<Steps> bad;
  for (const size_t less : {1u, 8u, 40u}) {
    bad.push_back(good);
    bad.back().bytes.resize(good.bytes.size() - less);
  }
  bad.push_back(good);
  bad.back().bytes.resize(good.bytes.size() + 8);
  bad.push_back(Steps());
  bad.push_back(good);
  bad.back().AddCm(client_, RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{0, id, 0});
  bad.push_back(good);
  bad.back().Add(static_cast<uint32_t>(CallOp::kSequence), Nothing{});
  bad.push_back(good);
  for (uint32_t i = 0; i + 3 < kMaxSequenceSteps; i++) {
    bad.back().AddCm(client_, RDMA_USER_CM_CMD_DISCONNECT, plain);
  }
  for (size_t i = 0; i < bad.size(); i++) {
    EXPECT_EQ(Send(client_client_, bad[i]).error, EINVAL) << i;
  }
  EXPECT_EQ(Run(client_client_, good).size(), 3u) << "the event was still queued";
}

TEST_F(SequenceTest, AnUnknownOrMisplacedLinkStopsTheSequence) {
  Resolving();
  const rdma_ucm_query query{0, 0, RDMA_USER_CM_QUERY_ADDR};
  ModifyQpIn modify{};
  EXPECT_TRUE(
      Run(client_client_, Steps().AddCm(client_, RDMA_USER_CM_CMD_QUERY, query, StepLink::kEvent))
          .empty());
  EXPECT_TRUE(Run(client_client_,
                  Steps().AddCm(client_, RDMA_USER_CM_CMD_QUERY, query, StepLink::kAttributes))
                  .empty());
  EXPECT_TRUE(
      Run(client_client_, Steps().AddCm(client_, RDMA_USER_CM_CMD_QUERY, query, StepLink{99}))
          .empty());
  EXPECT_TRUE(Run(client_client_, Steps().Add(static_cast<uint32_t>(CallOp::kModifyQp), modify,
                                              StepLink::kAttributes))
                  .empty());
}

TEST_F(SequenceTest, AProgramWithoutAHelloHasNoSequences) {
  const Steps steps = Steps().AddEventAndQueries(client_);
  std::vector<std::byte> message(sizeof(CallHeader));
  const CallHeader header{static_cast<uint32_t>(CallOp::kSequence),
                          static_cast<uint32_t>(steps.bytes.size())};
  std::memcpy(message.data(), &header, sizeof header);
  message.insert(message.end(), steps.bytes.begin(), steps.bytes.end());
  const ProcessId stranger = client_host_.Attach(world_.now, {1, "stranger"});
  EXPECT_EQ(client_host_.Call(world_.now, stranger, message).error, EPROTO);
}

}  // namespace
}  // namespace rdmaemu::testing
