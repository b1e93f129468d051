// Tests UD name resolution on the wire: the statuses of a SIDR_REP, duplicates, and Q_Keys
// (cm_sidr_req_handler, cm_sidr_rep_handler, cma_sidr_rep_handler of the kernel).
#include "emulator/cm/wire_peer_for_test.h"

namespace rdmaemu::cm {
namespace {

class Sidr : public WireTest {
 protected:
  void Ask() {
    active = client.Resolved("10.0.0.9", 7000, RDMA_PS_UDP);
    ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
    our_id = Last<wire::CmSidrReq>().request_id;
  }
  wire::CmSidrRep PeersReply(uint8_t status) const {
    wire::CmSidrRep rep;
    rep.request_id = our_id;
    rep.status = status;
    rep.qpn = kPeersQpn;
    rep.qkey = 0x01234567;
    rep.private_data[0] = 'p';
    return rep;
  }
  wire::CmSidrReq PeersRequest() {
    wire::CmSidrReq req;
    req.request_id = kPeersId;
    req.service_id = 0x01110000 + 7000;
    wire::RdmaCmHeader header;
    header.source_port = 1234;
    header.source = peer;
    header.destination = *NetAddress::Parse("10.0.0.2");
    wire::EmitRdmaCmHeader(header, req.private_data);
    return req;
  }
};

// The statuses: 1 unsupported, 2 rejected, 3 no QP, 4 redirected, 5 version not supported, and
// unassigned values.
class SidrStatusOf : public Sidr, public testing::WithParamInterface<int> {};
TEST_P(SidrStatusOf, TheAnswerIsThatOfUnreachable) {
  Ask();
  ToClient(PeersReply(static_cast<uint8_t>(GetParam())));
  const TakenEvent event = client.Expect(EventType::kUnreachable, GetParam());
  EXPECT_EQ(event.raw.param.ud.private_data_len, 136);
  EXPECT_EQ(event.raw.param.ud.private_data[0], 'p');
  EXPECT_EQ(event.raw.param.ud.qp_num, 0u);
  net.Run(1h);
  EXPECT_EQ(TimesOf("SIDR_REQ").size(), 1u);
  EndAll();
}
INSTANTIATE_TEST_SUITE_P(All, SidrStatusOf, testing::Range(1, 7));

TEST_F(Sidr, Success) {
  Ask();
  ToClient(PeersReply(0));
  EXPECT_EQ(client.Expect(EventType::kEstablished).raw.param.ud.qp_num, kPeersQpn);
  ToClient(PeersReply(0));
  ToClient(PeersReply(2));
  client.ExpectNothing();  // one answer per request
  EndAll();
}

// cma_set_qkey: an id has one Q_Key, which must not be 0.
TEST_F(Sidr, AReplyWithoutAQkeyIsAnAddressError) {
  Ask();
  wire::CmSidrRep rep = PeersReply(0);
  rep.qkey = 0;
  ToClient(rep);
  client.Expect(EventType::kAddrError, -EINVAL);
}

TEST_F(Sidr, AReplyWithAnotherQkeyThanTheIdsIsAnAddressError) {
  active = client.Resolved("10.0.0.9", 7000, RDMA_PS_UDP);
  ASSERT_TRUE(client.QpAttr(active, IBV_QPS_INIT));  // sets the port space's Q_Key
  ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
  our_id = Last<wire::CmSidrReq>().request_id;
  wire::CmSidrRep rep = PeersReply(0);
  rep.qkey++;
  ToClient(rep);
  client.Expect(EventType::kAddrError, -EINVAL);
}

TEST_F(Sidr, ARepeatOfAHeldRequestIsSilence) {
  server.Listener("10.0.0.2", 7000, 0, RDMA_PS_UDP);
  ToServer(PeersRequest());
  passive = server.Expect(EventType::kConnectRequest).id;
  ToServer(PeersRequest());
  server.ExpectNothing();
  EXPECT_TRUE(TakeSaid().empty());
  ASSERT_EQ(server.Accept(passive, kServerUid, Program::Parameters(kServerQpn)), 0);
  EXPECT_EQ(Last<wire::CmSidrRep>().status, 0);
  EXPECT_EQ(Last<wire::CmSidrRep>().qkey, 0x01234567u);
  // An answered request is removed. A peer that repeats it has not received the answer.
  ToServer(PeersRequest());
  server.Expect(EventType::kConnectRequest);
  EndAll();
}

TEST_F(Sidr, DestroyingAHeldRequestIsStatus2) {
  server.Listener("10.0.0.2", 7000, 0, RDMA_PS_UDP);
  ToServer(PeersRequest());
  passive = server.Expect(EventType::kConnectRequest).id;
  ASSERT_EQ(server.Destroy(passive), 0);
  EXPECT_EQ(Last<wire::CmSidrRep>().status, 2);
  EXPECT_EQ(Last<wire::CmSidrRep>().request_id, kPeersId);
  EndAll();
}

// Unlike for a REQ, the kernel answers a request that exceeds the backlog.
TEST_F(Sidr, AFullBacklogIsStatus2) {
  server.Listener("10.0.0.2", 7000, 1, RDMA_PS_UDP);
  ToServer(PeersRequest());
  wire::CmSidrReq another = PeersRequest();
  another.request_id++;
  ToServer(another);
  EXPECT_EQ(Last<wire::CmSidrRep>().status, 2);
  EXPECT_EQ(Last<wire::CmSidrRep>().request_id, kPeersId + 1);
  server.Expect(EventType::kConnectRequest);
  server.ExpectNothing();
}

TEST_F(Sidr, NobodyListensIsStatus1) {
  ToServer(PeersRequest());
  EXPECT_EQ(Last<wire::CmSidrRep>().status, 1);
  EXPECT_EQ(server_node.cm.connections(), 0u);
}

}  // namespace
}  // namespace rdmaemu::cm
