// Barriers at every point. They hold all events until the release, which keeps their order.
// Released items do not affect objects that were destroyed meanwhile.
#include <gtest/gtest.h>

#include "emulator/base/nothing_queued.h"
#include "emulator/host/faults/calls.h"
#include "emulator/host/faults/packets.h"
#include "emulator/host/pause.h"
#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using cm::EventType;
using std::chrono::milliseconds;
using std::chrono::seconds;

class BarriersTest : public FaultQps {
 protected:
  // Releases a barrier and does the work that is due now. No work may be due later.
  void LetGo(Client& client, const std::string& rule = "gate") {
    EXPECT_EQ(AskFaults(client, CallOp::kFaultRelease, rule), "{\"name\":\"" + rule + "\"}");
    DoWhatIsDue();
  }
  void DoWhatIsDue() {
    world_.RunUntil([] { return false; }, milliseconds(0));
  }
  uint64_t HeldBy(Client& client, const std::string& rule = "gate") {
    const std::string list = AskFaults(client, CallOp::kFaultList);
    const size_t at = list.find("\"held\":", list.find("\"" + rule + "\""));
    return at == list.npos ? UINT64_MAX : std::stoull(list.substr(at + 7));
  }
  bool TimeStands() {
    return server_host_.AwaitsApplication(world_.now) || client_host_.AwaitsApplication(world_.now);
  }
  static uint64_t NoRoom(Host& host, const std::string& what) {
    const std::string status = host.StatusJson();
    const size_t at = status.find("\"" + what + "\":", status.find("\"fault_no_room\""));
    return at == status.npos ? UINT64_MAX : std::stoull(status.substr(at + what.size() + 3));
  }
  Reply Call(Client& client, CallOp op) {
    const Nothing nothing;
    return client.CallBytes(static_cast<uint32_t>(op), &nothing, sizeof nothing);
  }
  std::vector<int> AsyncTypesOf(Verb& verb) {
    std::vector<int> types;
    GetAsyncEventOut out{};
    while (verb.client.Call(CallOp::kGetAsyncEvent, HandleIn{verb.context, 0}, out) == 0) {
      types.push_back(out.type);
    }
    return types;
  }
  void DestroyQp(Client& client, const Verb::Qp& qp) {
    DestroyOut out{};
    EXPECT_EQ(client.Call(CallOp::kDestroyQp, HandleIn{qp.made.handle, 0}, out), 0);
  }
};

// ---- calls

TEST_F(BarriersTest, ACallWaitsAtABarrierAndTakesEffectWhenItIsLetGo) {
  OnServer("name = \"gate\", at = \"call.list_devices\", hold = true");
  EXPECT_TRUE(Call(server_client_, CallOp::kListDevices).is_late);
  EXPECT_EQ(HeldBy(server_client_), 1u);
  EXPECT_TRUE(TimeStands());
  DoWhatIsDue();
  EXPECT_FALSE(server_host_.TakeLateReply());
  LetGo(server_client_);
  const auto late = server_host_.TakeLateReply();
  ASSERT_TRUE(late);
  EXPECT_EQ(late->process, server_client_.process);
  EXPECT_EQ(late->reply.body.size(), sizeof(ListDevicesOut));
  EXPECT_FALSE(TimeStands());
  EXPECT_EQ(HeldBy(server_client_), 0u);
}

TEST_F(BarriersTest, ThreadsOfAProcessWaitForTheirOwnCallsOnly) {
  OnServer("name = \"gate\", at = \"call.list_devices\", hold = true");
  const Nothing nothing{};
  const auto call = [&](CallOp op, uint32_t caller) {
    return server_client_.CallBytes(static_cast<uint32_t>(op), &nothing, 0, caller);
  };
  EXPECT_TRUE(call(CallOp::kListDevices, 1).is_late);
  EXPECT_FALSE(call(CallOp::kHostStatus, 2).is_late);
  EXPECT_TRUE(call(CallOp::kListDevices, 3).is_late);
  LetGo(server_client_);
  for (const uint32_t caller : {1u, 3u}) {
    const auto late = server_host_.TakeLateReply();
    ASSERT_TRUE(late);
    EXPECT_EQ(late->process, server_client_.process);
    EXPECT_EQ(late->caller, caller);
  }
  EXPECT_FALSE(server_host_.TakeLateReply());
}

TEST_F(BarriersTest, ACallTakesEffectBeforeItsBarrierWhereTheRuleSaysSo) {
  for (const bool takes_effect : {false, true}) {
    AskFaults(server_client_, CallOp::kFaultClear);
    OnServer(std::string("name = \"gate\", at = \"call.create_id\", hold = true, takes_effect = ") +
             (takes_effect ? "true" : "false"));
    const CmCall<rdma_ucm_create_id> create{
        server_.channel, 0, {5, 0, RDMA_PS_TCP, IBV_QPT_RC, {}}};
    const auto ids = [&] {
      const std::string status = server_host_.StatusJson();
      const size_t at = status.find("\"ids\":", status.find("groups_total"));
      return std::stoul(status.substr(at + 6));
    };
    const size_t before = ids();
    EXPECT_TRUE(
        server_client_.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_CREATE_ID), &create, sizeof create)
            .is_late);
    EXPECT_EQ(ids(), before + takes_effect);
    LetGo(server_client_);
    EXPECT_TRUE(server_host_.TakeLateReply());
    EXPECT_EQ(ids(), before + 1);
  }
}

TEST_F(BarriersTest, CallsOfAProcessThatHasEndedAreForgotten) {
  OnServer("name = \"gate\", at = \"call.list_devices\", hold = true");
  Client other(world_, server_host_);
  EXPECT_TRUE(Call(other, CallOp::kListDevices).is_late);
  EXPECT_TRUE(Call(server_client_, CallOp::kListDevices).is_late);
  other.Kill();
  EXPECT_EQ(HeldBy(server_client_), 1u);
  LetGo(server_client_);
  EXPECT_EQ(server_host_.TakeLateReply()->process, server_client_.process);
  EXPECT_FALSE(server_host_.TakeLateReply());
}

TEST_F(BarriersTest, CallsThatFindNoRoomAreAnsweredAtOnceAndCounted) {
  OnServer("name = \"gate\", at = \"call.list_devices\", hold = true");
  for (size_t i = 0; i < CallFaults::kMaxDelayed; i++) {
    ASSERT_TRUE(Call(server_client_, CallOp::kListDevices).is_late);
  }
  EXPECT_FALSE(Call(server_client_, CallOp::kListDevices).is_late);
  EXPECT_EQ(NoRoom(server_host_, "delayed_calls"), 1u);
}

// ---- events

TEST_F(BarriersTest, AnEventWaitsAtABarrierAndThoseBehindItOfItsChannelToo) {
  OnServer("name = \"gate\", at = \"event.connect_request\", nth = 1, hold = true");
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  CmProgram other(server_client_);  // another channel of the same program
  for (CmProgram* program : {&server_, &other}) {
    program->Do(
        RDMA_USER_CM_CMD_RESOLVE_IP,
        rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.2", 1), program->CreateId(RDMA_PS_TCP), 2000});
  }
  world_.Settle();
  EXPECT_FALSE(Waits(server_)) << "it is not readable";
  const CmCall<rdma_ucm_get_event> get{server_.channel, 0, {}};
  EXPECT_EQ(
      server_client_.CallBytes(CmProgram::Op(RDMA_USER_CM_CMD_GET_EVENT), &get, sizeof get).error,
      kNothingQueued);
  EXPECT_EQ(HeldBy(server_client_), 2u);
  EXPECT_TRUE(TimeStands());
  EXPECT_EQ(TypeOf(EventOf(other, milliseconds(0))), EventType::kAddrResolved)
      << "other channels go on";
  LetGo(server_client_);
  EXPECT_EQ(world_.counters.value(server_.counter), 2u);
  EXPECT_EQ(TypeOf(server_.Next()), EventType::kConnectRequest);
  EXPECT_EQ(TypeOf(server_.Next()), EventType::kAddrResolved);
}

TEST_F(BarriersTest, AHeldEventMayStillBeChangedWhereTheProgramGetsIt) {
  OnClient("name = \"gate\", at = \"event.rejected\", hold = true");
  OnClient("name = \"change\", at = \"event.rejected\", status = -5");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);  // no listener
  world_.Settle();
  EXPECT_FALSE(Waits(client_));
  LetGo(client_client_);
  EXPECT_EQ(static_cast<int>(ClientEvent(milliseconds(0)).status), -5);
}

TEST_F(BarriersTest, EventsOfTwoBarriersComeInTheirOrderWhenBothHaveLetGo) {
  OnClient("name = \"first\", at = \"event.addr_resolved\", hold = true");
  OnClient("name = \"gate\", at = \"event.addr_error\", hold = true");
  for (const char* to : {"127.0.0.1", "127.0.0.77"}) {
    const uint32_t id = client_.CreateId(RDMA_PS_TCP);
    client_.Do(RDMA_USER_CM_CMD_RESOLVE_IP, rdma_ucm_resolve_ip{{}, Ipv4Socket(to, 1), id, 1});
  }
  Await(milliseconds(10));
  const uint64_t held = HeldBy(client_client_, "first") + HeldBy(client_client_);
  LetGo(client_client_);
  EXPECT_FALSE(Waits(client_)) << "the first is still held";
  LetGo(client_client_, "first");
  EXPECT_EQ(world_.counters.value(client_.counter), held);
}

TEST_F(BarriersTest, EventsGoWithTheirIdAndMoveWithIt) {
  OnClient("name = \"gate\", at = \"event.rejected\", hold = true");
  const uint32_t gone = client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  EXPECT_EQ(HeldBy(client_client_), 1u);
  client_.Do(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{{}, gone, 0});
  EXPECT_EQ(HeldBy(client_client_), 0u);
  EXPECT_FALSE(TimeStands());

  const uint32_t moving = client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  CmProgram other(client_client_);
  client_.Do(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{{}, moving, other.channel});
  EXPECT_FALSE(Waits(other));
  EXPECT_EQ(HeldBy(client_client_), 1u);
  AskFaults(client_client_, CallOp::kFaultClear);
  EXPECT_EQ(TypeOf(EventOf(other, milliseconds(0))), EventType::kRejected);
  EXPECT_FALSE(Waits(client_));
}

TEST_F(BarriersTest, EventsOfAProcessThatHasEndedHoldNoTime) {
  OnClient("name = \"gate\", at = \"event.rejected\", hold = true");
  Client program(world_, client_host_);
  CmProgram connecting(program);
  connecting.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  EXPECT_TRUE(TimeStands());
  program.Kill();
  EXPECT_FALSE(TimeStands());
  EXPECT_EQ(HeldBy(client_client_), 0u);
}

TEST_F(BarriersTest, ADelayedEventHoldsThoseBehindItOfItsChannelAndNoTime) {
  OnClient("name = \"late\", at = \"event.rejected\", nth = 1, delay_ms = 50");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);  // no listener
  world_.Settle();
  client_.Do(
      RDMA_USER_CM_CMD_RESOLVE_IP,
      rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", 1), client_.CreateId(RDMA_PS_TCP), 2000});
  Await(milliseconds(40));
  EXPECT_FALSE(Waits(client_));
  EXPECT_FALSE(TimeStands()) << "it is known when it comes";
  Await(milliseconds(20));
  EXPECT_EQ(world_.counters.value(client_.counter), 2u);
  EXPECT_EQ(TypeOf(client_.Next()), EventType::kRejected);
  EXPECT_EQ(TypeOf(client_.Next()), EventType::kAddrResolved);
}

TEST_F(BarriersTest, ADelayedEventBehindABarrierWaitsForBoth) {
  OnClient("name = \"gate\", at = \"event.addr_resolved\", nth = 2, hold = true");
  OnClient("at = \"event.rejected\", delay_ms = 50");
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);  // no listener
  client_.Do(
      RDMA_USER_CM_CMD_RESOLVE_IP,
      rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.1", 1), client_.CreateId(RDMA_PS_TCP), 2000});
  world_.Settle();
  EXPECT_EQ(HeldBy(client_client_), 2u) << "the other stands behind it";
  EXPECT_TRUE(TimeStands());
  LetGo(client_client_);
  EXPECT_EQ(TypeOf(EventOf(client_, milliseconds(0))), EventType::kAddrResolved);
  EXPECT_FALSE(Waits(client_));
  EXPECT_EQ(TypeOf(EventOf(client_, milliseconds(60))), EventType::kRejected);
}

TEST_F(BarriersTest, ADelayedEventMovesWithItsIdAndGoesWithIt) {
  OnClient("at = \"event.rejected\", delay_ms = 50");
  const uint32_t moving = client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  const uint32_t gone = client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  CmProgram other(client_client_);
  client_.Do(RDMA_USER_CM_CMD_MIGRATE_ID, rdma_ucm_migrate_id{{}, moving, other.channel});
  client_.Do(RDMA_USER_CM_CMD_DESTROY_ID, rdma_ucm_destroy_id{{}, gone, 0});
  EXPECT_FALSE(Waits(other));
  EXPECT_EQ(TypeOf(EventOf(other, milliseconds(60))), EventType::kRejected);
  EXPECT_FALSE(Waits(client_));
}

// ---- completions

TEST_F(BarriersTest, ACompletionHoldsThoseBehindItOfItsQueuePair) {
  OnServer("name = \"gate\", at = \"wc.send\", nth = 2, hold = true");
  for (uint64_t i = 1; i <= 3; i++) {
    PostRecv(10 + i);
    PostSend(i);
  }
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), std::vector<uint64_t>{1});
  EXPECT_EQ(HeldBy(server_client_), 2u);
  EXPECT_EQ(PollAll(verb_b_).size(), 3u) << "the peer has its own";
  EXPECT_TRUE(TimeStands());
  LetGo(server_client_);
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), (std::vector<uint64_t>{2, 3}));
  PostRecv(14);
  PostSend(4);
  world_.Settle();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), std::vector<uint64_t>{4}) << "nothing is held any more";
}

TEST_F(BarriersTest, ACompletionBehindTwoBarriersWaitsForBoth) {
  OnServer("name = \"gate\", at = \"wc.send\", nth = 1, hold = true");
  OnServer("name = \"second\", at = \"wc.send\", nth = 2, hold = true");
  for (uint64_t i = 1; i <= 3; i++) {
    PostRecv(10 + i);
    PostSend(i);
  }
  world_.Settle();
  LetGo(server_client_, "second");
  EXPECT_TRUE(PollAll(verb_a_).empty());
  AskFaults(server_client_, CallOp::kFaultRemove, "gate");
  DoWhatIsDue();
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), (std::vector<uint64_t>{1, 2, 3})) << "removing lets go";
}

TEST_F(BarriersTest, CompletionsGoWithTheirQueuePair) {
  OnServer("name = \"gate\", at = \"wc.send\", hold = true");
  PostRecv(11);
  PostSend(1);
  world_.Settle();
  EXPECT_EQ(HeldBy(server_client_), 1u);
  DestroyQp(server_client_, a_);
  EXPECT_EQ(HeldBy(server_client_), 0u);
  EXPECT_FALSE(TimeStands());
  LetGo(server_client_);
  EXPECT_TRUE(PollAll(verb_a_).empty());
}

// ---- asynchronous events

TEST_F(BarriersTest, AnAsynchronousEventWaitsAtABarrier) {
  OnServer("name = \"gate\", at = \"async.port_err\", hold = true");
  OnServer("name = \"down\", at = \"time\", at_ms = 1, port = \"down\", return_after_ms = 1");
  Await(milliseconds(10));
  EXPECT_EQ(AsyncTypesOf(verb_a_), std::vector<int>{IBV_EVENT_PORT_ACTIVE});
  EXPECT_EQ(HeldBy(server_client_), 1u);
  EXPECT_TRUE(TimeStands());
  LetGo(server_client_);
  EXPECT_EQ(AsyncTypesOf(verb_a_), std::vector<int>{IBV_EVENT_PORT_ERR});
}

TEST_F(BarriersTest, AsynchronousEventsGoWithTheirObject) {
  OnServer("name = \"gate\", at = \"async.qp_fatal\", hold = true");
  OnServer("name = \"raise\", at = \"time\", at_ms = 1, async = \"qp_fatal\"");
  Await(milliseconds(10));
  EXPECT_EQ(HeldBy(server_client_), 1u);
  DestroyQp(server_client_, a_);
  EXPECT_EQ(HeldBy(server_client_), 0u);
  EXPECT_FALSE(TimeStands());
}

// ---- messages

TEST_F(BarriersTest, AMessageThatWasSentArrivesThoughItsProgramHasEnded) {
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  OnClient("name = \"gate\", at = \"cm.req\", direction = \"send\", hold = true");
  Client program(world_, client_host_);
  CmProgram connecting(program);
  connecting.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  program.Kill();
  world_.Settle();
  EXPECT_EQ(HeldBy(client_client_), 1u);
  EXPECT_TRUE(TimeStands());
  EXPECT_FALSE(Waits(server_));
  LetGo(client_client_);
  EXPECT_EQ(HeldBy(client_client_), 0u);
  EXPECT_EQ(TypeOf(EventOf(server_, milliseconds(0))), EventType::kConnectRequest);
}

// ---- packets and links

TEST_F(BarriersTest, APacketOfATrainWaitsAtABarrierAndTheMessageIsWholeInTheEnd) {
  for (const char* direction : {"send", "receive"}) {
    const bool sends = direction == std::string("send");
    Client& where = sends ? server_client_ : client_client_;
    AddRule(where, std::string("name = \"gate\", at = \"packet.rc_write_middle\", direction = \"") +
                       direction + "\", nth = 2, hold = true");
    PostWrite(1, 8 * 1024);
    world_.Settle();
    EXPECT_EQ(HeldBy(where), 1u) << direction;
    EXPECT_TRUE(TimeStands());
    LetGo(where);
    EXPECT_EQ(HeldBy(where), 0u);
    ib_uverbs_wc wc{};
    EXPECT_TRUE(world_.RunUntil([&] { return verb_a_.Poll(wc); }, seconds(10))) << direction;
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::vector(target_.begin(), target_.begin() + 8 * 1024),
              std::vector(source_.begin(), source_.begin() + 8 * 1024));
    AskFaults(where, CallOp::kFaultClear);
    std::ranges::fill(target_, std::byte{0});
  }
}

TEST_F(BarriersTest, PacketsGoWithTheirQueuePair) {
  OnServer("name = \"gate\", at = \"packet\", direction = \"send\", hold = true");
  PostWrite(1, 512);
  world_.Settle();
  EXPECT_EQ(HeldBy(server_client_), 1u);
  DestroyQp(server_client_, a_);
  EXPECT_EQ(HeldBy(server_client_), 0u);
  LetGo(server_client_);
  EXPECT_EQ(target_[0], std::byte{0});
}

TEST_F(BarriersTest, ALinkThatHoldsKeepsMessagesAndPackets) {
  server_.Listen(RDMA_PS_TCP, "127.0.0.1", kPort, 8);
  OnServer("name = \"gate\", at = \"link\", hold = true");
  PostWrite(1, 512);
  client_.Connect(RDMA_PS_TCP, "127.0.0.1", kPort);
  world_.Settle();
  EXPECT_EQ(HeldBy(server_client_), 2u);
  EXPECT_FALSE(Waits(server_));
  AskFaults(server_client_, CallOp::kFaultRemove, "gate");
  EXPECT_EQ(TypeOf(EventOf(server_, milliseconds(0))), EventType::kConnectRequest);
  EXPECT_EQ(IdsOf(PollAll(verb_a_)), std::vector<uint64_t>{1});
}

// ---- datagrams that do not fit

TEST_F(BarriersTest, DatagramsThatAPausedHostHasNoRoomForAreCounted) {
  OnClient("at = \"time\", at_ms = 1, pause_ms = 50");
  world_.now += milliseconds(2);
  client_host_.Expire(world_.now);
  const std::vector<std::byte> bytes(64);
  const wire::UdpFlow flow{*NetAddress::Parse("127.0.0.1"), *NetAddress::Parse("127.0.0.2"),
                           wire::kRoceUdpPort, wire::kRoceUdpPort};
  for (size_t i = 0; i < HostPause::kMaxDatagrams + 3; i++) {
    client_host_.Receive(world_.now, flow, std::span<const std::byte>(bytes));
  }
  EXPECT_EQ(NoRoom(client_host_, "paused_datagrams"), 3u);
}

}  // namespace
}  // namespace rdmaemu::testing
