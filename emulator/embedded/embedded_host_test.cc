// Embedded hosts without a program: calls, time, and the results of waits.
#include "emulator/embedded/embedded_hosts.h"

#include <gtest/gtest.h>

#include "emulator/cm/events.h"
#include "emulator/host/testing/cm_program.h"

namespace rdmaemu::embedded {
namespace {

using cm::EventType;
using rdmaemu::testing::CmProgram;
using rdmaemu::testing::Ipv4Socket;
using std::chrono::seconds;
using Mode = runtime::ClockOption::Mode;

class EmbeddedHostTest : public ::testing::Test {
 protected:
  void Open(Mode mode) {
    EmbeddedOptions options;
    options.host.seed = "1";
    options.clock.mode = mode;
    auto opened = EmbeddedHosts::Open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error();
    host = std::move(*opened);
    HelloIn in{};
    in.version = kCallVersion;
    HelloOut out{};
    ASSERT_EQ(Call(CallOp::kHello, in, &out, sizeof out), 0);
  }
  template <class In>
  int Call(CallOp op, const In& in, void* out = nullptr, uint32_t out_size = 0, int* fd = nullptr) {
    CallBuffers call{static_cast<uint32_t>(op), &in, sizeof in, out, out_size, 0, fd,
                     fd == nullptr ? 0u : 1u};
    const int error = host->Call(*host->At(0), call).value_or(EINPROGRESS);
    if (error == 0 && out_size > 0 && op < CallOp::kCmCommand) {
      EXPECT_EQ(call.filled, out_size);
    }
    return error;
  }
  template <class Command>
  int Cm(uint32_t command, const Command& in, void* out = nullptr, uint32_t out_size = 0) {
    return Call(CallOp{CmProgram::Op(command)}, CmCall<Command>{channel, 0, in}, out, out_size);
  }
  // Creates an id that connects to an address that no host has.
  void ConnectToNobody() {
    CmChannelOut made{};
    ASSERT_EQ(Call(CallOp::kCmCreateChannel, Nothing{}, &made, sizeof made, &fd), 0);
    channel = made.channel;
    rdma_ucm_create_id_resp id{};
    ASSERT_EQ(Cm(RDMA_USER_CM_CMD_CREATE_ID, rdma_ucm_create_id{5, 0, RDMA_PS_TCP, IBV_QPT_RC, {}},
                 &id, sizeof id),
              0);
    ASSERT_EQ(Cm(RDMA_USER_CM_CMD_RESOLVE_IP,
                 rdma_ucm_resolve_ip{{}, Ipv4Socket("127.0.0.99", 7471), id.id, 2000}),
              0);
    EXPECT_EQ(NextEvent(), EventType::kAddrResolved);
    ASSERT_EQ(Cm(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id.id, 2000}), 0);
    EXPECT_EQ(NextEvent(), EventType::kRouteResolved);
    ASSERT_EQ(Cm(RDMA_USER_CM_CMD_CONNECT, rdma_ucm_connect{CmProgram::Parameters(), id.id, 0, {}}),
              0);
  }
  // Returns the next event, or nullopt if there is none.
  std::optional<EventType> NextEvent() {
    rdma_ucm_event_resp event{};
    const int error = Cm(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, &event, sizeof event);
    return error == 0 ? std::optional(EventType{event.event}) : std::nullopt;
  }
  void TearDown() override {
    if (fd >= 0) close(fd);
  }

  std::unique_ptr<EmbeddedHosts> host;
  uint32_t channel = 0;
  int fd = -1;
};

TEST_F(EmbeddedHostTest, VirtualTimeStandsUntilSomebodyWaits) {
  Open(Mode::kVirtual);
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  EXPECT_EQ(host->Now(), Time{});
  EXPECT_TRUE(host->GoOn(false).moved);
  EXPECT_GT(host->Now(), Time{});
  EXPECT_EQ(NextEvent(), std::nullopt) << "a REQ is repeated first";
}

TEST_F(EmbeddedHostTest, WaitingLeadsToUnreachableAndThenToNothing) {
  Open(Mode::kVirtual);
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  EmbeddedHosts::Pause pause;
  while ((pause = host->GoOn(true)).moved) {
  }
  EXPECT_TRUE(pause.endless);
  EXPECT_EQ(NextEvent(), EventType::kUnreachable);
  EXPECT_GT(host->Now(), Time(seconds(60)));
}

TEST_F(EmbeddedHostTest, WhoIsNotAloneIsNotTold) {
  Open(Mode::kVirtual);
  const EmbeddedHosts::Pause pause = host->GoOn(false);
  EXPECT_FALSE(pause.moved);
  EXPECT_FALSE(pause.endless);
  EXPECT_FALSE(pause.machine.has_value());
}

TEST_F(EmbeddedHostTest, ManualTimeMovesWhenToldAlone) {
  Open(Mode::kManual);
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  EXPECT_TRUE(host->GoOn(true).endless);
  EXPECT_EQ(host->Now(), Time{});
  host->Advance(seconds(3));
  EXPECT_EQ(host->Now(), Time(seconds(3)));
  EXPECT_EQ(NextEvent(), std::nullopt);
  host->Advance(seconds(200));
  EXPECT_EQ(NextEvent(), EventType::kUnreachable);
  EXPECT_EQ(host->Now(), Time(seconds(203)));
}

TEST_F(EmbeddedHostTest, ARealClockTellsHowLongToSleep) {
  Open(Mode::kReal);
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  const EmbeddedHosts::Pause pause = host->GoOn(true);
  EXPECT_FALSE(pause.moved);
  ASSERT_TRUE(pause.machine.has_value());
  EXPECT_LE(*pause.machine, seconds(10));
}

TEST_F(EmbeddedHostTest, IdleIsWhereNothingIsDue) {
  Open(Mode::kVirtual);
  ASSERT_NO_FATAL_FAILURE(ConnectToNobody());
  EXPECT_TRUE(host->RunUntilIdle());
  EXPECT_EQ(NextEvent(), EventType::kUnreachable);
}

TEST_F(EmbeddedHostTest, TheTimelineKeepsTheLatestLines) {
  Open(Mode::kVirtual);
  for (size_t i = 0; i < RecentLines::kMaxLines + 10; i++) {
    ListDevicesOut list{};
    ASSERT_EQ(Call(CallOp::kListDevices, Nothing{}, &list, sizeof list), 0);
  }
  const std::string text = host->TraceText();
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
            RecentLines::kMaxLines);
}

TEST_F(EmbeddedHostTest, ACallWantsAsManyDescriptorsAsItBrings) {
  Open(Mode::kVirtual);
  CmChannelOut made{};
  EXPECT_EQ(Call(CallOp::kCmCreateChannel, Nothing{}, &made, sizeof made), EPROTO);
}

}  // namespace
}  // namespace rdmaemu::embedded
