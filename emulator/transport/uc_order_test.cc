// UC with packets written by hand. No packet is acknowledged. An incomplete message is dropped with
// all its packets, and its receive serves the next message (IBTA 9.8.2, 9.8.3).
#include "emulator/transport/scripted_peer.h"

namespace rdmaemu::transport::testing {
namespace {

using enum wire::Operation;

class UcOrder : public ScriptedPeer {
 protected:
  UcOrder() {
    Begin({}, IBV_QPT_UC);
    x.PostReceive(7, {x.Sge(0, 8192)});
    x.PostReceive(8, {x.Sge(8192, 8192)});
  }
  // Delivers a packet. UC never responds.
  void Tell(const wire::PacketHeaders& headers, std::span<const std::byte> payload = {}) {
    EXPECT_TRUE(Say(headers, payload).empty());
  }
  // Expects that the next whole message takes the receive of the broken message.
  void ExpectTheNextArrivesInTheFirstReceive(uint32_t psn) {
    EXPECT_TRUE(x.Received().empty());
    Tell(Packet(kSendOnly, psn), std::span(full).first(40));
    const auto received = x.Received();
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].wr_id, 7u);
    EXPECT_EQ(received[0].status, uint32_t{IBV_WC_SUCCESS});
    EXPECT_EQ(received[0].byte_len, 40u);
    EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
  }
  const std::vector<std::byte> full = std::vector<std::byte>(1024, std::byte{0xaa});
};

TEST_F(UcOrder, AMessageOfSeveralPacketsArrivesAndIsNotAcknowledged) {
  Tell(Request(kSendFirst, kPeerPsn), full);
  Tell(Request(kSendMiddle, kPeerPsn + 1), full);
  Tell(Request(kSendLastImm, kPeerPsn + 2), std::span(full).first(8));
  const auto received = x.Received();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].byte_len, 2056u);
}

// IBTA 9.8.2.2.2: a message may begin at any PSN. Lost PSNs between messages do not matter.
TEST_F(UcOrder, AMessageBeginsAtAnyPsn) {
  Tell(Packet(kSendOnly, kPeerPsn + 1000), full);
  Tell(Packet(kSendOnly, 3), full);
  EXPECT_EQ(x.Received().size(), 2u);
}

TEST_F(UcOrder, AMessageGoesOnAcrossTheWrapOfPsns) {
  Tell(Packet(kSendFirst, 0xffffff), full);
  Tell(Packet(kSendMiddle, 0), full);
  Tell(Packet(kSendLast, 1), full);
  EXPECT_EQ(x.Received().at(0).byte_len, 3072u);
}

TEST_F(UcOrder, AGapInsideAMessageDropsItWhole) {
  Tell(Packet(kSendFirst, kPeerPsn), full);
  Tell(Packet(kSendMiddle, kPeerPsn + 2), full);
  Tell(Packet(kSendLast, kPeerPsn + 3), full);
  ExpectTheNextArrivesInTheFirstReceive(kPeerPsn + 4);
}

TEST_F(UcOrder, ARepeatedPacketInsideAMessageDropsItWhole) {
  Tell(Packet(kSendFirst, kPeerPsn), full);
  Tell(Packet(kSendMiddle, kPeerPsn + 1), full);
  Tell(Packet(kSendMiddle, kPeerPsn + 1), full);
  Tell(Packet(kSendLast, kPeerPsn + 2), full);
  ExpectTheNextArrivesInTheFirstReceive(kPeerPsn + 3);
}

TEST_F(UcOrder, AMessageThatNeverEndsGivesWayToTheNext) {
  Tell(Packet(kSendFirst, kPeerPsn), full);
  Tell(Packet(kSendMiddle, kPeerPsn + 1), full);
  ExpectTheNextArrivesInTheFirstReceive(kPeerPsn + 9);
}

TEST_F(UcOrder, WhatBelongsToNoMessageIsDropped) {
  for (const auto operation : {kSendMiddle, kSendLast, kSendLastImm}) {
    Tell(Packet(operation, kPeerPsn), full);
  }
  Tell(Packet(kSendFirst, kPeerPsn), full);
  Tell(Packet(kWriteMiddle, kPeerPsn + 1), full);
  Tell(Packet(kSendLast, kPeerPsn + 2), full);
  ExpectTheNextArrivesInTheFirstReceive(kPeerPsn + 3);
}

// IBTA 9.8.3.2.1, C9-92: a packet of the wrong size breaks its message.
TEST_F(UcOrder, AMessageWithAPacketOfTheWrongSizeIsDropped) {
  const std::vector<std::byte> over(1028, std::byte{1});
  Tell(Packet(kSendOnly, kPeerPsn), over);
  Tell(Packet(kSendFirst, kPeerPsn), std::span(full).first(1020));
  Tell(Packet(kSendLast, kPeerPsn + 1), full);
  Tell(Packet(kSendFirst, kPeerPsn + 2), full);
  Tell(Packet(kSendMiddle, kPeerPsn + 3), over);
  Tell(Packet(kSendLast, kPeerPsn + 4), full);
  Tell(Packet(kSendFirst, kPeerPsn + 5), full);
  Tell(Packet(kSendLast, kPeerPsn + 6), {});
  ExpectTheNextArrivesInTheFirstReceive(kPeerPsn + 7);
}

TEST_F(UcOrder, AWriteWithAWrongKeyOrLengthIsDroppedAndHarmsNobody) {
  auto wrong_key = Remote(kWriteOnly, kPeerPsn, 16384, 1024);
  wrong_key.rkey ^= 0x500;
  Tell(wrong_key, full);
  Tell(Remote(kWriteOnly, kPeerPsn + 1, x.buffer.size() - 512, 1024), full);
  Tell(Remote(kWriteOnly, kPeerPsn + 2, 16384, 1020), full);
  Tell(Remote(kWriteFirst, kPeerPsn + 3, 16384, 2048), full);
  Tell(Packet(kWriteLast, kPeerPsn + 4), std::span(full).first(1020));
  EXPECT_TRUE(std::all_of(x.buffer.begin() + 17408, x.buffer.end(),
                          [](std::byte b) { return b == std::byte{0}; }));
  Tell(Remote(kWriteOnly, kPeerPsn + 5, 20480, 1024), full);
  EXPECT_EQ(x.buffer[20480], std::byte{0xaa});
  EXPECT_EQ(x.qp->state(), IBV_QPS_RTS);
}

// UC drops packets that only RC defines.
TEST_F(UcOrder, ReadsAtomicsAndAcknowledgesOfAnotherTransportAreDropped) {
  own_class = wire::TransportClass::kRc;
  Tell(Remote(kReadRequest, kPeerPsn, 0, 64));
  Tell(Atomic(kFetchAdd, kPeerPsn, 0, 1));
  Tell(Ack(kOwnPsn));
  Tell(Packet(kSendOnly, kPeerPsn), full);
  EXPECT_EQ(world.a.engine.counters().dropped_bad_opcode, 4u);
  EXPECT_EQ(WordAt(0), 0u);
}

}  // namespace
}  // namespace rdmaemu::transport::testing
