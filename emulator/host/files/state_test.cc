// The files of a host's objects, read by the call that tools make.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "emulator/abi/calls.h"
#include "emulator/host/files/state.h"
#include "emulator/host/testing/cm_program.h"
#include "emulator/host/testing/world.h"

namespace rdmaemu::testing {
namespace {

class StateFilesTest : public ::testing::Test {
 protected:
  StateFilesTest()
      : host_(world_.AddHost("a", "127.0.0.1")),
        peer_(world_.AddHost("b", "127.0.0.2")),
        client_(world_, host_, "pro\ngram"),
        verb_(client_) {}

  struct Answer {
    int error = 0;
    std::string rest;
  };
  Answer Look(const std::string& path) {
    const Reply reply =
        client_.CallBytes(static_cast<uint32_t>(CallOp::kReadFile), path.data(), path.size());
    if (reply.error != 0) return {reply.error, {}};
    const auto* const bytes = reinterpret_cast<const char*>(reply.body.data());
    return {0, std::string(bytes + sizeof(ReadFileOut), bytes + reply.body.size())};
  }
  // Returns the value of a line "name: value" of a file.
  std::string Value(const std::string& path, const std::string& name) {
    const std::string text = "\n" + Look(path).rest;
    const size_t at = text.find("\n" + name + ": ");
    if (at == text.npos) return "no line " + name;
    const size_t from = at + name.size() + 3;
    return text.substr(from, text.find('\n', from) - from);
  }
  size_t Entries(const std::string& path) {
    const std::string rest = Look(path).rest;
    return static_cast<size_t>(std::count(rest.begin(), rest.end(), '\0'));
  }

  World world_;
  Host &host_, &peer_;
  Client client_;
  Verb verb_;
};

TEST_F(StateFilesTest, AQueuePairsFileFollowsItsState) {
  const Verb::Qp qp = verb_.CreateQp(IBV_QPT_RC);
  const std::string path = "/state/qps/" + std::to_string(qp.made.qpn);
  EXPECT_EQ(Value(path, "state"), "RESET");
  EXPECT_EQ(Value(path, "type"), "RC");
  EXPECT_EQ(Value(path, "device"), "rxe0");
  EXPECT_EQ(Value(path, "peer_qp"), "no line peer_qp");
  verb_.ConnectRc(qp, "127.0.0.2", 4321);
  EXPECT_EQ(Value(path, "state"), "RTS");
  EXPECT_EQ(Value(path, "peer_qp"), "4321");
  EXPECT_EQ(Value(path, "peer_address"), "127.0.0.2");
  EXPECT_EQ(Value(path, "send_cq"), std::to_string(verb_.cq.handle));
  EXPECT_EQ(client_.Call(CallOp::kDestroyQp, HandleIn{qp.made.handle, 0}), 0);
  EXPECT_EQ(Look(path).error, ENOENT);
  EXPECT_EQ(Entries("/state/qps"), 0u);
}

TEST_F(StateFilesTest, AProgramsNameCannotAddALine) {
  const Verb::Qp qp = verb_.CreateQp(IBV_QPT_UD);
  EXPECT_EQ(Value("/state/qps/" + std::to_string(qp.made.qpn), "program"), "pro?gram");
}

TEST_F(StateFilesTest, AnUnconnectedQueueCountsItsReceives) {
  Verb::Qp qp = verb_.CreateQp(IBV_QPT_UD);
  std::array<char, 64> memory;
  const MrOut mr = verb_.Register(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  const std::string path = "/state/qps/" + std::to_string(qp.made.qpn);
  EXPECT_EQ(Value(path, "recv_queue").substr(0, 5), "0 of ");
  verb_.PostRecv(qp, 1, memory.data(), memory.size(), mr.lkey);
  EXPECT_EQ(Value(path, "recv_queue").substr(0, 5), "1 of ");
}

TEST_F(StateFilesTest, ARegionsFileIsNamedByItsKey) {
  std::array<char, 64> memory;
  const MrOut mr = verb_.Register(memory.data(), memory.size(),
                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  std::array<char, 16> key{};
  snprintf(key.data(), key.size(), "0x%x", mr.lkey);
  const std::string path = std::string("/state/mrs/") + key.data();
  EXPECT_EQ(Value(path, "lkey"), key.data());
  EXPECT_EQ(Value(path, "length"), "64");
  EXPECT_EQ(Value(path, "access"), "LOCAL_WRITE|REMOTE_WRITE");
}

TEST_F(StateFilesTest, ACompletionQueuesFileCountsItsUsers) {
  const std::string path = "/state/cqs/" + std::to_string(verb_.cq.handle);
  EXPECT_EQ(Value(path, "users"), "0");
  EXPECT_EQ(Value(path, "channel"), "none");
  verb_.CreateQp(IBV_QPT_RC);
  EXPECT_NE(Value(path, "users"), "0");
}

TEST_F(StateFilesTest, ManyObjectsAreCutWithinOneReply) {
  std::array<char, 64> memory;
  for (size_t i = 0; i < files::kMaxListedObjects; i++) {
    verb_.Register(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  }
  EXPECT_EQ(Entries("/state/mrs"), files::kMaxListedObjects);
  EXPECT_EQ(Look("/state/mrs/more").error, ENOENT);
  verb_.Register(memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  EXPECT_EQ(Entries("/state/mrs"), files::kMaxListedObjects + 1);
  EXPECT_EQ(Look("/state/mrs/more").rest, "only the first 8192 are listed\n");
}

TEST_F(StateFilesTest, AnIdsFileFollowsItsState) {
  EXPECT_EQ(Look("/state/ids").error, 0);
  EXPECT_EQ(Entries("/state/ids"), 0u);
  EXPECT_EQ(Look("/state/ids/1").error, ENOENT);
  CmProgram program(client_);
  const uint32_t id = program.Listen(RDMA_PS_TCP, "127.0.0.1", 7471, 3);
  const std::string path = "/state/ids/" + std::to_string(id);
  EXPECT_EQ(Value(path, "state"), "LISTEN");
  EXPECT_EQ(Value(path, "port_space"), "TCP");
  EXPECT_EQ(Value(path, "source"), "127.0.0.1:7471");
  EXPECT_EQ(Value(path, "destination"), "0.0.0.0:0");
  EXPECT_EQ(Value(path, "backlog_left"), "3");
}

}  // namespace
}  // namespace rdmaemu::testing
