// The device's attributes equal those of the kernel's rxe.
#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

class Device : public DeviceTest {};

TEST_F(Device, IsInTheListWithItsNamesAndType) {
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  ASSERT_NE(devices, nullptr);
  EXPECT_GE(count, 1);
  EXPECT_EQ(devices[count], nullptr);
  int found = 0;
  for (int i = 0; i < count; ++i) {
    if (DeviceName() != ibv_get_device_name(devices[i])) continue;
    ++found;
    EXPECT_EQ(devices[i]->node_type, IBV_NODE_CA);
    EXPECT_EQ(devices[i]->transport_type, IBV_TRANSPORT_IB);
    EXPECT_NE(ibv_get_device_guid(devices[i]), 0u);
    EXPECT_EQ(strncmp(devices[i]->dev_name, "uverbs", 6), 0) << devices[i]->dev_name;
  }
  EXPECT_EQ(found, 1);
  ibv_free_device_list(devices);
}

TEST_F(Device, OutlivesTheListItCameFrom) {
  EXPECT_EQ(ibv_get_device_name(context->device), DeviceName());
  EXPECT_GE(context->async_fd, 0);
  EXPECT_GE(context->num_comp_vectors, 1);
}

TEST_F(Device, HasTheLimitsOfRxe) {
  ibv_device_attr attr{};
  ASSERT_EQ(ibv_query_device(context.get(), &attr), 0);
  EXPECT_STREQ(attr.fw_ver, "0.0.0");
  EXPECT_NE(attr.node_guid, 0u);
  EXPECT_EQ(attr.node_guid, attr.sys_image_guid);
  EXPECT_EQ(attr.vendor_id, 0xffffffu);
  EXPECT_EQ(attr.vendor_part_id, 0u);
  EXPECT_EQ(attr.max_mr_size, ~uint64_t{0});
  EXPECT_EQ(attr.page_size_cap, 0xfffff000u);
  EXPECT_EQ(attr.max_qp, 1048560);
  EXPECT_EQ(attr.max_qp_wr, 1048576);
  EXPECT_EQ(attr.device_cap_flags, 0x01223c76u);
  EXPECT_EQ(attr.max_sge, 32);
  EXPECT_EQ(attr.max_sge_rd, 32);
  EXPECT_EQ(attr.max_cq, 1048576);
  EXPECT_EQ(attr.max_cqe, 32767);
  EXPECT_EQ(attr.max_mr, 524287);
  EXPECT_EQ(attr.max_pd, 1048576);
  EXPECT_EQ(attr.max_qp_rd_atom, 128);
  EXPECT_EQ(attr.max_res_rd_atom, 258048);
  EXPECT_EQ(attr.max_qp_init_rd_atom, 128);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_HCA);
  EXPECT_EQ(attr.max_mw, 524287);
  EXPECT_EQ(attr.max_mcast_grp, 8192);
  EXPECT_EQ(attr.max_mcast_qp_attach, 56);
  EXPECT_EQ(attr.max_total_mcast_qp_attach, 458752);
  EXPECT_EQ(attr.max_ah, 32767);
  EXPECT_EQ(attr.max_srq, 917503);
  EXPECT_EQ(attr.max_srq_wr, 1048576);
  EXPECT_EQ(attr.max_srq_sge, 27);
  EXPECT_EQ(attr.max_pkeys, 64);
  EXPECT_EQ(attr.local_ca_ack_delay, 15);
  EXPECT_EQ(attr.phys_port_cnt, 1);
}

TEST_F(Device, ExtendedQueryAgreesAndOffersNothingMore) {
  ibv_device_attr_ex attr{};
  ASSERT_EQ(ibv_query_device_ex(context.get(), nullptr, &attr), 0);
  EXPECT_EQ(attr.orig_attr.max_qp, 1048560);
  EXPECT_EQ(attr.phys_port_cnt_ex, 1u);
  EXPECT_EQ(attr.completion_timestamp_mask, 0u);
  EXPECT_EQ(attr.device_cap_flags_ex, 0x1223c76u);
  EXPECT_EQ(attr.tso_caps.max_tso, 0u);
  EXPECT_EQ(attr.odp_caps.general_caps, 0u);
}

TEST_F(Device, PortIsAnActiveEthernetPort) {
  ibv_port_attr attr{};
  ASSERT_EQ(ibv_query_port(context.get(), 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.max_mtu, IBV_MTU_4096);
  EXPECT_GE(attr.active_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(attr.max_msg_sz, 0x800000u);
  EXPECT_EQ(attr.pkey_tbl_len, 1);
  EXPECT_EQ(attr.gid_tbl_len, 1024);
  EXPECT_EQ(attr.port_cap_flags, 0x00010000u);
  EXPECT_EQ(attr.lid, 0);
  EXPECT_EQ(attr.active_width, 1);
  // The speed of the underlying link: a power of two by ibv_query_port(3).
  EXPECT_NE(attr.active_speed, 0);
  EXPECT_EQ(attr.active_speed & (attr.active_speed - 1), 0);
  EXPECT_EQ(attr.phys_state, 5);
}

TEST_F(Device, HasOnlyPortOne) {
  ibv_port_attr attr{};
  EXPECT_EQ(ibv_query_port(context.get(), 0, &attr), EINVAL);
  EXPECT_EQ(ibv_query_port(context.get(), 2, &attr), EINVAL);
}

TEST_F(Device, GidTableBeginsWithALinkLocalGidAndHoldsTheAddress) {
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(context.get(), 1, 0, &gid), 0);
  EXPECT_EQ(gid.raw[0], 0xfe);
  EXPECT_EQ(gid.raw[1], 0x80);
  EXPECT_GE(GidIndexOf(context.get(), LocalAddress()), 1);
}

TEST_F(Device, UnusedGidIndexIsZeroAndOneBeyondTheTableIsRefused) {
  ibv_gid gid;
  memset(&gid, 0xff, sizeof gid);
  ASSERT_EQ(ibv_query_gid(context.get(), 1, 1000, &gid), 0);
  EXPECT_TRUE(std::all_of(gid.raw, gid.raw + 16, [](uint8_t byte) { return byte == 0; }));
  EXPECT_NE(ibv_query_gid(context.get(), 1, 5000, &gid), 0);
  EXPECT_NE(ibv_query_gid(context.get(), 1, -1, &gid), 0);
}

TEST_F(Device, GidEntriesSayRoceVersionTwo) {
  ibv_gid_entry entries[64];
  const ssize_t count = ibv_query_gid_table(context.get(), entries, 64, 0);
  ASSERT_GE(count, 2);
  for (ssize_t i = 0; i < count; ++i) {
    EXPECT_EQ(entries[i].gid_type, unsigned{IBV_GID_TYPE_ROCE_V2});
    EXPECT_EQ(entries[i].port_num, 1u);
  }
  ibv_gid_entry one{};
  EXPECT_EQ(ibv_query_gid_ex(context.get(), 1, 0, &one, 0), 0);
}

TEST_F(Device, HasTheDefaultPkeyAlone) {
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(context.get(), 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
  EXPECT_NE(ibv_query_pkey(context.get(), 1, 9, &pkey), 0);
  EXPECT_EQ(ibv_get_pkey_index(context.get(), 1, htobe16(0xffff)), 0);
}

TEST_F(Device, OpensMoreThanOnce) {
  Context second(OpenTestDevice());
  ASSERT_TRUE(second);
  Pd other(ibv_alloc_pd(second.get()));
  EXPECT_TRUE(other);
}

TEST_F(Device, HasNothingThatRxeHasNot) {
  EXPECT_EQ(ibv_query_rt_values_ex(context.get(), nullptr), EOPNOTSUPP);
  ibv_xrcd_init_attr xrcd{};
  xrcd.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  xrcd.fd = -1;
  EXPECT_EQ(ibv_open_xrcd(context.get(), &xrcd), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_td_init_attr td{};
  EXPECT_EQ(ibv_alloc_td(context.get(), &td), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_alloc_dm_attr dm{};
  dm.length = 64;
  EXPECT_EQ(ibv_alloc_dm(context.get(), &dm), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_alloc_null_mr(pd.get()), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace rdma_contract
