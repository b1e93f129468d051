// Memory that a rule removes: a program gets the same errors as for unmapped memory.
#include "emulator/host/faults/memory.h"

#include <gtest/gtest.h>

#include "emulator/host/testing/fault_world.h"

namespace rdmaemu::testing {
namespace {

using std::chrono::seconds;

class MemoryFaultsTest : public FaultQps {
 protected:
  uint32_t StatusOf(Verb& verb) {
    ib_uverbs_wc wc{};
    EXPECT_TRUE(world_.RunUntil([&] { return verb.Poll(wc); }, seconds(10))) << "no completion";
    return wc.status;
  }
};

TEST_F(MemoryFaultsTest, ASendFromItIsALocalProtectionError) {
  for (const uint32_t bytes : {64u, 4096u}) {
    AskFaults(server_client_, CallOp::kFaultClear);
    OnServer("at = \"memory.read\", mr_order = 1, unmapped = true");
    PostWrite(1, bytes);
    EXPECT_EQ(StatusOf(verb_a_), IBV_WC_LOC_PROT_ERR) << bytes;
    Connect();
  }
}

TEST_F(MemoryFaultsTest, AWriteToItIsARemoteAccessError) {
  OnClient("at = \"memory.write\", program = \"client\", unmapped = true");
  PostWrite(1, 64);
  EXPECT_EQ(StatusOf(verb_a_), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MemoryFaultsTest, AReceiveIntoItFailsAtBothEnds) {
  OnClient("at = \"memory.write\", unmapped = true");
  PostRecv(11, 64);
  PostSend(1, 64);
  EXPECT_EQ(StatusOf(verb_a_), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(StatusOf(verb_b_), IBV_WC_LOC_QP_OP_ERR);
}

TEST_F(MemoryFaultsTest, TheThirdAccessAloneFailsWhereTheRuleSaysSo) {
  OnServer("at = \"memory.read\", nth = 3, unmapped = true");
  for (uint64_t i = 1; i <= 2; i++) {
    PostWrite(i, 512);
    EXPECT_EQ(StatusOf(verb_a_), IBV_WC_SUCCESS);
  }
  PostWrite(3, 512);
  EXPECT_EQ(StatusOf(verb_a_), IBV_WC_LOC_PROT_ERR);
}

// A capture reads the payloads, too. These reads are none of the device.
TEST_F(MemoryFaultsTest, ACaptureDoesNotChangeWhichAccessFails) {
  world_.trace.keep_packets = true;
  Connect();
  OnServer("at = \"memory.read\", nth = 2, unmapped = true");
  PostWrite(1, 512);
  EXPECT_EQ(StatusOf(verb_a_), IBV_WC_SUCCESS);
  PostWrite(2, 512);
  EXPECT_EQ(StatusOf(verb_a_), IBV_WC_LOC_PROT_ERR);
}

TEST_F(MemoryFaultsTest, ARuleMeansItsBytesAndItsProgram) {
  const auto at = reinterpret_cast<uint64_t>(source_.data());
  OnServer("name = \"bytes\", at = \"memory\", address = " + std::to_string(at + 1024) +
           ", length = 16, unmapped = true");
  OnServer("name = \"program\", at = \"memory\", program = \"x\", unmapped = true");
  OnServer("name = \"region\", at = \"memory\", mr_order = 2, unmapped = true");
  PostWrite(1, 1024);
  EXPECT_EQ(StatusOf(verb_a_), IBV_WC_SUCCESS);
  PostWrite(2, 1025);
  EXPECT_EQ(StatusOf(verb_a_), IBV_WC_LOC_PROT_ERR);
}

}  // namespace
}  // namespace rdmaemu::testing
