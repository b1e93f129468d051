// Tests every message in every state of a connection, on both sides. The expected answer is that of
// the kernel's handlers in cm.c, with the application's event. Most of these messages are late or
// duplicates.
#include "emulator/cm/wire_peer_for_test.h"

namespace rdmaemu::cm {
namespace {

// States as in cm.c. kRejected is IDLE. In kGone the id is destroyed.
enum class State {
  kReqSent,
  kMraReqReceived,
  kHeld,  // a request or a reply that the application has not answered: MRA_REQ_SENT, MRA_REP_SENT
  kRepSent,
  kMraRepReceived,
  kEstablished,
  kDreqSent,
  kDreqReceived,
  kTimewait,
  kRejected,
  kGone,
};

struct Cell {
  State state;
  const char* message;
  const char* answer = "";  // "": silence
  const char* event = "";
};

std::string NameOf(State state) {
  static constexpr const char* kNames[] = {
      "ReqSent",        "MraReqReceived", "Held",     "RepSent",
      "MraRepReceived", "Established",    "DreqSent", "DreqReceived",
      "Timewait",       "Rejected",       "Gone"};
  return kNames[static_cast<size_t>(state)];
}
std::string NameOfCell(const testing::TestParamInfo<Cell>& info) {
  return std::string(info.param.message) + "In" + NameOf(info.param.state);
}

class EveryState : public WireTest, public testing::WithParamInterface<Cell> {
 protected:
  // Checks the answer and the event of the message.
  void Expect(Program& program) {
    const Cell& cell = GetParam();
    const std::vector<std::string> answers = TakeSaid();
    EXPECT_EQ(answers, *cell.answer == 0 ? std::vector<std::string>{}
                                         : std::vector<std::string>{cell.answer});
    const std::optional<TakenEvent> event = program.Take();
    EXPECT_STREQ(event ? EventName(event->type) + std::strlen("RDMA_CM_EVENT_") : "", cell.event);
    program.ExpectNothing();
    EndAll();
  }
};

// ---- the passive side

class PassiveSide : public EveryState {
 protected:
  void Reach(State state) {
    RequestFromPeer();
    if (state == State::kHeld) {
      ToServer(PeersReq());  // the answer contains our id
      our_id = Last<wire::CmMra>().local_comm_id;
      return;
    }
    if (state == State::kRejected) {
      ASSERT_EQ(server.Reject(passive), 0);
      our_id = Last<wire::CmRej>().local_comm_id;
      return;
    }
    ReplyToPeer();
    if (state == State::kRepSent) return;
    if (state == State::kMraRepReceived) return ToServer(PeersMra(wire::CmMessageType::kRep, 20));
    ToServer(PeersRtu());
    server.Expect(EventType::kEstablished);
    if (state == State::kEstablished) return;
    if (state == State::kDreqSent) {
      ASSERT_EQ(server.Disconnect(passive), 0);
      return;
    }
    ToServer(PeersDreq(kServerQpn));
    server.Expect(EventType::kDisconnected);
    if (state == State::kDreqReceived) return;
    ASSERT_EQ(server.Disconnect(passive), 0);
    if (state == State::kTimewait) return;
    net.Run(10min);
    server.Expect(EventType::kTimewaitExit);
    ASSERT_EQ(server.Destroy(passive), 0);
  }
  void Hear(const std::string& message) {
    if (message == "REQ") return ToServer(PeersReq());
    if (message == "MRA") return ToServer(PeersMra(wire::CmMessageType::kRep, 20));
    if (message == "REJ") return ToServer(PeersRej(28, wire::CmMessageType::kRep));
    if (message == "REP") return ToServer(PeersRep());
    if (message == "RTU") return ToServer(PeersRtu());
    if (message == "DREQ") return ToServer(PeersDreq(kServerQpn));
    if (message == "DREP") return ToServer(PeersDrep());
    FAIL() << message;
  }
};

TEST_P(PassiveSide, AnswersAsTheKernel) {
  Reach(GetParam().state);
  ASSERT_FALSE(HasFatalFailure());
  TakeSaid();
  Hear(GetParam().message);
  Expect(server);
}

INSTANTIATE_TEST_SUITE_P(
    All, PassiveSide,
    testing::Values(
        Cell{State::kHeld, "REQ", "MRA"}, Cell{State::kHeld, "MRA"},
        Cell{State::kHeld, "REJ"},  // the accept will fail: measured
        Cell{State::kHeld, "REP"}, Cell{State::kHeld, "RTU"}, Cell{State::kHeld, "DREQ"},
        Cell{State::kHeld, "DREP"},

        Cell{State::kRejected, "REQ", "", "CONNECT_REQUEST"}, Cell{State::kRejected, "MRA"},
        Cell{State::kRejected, "REJ"}, Cell{State::kRejected, "REP"}, Cell{State::kRejected, "RTU"},
        Cell{State::kRejected, "DREQ"}, Cell{State::kRejected, "DREP"},

        Cell{State::kRepSent, "REQ"}, Cell{State::kRepSent, "MRA"},
        Cell{State::kRepSent, "REJ", "", "REJECTED"}, Cell{State::kRepSent, "REP"},
        Cell{State::kRepSent, "RTU", "", "ESTABLISHED"},
        Cell{State::kRepSent, "DREQ", "", "DISCONNECTED"}, Cell{State::kRepSent, "DREP"},

        Cell{State::kMraRepReceived, "REQ"}, Cell{State::kMraRepReceived, "MRA"},
        Cell{State::kMraRepReceived, "REJ", "", "REJECTED"}, Cell{State::kMraRepReceived, "REP"},
        Cell{State::kMraRepReceived, "RTU", "", "ESTABLISHED"},
        Cell{State::kMraRepReceived, "DREQ", "", "DISCONNECTED"},
        Cell{State::kMraRepReceived, "DREP"},

        Cell{State::kEstablished, "REQ"}, Cell{State::kEstablished, "MRA"},
        Cell{State::kEstablished, "REJ", "", "REJECTED"},
        Cell{State::kEstablished, "REP", "RTU"},  // on either side
        Cell{State::kEstablished, "RTU"}, Cell{State::kEstablished, "DREQ", "", "DISCONNECTED"},
        Cell{State::kEstablished, "DREP"},

        Cell{State::kDreqSent, "REQ"}, Cell{State::kDreqSent, "MRA"},
        Cell{State::kDreqSent, "REJ", "", "REJECTED"}, Cell{State::kDreqSent, "REP"},
        Cell{State::kDreqSent, "RTU"}, Cell{State::kDreqSent, "DREQ", "", "DISCONNECTED"},
        Cell{State::kDreqSent, "DREP", "", "DISCONNECTED"},

        Cell{State::kDreqReceived, "REQ"}, Cell{State::kDreqReceived, "MRA"},
        Cell{State::kDreqReceived, "REJ"}, Cell{State::kDreqReceived, "REP"},
        Cell{State::kDreqReceived, "RTU"}, Cell{State::kDreqReceived, "DREQ"},
        Cell{State::kDreqReceived, "DREP"},

        // Entering timewait removes the pair of GUID and id, so the peer may send a new request.
        Cell{State::kTimewait, "REQ", "", "CONNECT_REQUEST"}, Cell{State::kTimewait, "MRA"},
        Cell{State::kTimewait, "REJ"}, Cell{State::kTimewait, "REP"}, Cell{State::kTimewait, "RTU"},
        Cell{State::kTimewait, "DREQ", "DREP"}, Cell{State::kTimewait, "DREP"},

        Cell{State::kGone, "REQ", "", "CONNECT_REQUEST"}, Cell{State::kGone, "MRA"},
        Cell{State::kGone, "REJ"}, Cell{State::kGone, "REP"}, Cell{State::kGone, "RTU"},
        Cell{State::kGone, "DREQ", "DREP"}, Cell{State::kGone, "DREP"}),
    NameOfCell);

// ---- the active side

class ActiveSide : public EveryState {
 protected:
  void Reach(State state) {
    RequestToPeer();
    if (state == State::kReqSent) return;
    if (state == State::kMraReqReceived) return ToClient(PeersMra(wire::CmMessageType::kReq, 20));
    if (state == State::kRejected) {
      ToClient(PeersRej(28, wire::CmMessageType::kReq));
      client.Expect(EventType::kRejected, 28);
      return;
    }
    ToClient(PeersRep());
    client.Expect(EventType::kConnectResponse);
    if (state == State::kHeld) return;
    ASSERT_EQ(client.Establish(active), 0);
    if (state == State::kEstablished) return;
    if (state == State::kDreqSent) {
      ASSERT_EQ(client.Disconnect(active), 0);
      return;
    }
    ToClient(PeersDreq(kClientQpn));
    client.Expect(EventType::kDisconnected);
    if (state == State::kDreqReceived) return;
    ASSERT_EQ(client.Disconnect(active), 0);
    if (state == State::kTimewait) return;
    net.Run(10min);
    client.Expect(EventType::kTimewaitExit);
    ASSERT_EQ(client.Destroy(active), 0);
  }
  void Hear(const std::string& message) {
    const bool asked = GetParam().state == State::kReqSent ||
                       GetParam().state == State::kMraReqReceived ||
                       GetParam().state == State::kRejected;
    const auto about = asked ? wire::CmMessageType::kReq : wire::CmMessageType::kOther;
    if (message == "MRA") return ToClient(PeersMra(about, 20));
    if (message == "REJ") return ToClient(PeersRej(28, about));
    if (message == "REP") return ToClient(PeersRep());
    if (message == "RTU") return ToClient(PeersRtu());
    if (message == "DREQ") return ToClient(PeersDreq(kClientQpn));
    if (message == "DREP") return ToClient(PeersDrep());
    FAIL() << message;
  }
};

TEST_P(ActiveSide, AnswersAsTheKernel) {
  Reach(GetParam().state);
  ASSERT_FALSE(HasFatalFailure());
  TakeSaid();
  Hear(GetParam().message);
  Expect(client);
}

INSTANTIATE_TEST_SUITE_P(
    All, ActiveSide,
    testing::Values(
        Cell{State::kReqSent, "MRA"}, Cell{State::kReqSent, "REJ", "", "REJECTED"},
        Cell{State::kReqSent, "REP", "", "CONNECT_RESPONSE"}, Cell{State::kReqSent, "RTU"},
        // No connection has both ids, so the DREQ counts as one whose DREP was lost.
        Cell{State::kReqSent, "DREQ", "DREP"}, Cell{State::kReqSent, "DREP"},

        Cell{State::kMraReqReceived, "MRA"}, Cell{State::kMraReqReceived, "REJ", "", "REJECTED"},
        Cell{State::kMraReqReceived, "REP", "", "CONNECT_RESPONSE"},
        Cell{State::kMraReqReceived, "RTU"}, Cell{State::kMraReqReceived, "DREQ", "DREP"},
        Cell{State::kMraReqReceived, "DREP"},

        Cell{State::kRejected, "MRA"}, Cell{State::kRejected, "REJ"}, Cell{State::kRejected, "REP"},
        Cell{State::kRejected, "RTU"}, Cell{State::kRejected, "DREQ", "DREP"},
        Cell{State::kRejected, "DREP"},

        Cell{State::kHeld, "MRA"}, Cell{State::kHeld, "REJ", "", "REJECTED"},
        Cell{State::kHeld, "REP", "MRA"}, Cell{State::kHeld, "RTU"}, Cell{State::kHeld, "DREQ"},
        Cell{State::kHeld, "DREP"},

        Cell{State::kEstablished, "MRA"}, Cell{State::kEstablished, "REJ", "", "REJECTED"},
        Cell{State::kEstablished, "REP", "RTU"}, Cell{State::kEstablished, "RTU"},
        Cell{State::kEstablished, "DREQ", "", "DISCONNECTED"}, Cell{State::kEstablished, "DREP"},

        Cell{State::kDreqSent, "MRA"}, Cell{State::kDreqSent, "REJ", "", "REJECTED"},
        Cell{State::kDreqSent, "REP"}, Cell{State::kDreqSent, "RTU"},
        Cell{State::kDreqSent, "DREQ", "", "DISCONNECTED"},
        Cell{State::kDreqSent, "DREP", "", "DISCONNECTED"},

        Cell{State::kDreqReceived, "MRA"}, Cell{State::kDreqReceived, "REJ"},
        Cell{State::kDreqReceived, "REP"}, Cell{State::kDreqReceived, "RTU"},
        Cell{State::kDreqReceived, "DREQ"}, Cell{State::kDreqReceived, "DREP"},

        Cell{State::kTimewait, "MRA"}, Cell{State::kTimewait, "REJ"}, Cell{State::kTimewait, "REP"},
        Cell{State::kTimewait, "RTU"}, Cell{State::kTimewait, "DREQ", "DREP"},
        Cell{State::kTimewait, "DREP"},

        Cell{State::kGone, "MRA"}, Cell{State::kGone, "REJ"}, Cell{State::kGone, "REP"},
        Cell{State::kGone, "RTU"}, Cell{State::kGone, "DREQ", "DREP"}, Cell{State::kGone, "DREP"}),
    NameOfCell);

}  // namespace
}  // namespace rdmaemu::cm
