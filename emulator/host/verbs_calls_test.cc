#include "emulator/host/verbs_calls.h"

#include <gtest/gtest.h>

#include "emulator/verbs/testing/verbs_fixture.h"

namespace rdmaemu {
namespace {

class VerbsCalls : public ::testing::Test, public testing::VerbsFixture {
 protected:
  template <class In>
  Reply Do(CallOp op, const In& in, size_t bytes = sizeof(In)) {
    return DispatchVerbs(verbs, now, kGroup, kProcess, op,
                         {reinterpret_cast<const std::byte*>(&in), bytes});
  }
  template <class Out>
  static Out As(const Reply& reply) {
    Out out{};
    EXPECT_EQ(reply.error, 0);
    EXPECT_EQ(reply.body.size(), sizeof out);
    if (reply.body.size() == sizeof out) std::memcpy(&out, reply.body.data(), sizeof out);
    return out;
  }
};

TEST_F(VerbsCalls, AnyOtherSizeIsInvalidForEveryCall) {
  const std::array<std::byte, 8192> zeros{};
  for (auto op = uint32_t(CallOp::kListDevices); op <= uint32_t(CallOp::kDetachMcast); op++) {
    for (const size_t bytes : {size_t{1}, size_t{7}, zeros.size()}) {
      EXPECT_EQ(Do(CallOp{op}, zeros, bytes).error, EINVAL) << op << " with " << bytes;
    }
  }
  EXPECT_EQ(Do(CallOp::kCmCreateChannel, Nothing{}).error, ENOSYS);
  EXPECT_EQ(Do(CallOp::kHello, Nothing{}).error, ENOSYS);
}

TEST_F(VerbsCalls, UnknownHandlesAreNotThereForEveryCallThatTakesOne) {
  for (auto op = uint32_t(CallOp::kCloseDevice); op <= uint32_t(CallOp::kDetachMcast); op++) {
    // Exactly one of all sizes is right.
    const std::array<std::byte, 512> zeros{};
    int right = 0;
    for (size_t bytes = 0; bytes <= zeros.size(); bytes += 4) {
      const int error = Do(CallOp{op}, zeros, bytes).error;
      EXPECT_TRUE(error == EINVAL || error == ENOENT) << op << " with " << bytes << ": " << error;
      if (error == ENOENT) right++;
    }
    EXPECT_EQ(right, 1) << op;
  }
}

// Checks what a call through `through` returns for handles of objects of `context`.
TEST_F(VerbsCalls, HandlesBelongToTheContextThatTheyWereMadeThrough) {
  const Handle own = context->handle, other = (*verbs.Open(kGroup, 0))->handle;
  const Handle pd = As<HandleOut>(Do(CallOp::kAllocPd, AllocPdIn{own, 0})).handle;
  const Handle cq = As<CqOut>(Do(CallOp::kCreateCq, CreateCqIn{own, 0, 4, 0, 0})).handle;
  const Handle channel =
      As<CreateChannelOut>(Do(CallOp::kCreateChannel, HandleIn{own, own})).handle;
  const auto qp_in = [&](Handle through) {
    CreateQpIn in{};
    in.pd = pd;
    in.send_cq = in.recv_cq = cq;
    in.type = IBV_QPT_RC;
    in.cap = {4, 4, 1, 1, 0};
    in.context = through;
    return in;
  };
  const Handle qp = As<CreateQpOut>(Do(CallOp::kCreateQp, qp_in(own))).handle;
  char bytes[64];
  const auto at = reinterpret_cast<uint64_t>(bytes);
  RegMrIn region{pd, 0, at, sizeof bytes, at};
  region.context = own;
  const Handle mr = As<MrOut>(Do(CallOp::kRegMr, region)).handle;
  const auto answers = [&](Handle through) {
    RegMrIn more = region;
    more.context = through;
    ModifyQpIn modify{};
    modify.handle = qp;
    modify.context = through;
    return std::vector<int>{
        Do(CallOp::kRegMr, more).error,
        Do(CallOp::kAllocMw, AllocMwIn{pd, IBV_MW_TYPE_1, through}).error,
        Do(CallOp::kCreateSrq, CreateSrqIn{pd, 4, 1, 0, 0, through}).error,
        Do(CallOp::kCreateQp, qp_in(through)).error,
        Do(CallOp::kModifyQp, modify).error,
        Do(CallOp::kQueryQp, HandleIn{qp, through}).error,
        Do(CallOp::kResizeCq, ResizeCqIn{cq, 8, through}).error,
        Do(CallOp::kDestroyQp, HandleIn{qp, through}).error,
        Do(CallOp::kDeregMr, HandleIn{mr, through}).error,
        Do(CallOp::kDestroyCq, HandleIn{cq, through}).error,
        Do(CallOp::kDeallocPd, HandleIn{pd, through}).error,
        Do(CallOp::kDestroyChannel, HandleIn{channel, through}).error,
    };
  };
  EXPECT_EQ(answers(other), std::vector<int>(12, ENOENT));
  EXPECT_EQ(Do(CallOp::kCreateCq, CreateCqIn{other, channel, 4, 0, 0}).error, EBADF);
  EXPECT_EQ(Do(CallOp::kDeregMr, HandleIn{pd, own}).error, EINVAL) << "of another kind";
  // Through their own context all exist, and some are in use.
  EXPECT_EQ(answers(own), (std::vector<int>{0, 0, 0, 0, 0, 0, 0, 0, 0, EBUSY, EBUSY, 0}));
}

TEST_F(VerbsCalls, DevicesAreListedAndOpenedWithTheirCounter) {
  const auto list = As<ListDevicesOut>(Do(CallOp::kListDevices, Nothing{}, 0));
  ASSERT_EQ(list.count, 1u);
  EXPECT_STREQ(list.devices[0].name, "rxe0");
  EXPECT_STREQ(list.devices[0].dev_name, "uverbs0");
  EXPECT_STREQ(list.devices[0].profile, "rxe");
  const Reply opened = Do(CallOp::kOpenDevice, OpenDeviceIn{0, 0});
  EXPECT_NE(As<OpenDeviceOut>(opened).context, 0u);
  ASSERT_EQ(opened.descriptors.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<CounterId>(opened.descriptors[0]));
  EXPECT_EQ(Do(CallOp::kOpenDevice, OpenDeviceIn{1, 0}).error, ENODEV);
}

TEST_F(VerbsCalls, GidsComeInPiecesAndEmptyEntriesAreZero) {
  const auto gids =
      As<QueryGidsOut>(Do(CallOp::kQueryGids, QueryGidsIn{context->handle, 1, 0, kMaxGidsPerCall}));
  ASSERT_EQ(gids.count, kMaxGidsPerCall);
  EXPECT_EQ(NetAddress::FromGid(gids.entries[0].gid), LinkLocalOf(address));
  EXPECT_EQ(NetAddress::FromGid(gids.entries[1].gid), address);
  EXPECT_EQ(gids.entries[2].gid_type, uint32_t{IBV_GID_TYPE_ROCE_V2});
  EXPECT_TRUE(NetAddress::FromGid(gids.entries[3].gid).IsZero());
  const auto last = Do(CallOp::kQueryGids, QueryGidsIn{context->handle, 1, 1023, 64});
  EXPECT_EQ(As<QueryGidsOut>(last).count, 1u);
  EXPECT_EQ(Do(CallOp::kQueryGids, QueryGidsIn{context->handle, 1, 1024, 1}).error, EINVAL);
  EXPECT_EQ(Do(CallOp::kQueryGids, QueryGidsIn{context->handle, 2, 0, 1}).error, EINVAL);
}

TEST_F(VerbsCalls, ACreatedQpTellsWhereItsQueuesAre) {
  Cq(8);
  CreateQpIn in{};
  in.pd = pd->handle;
  in.send_cq = in.recv_cq = Cq(8)->handle;
  in.type = IBV_QPT_RC;
  in.cap = {4, 4, 1, 1, 0};
  const auto out = As<CreateQpOut>(Do(CallOp::kCreateQp, in));
  EXPECT_EQ(out.send_slots, 8u);
  EXPECT_EQ(out.send_slot_bytes, SendSlotBytes(1, 16));
  EXPECT_GE(out.send_queue.length,
            sizeof(QpControl) + Ring::BytesFor(out.send_slots, out.send_slot_bytes));
  const auto shared = shared_memory.Bytes(SegmentId{out.send_queue.segment});
  EXPECT_LE(out.send_queue.offset + out.send_queue.length, shared.size());
  EXPECT_EQ(shared.data() + out.send_queue.offset,
            verbs.FindQp(address, out.qpn)->send_memory.bytes);
}

TEST_F(VerbsCalls, EnumerationsOutOfRangeAreRefusedWhereTheMaskNamesThem) {
  ModifyQpIn in{};
  in.handle = Qp(IBV_QPT_RC)->handle;
  const int wild = 1000;
  std::memcpy(&in.attr.path_mtu, &wild, sizeof wild);
  in.attr.qp_state = IBV_QPS_RESET;
  in.mask = IBV_QP_STATE;
  EXPECT_EQ(Do(CallOp::kModifyQp, in).error, 0);
  std::memcpy(&in.attr.qp_state, &wild, sizeof wild);
  EXPECT_EQ(Do(CallOp::kModifyQp, in).error, EINVAL);
}

}  // namespace
}  // namespace rdmaemu
