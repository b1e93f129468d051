// The files that a host shows under /sys and /dev. Names, formats and modes are the kernel's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "emulator/abi/calls.h"
#include "emulator/host/testing/world.h"

namespace rdmaemu::testing {
namespace {

struct Seen {
  int error = 0;
  ReadFileOut head{};
  std::string rest;

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (size_t at = 0; at < rest.size(); at += names.back().size() + 2) {
      names.emplace_back(&rest[at + 1]);
    }
    return names;
  }
};

class SystemFilesTest : public ::testing::Test {
 protected:
  SystemFilesTest()
      : here_(world_.AddHost("here", "127.0.0.1")),
        there_(world_.AddHost("there", "127.0.0.2")),
        a_client_(world_, here_, "a"),
        b_client_(world_, there_, "b") {}

  static Seen Look(Client& client, const std::string& path) {
    const Reply reply =
        client.CallBytes(static_cast<uint32_t>(CallOp::kReadFile), path.data(), path.size());
    Seen seen;
    seen.error = reply.error;
    if (reply.body.size() < sizeof seen.head) return seen;
    std::memcpy(&seen.head, reply.body.data(), sizeof seen.head);
    seen.rest.assign(reinterpret_cast<const char*>(reply.body.data()) + sizeof seen.head,
                     reply.body.size() - sizeof seen.head);
    return seen;
  }
  std::string Text(const std::string& path) { return Look(a_client_, path).rest; }
  static std::string Port(const std::string& file) {
    return "/sys/devices/virtual/infiniband/rxe0/ports/1/" + file;
  }

  World world_;
  Host &here_, &there_;
  Client a_client_, b_client_;
};

TEST_F(SystemFilesTest, ADeviceHasTheFilesOfRdmaRxe) {
  const Seen device = Look(a_client_, "/sys/devices/virtual/infiniband/rxe0");
  EXPECT_EQ(device.Names(),
            (std::vector<std::string>{"fw_ver", "node_desc", "node_guid", "node_type", "ports",
                                      "subsystem", "sys_image_guid", "uevent"}));
  EXPECT_EQ(device.head.mode, 0755u);
  EXPECT_EQ(Text("/sys/devices/virtual/infiniband/rxe0/node_type"), "1: CA\n");
  EXPECT_EQ(Text("/sys/devices/virtual/infiniband/rxe0/fw_ver"), "\n");
  EXPECT_EQ(Text("/sys/devices/virtual/infiniband/rxe0/uevent"), "NAME=rxe0\n");
  EXPECT_EQ(Text("/sys/devices/virtual/infiniband/rxe0/node_desc"), "rxe\n");
  EXPECT_EQ(Look(a_client_, "/sys/devices/virtual/infiniband/rxe0/node_desc").head.mode, 0644u);
  EXPECT_EQ(Text("/sys/devices/virtual/infiniband/rxe0/node_guid").size(), 20u);
  EXPECT_EQ(Text(Port("state")), "4: ACTIVE\n");
  EXPECT_EQ(Text(Port("phys_state")), "5: LinkUp\n");
  EXPECT_EQ(Text(Port("rate")), "2.5 Gb/sec (1X SDR)\n");
  EXPECT_EQ(Text(Port("cap_mask")), "0x00010000\n");
  EXPECT_EQ(Text(Port("lid")), "0x0\n");
  EXPECT_EQ(Text(Port("link_layer")), "Ethernet\n");
  EXPECT_EQ(Text(Port("pkeys/0")), "0xffff\n");
}

TEST_F(SystemFilesTest, AClassHasALinkToEachOfItsDevices) {
  const Seen link = Look(a_client_, "/sys/class/infiniband/rxe0");
  EXPECT_EQ(link.head.kind, static_cast<uint32_t>(FileKind::kLink));
  EXPECT_EQ(link.rest, "../../devices/virtual/infiniband/rxe0");
  EXPECT_EQ(Look(a_client_, "/sys/class/infiniband_verbs").Names(),
            (std::vector<std::string>{"abi_version", "uverbs0"}));
  EXPECT_EQ(Text("/sys/class/infiniband_verbs/abi_version"), "6\n");
  EXPECT_EQ(Text("/sys/devices/virtual/infiniband/rxe0/subsystem"), "../../../../class/infiniband");
}

TEST_F(SystemFilesTest, TheGidTableHasAFileForEachEntryAndNoTypeForEmptyOnes) {
  EXPECT_EQ(Look(a_client_, Port("gids")).Names().size(), 1024u);
  EXPECT_EQ(Text(Port("gids/1")), "0000:0000:0000:0000:0000:ffff:7f00:0001\n");
  EXPECT_EQ(Text(Port("gids/1023")), "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(Text(Port("gid_attrs/types/1")), "RoCE v2\n");
  EXPECT_EQ(Look(a_client_, Port("gid_attrs/types/2")).head.read_error, uint32_t{EINVAL});
  EXPECT_EQ(Look(a_client_, Port("gids/1024")).error, ENOENT);
}

TEST_F(SystemFilesTest, DeviceNodesAreCharacterDevicesWithTheNumbersOfSys) {
  const Seen uverbs = Look(a_client_, "/dev/infiniband/uverbs0");
  EXPECT_EQ(uverbs.head.kind, static_cast<uint32_t>(FileKind::kCharacterDevice));
  EXPECT_EQ(uverbs.head.mode, 0666u);
  EXPECT_EQ(std::to_string(uverbs.head.major) + ":" + std::to_string(uverbs.head.minor) + "\n",
            Text("/sys/devices/virtual/infiniband_verbs/uverbs0/dev"));
  EXPECT_EQ(Text("/sys/devices/virtual/infiniband_verbs/uverbs0/ibdev"), "rxe0\n");
  EXPECT_EQ(Text("/sys/devices/virtual/misc/rdma_cm/abi_version"), "4\n");
  EXPECT_EQ(Look(a_client_, "/dev/infiniband").Names(),
            (std::vector<std::string>{"issm0", "rdma_cm", "umad0", "uverbs0"}));
}

TEST_F(SystemFilesTest, PathsAreCheckedAndEqualPathsAreOne) {
  EXPECT_EQ(Look(a_client_, "//sys/./class/").Names(), Look(a_client_, "/sys/class").Names());
  EXPECT_EQ(Look(a_client_, "/sys/devices/virtual/infiniband/rxe1").error, ENOENT);
  EXPECT_EQ(Look(a_client_, "/sys/devices/virtual/infiniband/rxe0/node_type/x").error, ENOTDIR);
  EXPECT_EQ(Look(a_client_, "/" + std::string(5000, 'x')).error, ENAMETOOLONG);
  EXPECT_EQ(Look(a_client_, std::string("/sys\0x", 6)).error, ENOENT);
  EXPECT_EQ(Look(a_client_, "").head.kind, static_cast<uint32_t>(FileKind::kDirectory));
}

TEST_F(SystemFilesTest, CountersCountWhatTheDeviceSendsAndReceives) {
  Verb a(a_client_), b(b_client_);
  Verb::Qp qp_a = a.CreateQp(IBV_QPT_RC), qp_b = b.CreateQp(IBV_QPT_RC);
  a.ConnectRc(qp_a, "127.0.0.2", qp_b.made.qpn);
  b.ConnectRc(qp_b, "127.0.0.1", qp_a.made.qpn);
  std::vector<std::byte> bytes(64);
  const uint32_t lkey_a = a.Register(bytes.data(), bytes.size(), kAllAccess).lkey;
  const uint32_t lkey_b = b.Register(bytes.data(), bytes.size(), kAllAccess).lkey;
  b.PostRecv(qp_b, 1, bytes.data(), 64, lkey_b);
  a.PostSend(qp_a, 2, IBV_WR_SEND, bytes.data(), 64, lkey_a);
  world_.Settle();
  EXPECT_EQ(Text(Port("hw_counters/sent_pkts")), "1\n");
  EXPECT_EQ(Text(Port("hw_counters/rcvd_pkts")), "1\n");  // the acknowledgement
  EXPECT_EQ(Text(Port("hw_counters/rdma_sends")), "1\n");
  EXPECT_EQ(Look(b_client_, Port("hw_counters/rdma_recvs")).rest, "1\n");
}

TEST_F(SystemFilesTest, ARemovedDeviceHasNoFiles) {
  ChangeDeviceIn in{};
  in.change = static_cast<uint32_t>(DeviceChange::kRemoveDevice);
  std::strcpy(in.device, "rxe0");
  ASSERT_EQ(a_client_.Call(CallOp::kChangeDevice, in), 0);
  EXPECT_EQ(Look(a_client_, "/sys/devices/virtual/infiniband/rxe0").error, ENOENT);
  EXPECT_EQ(Look(a_client_, "/dev/infiniband").Names(), std::vector<std::string>{"rdma_cm"});
}

TEST_F(SystemFilesTest, APortWithLinkLayerInfiniBandShowsItsLid) {
  Host& host = world_.AddHost("ib", "127.0.0.3", *BuiltInProfile("mlx5-ib"));
  Client client(world_, host, "c");
  EXPECT_EQ(Look(client, Port("lid")).rest, "0x3\n");
  EXPECT_EQ(Look(client, Port("sm_lid")).rest, "0x3\n");
  EXPECT_EQ(Look(client, Port("lid_mask_count")).rest, "0\n");
  EXPECT_EQ(Look(client, Port("link_layer")).rest, "InfiniBand\n");
  EXPECT_EQ(Look(client, Port("gid_attrs/types/0")).rest, "IB/RoCE v1\n");
  EXPECT_EQ(Look(client, Port("rate")).rest, "200 Gb/sec (4X HDR)\n");
}

TEST_F(SystemFilesTest, AnRnicHasTheFilesOfSiw) {
  Host& host = world_.AddHost("rnic", "127.0.0.3", *BuiltInProfile("siw"));
  Client client(world_, host, "c");
  const std::string port = "/sys/devices/virtual/infiniband/rxe0/ports/1";
  EXPECT_EQ(
      Look(client, port).Names(),
      (std::vector<std::string>{"cap_mask", "gid_attrs", "gids", "lid", "lid_mask_count",
                                "link_layer", "phys_state", "rate", "sm_lid", "sm_sl", "state"}));
  EXPECT_EQ(Look(client, port + "/gid_attrs/types/0").rest, "IB/RoCE v1\n");
  EXPECT_EQ(Look(client, port + "/gid_attrs/ndevs/0").head.read_error, uint32_t{EINVAL});
  EXPECT_EQ(Look(client, "/sys/devices/virtual/infiniband/rxe0/node_desc").rest,
            "Software iWARP stack\n");
  EXPECT_EQ(Look(client, "/dev/infiniband").Names(),
            (std::vector<std::string>{"rdma_cm", "uverbs0"}));
}

}  // namespace
}  // namespace rdmaemu::testing
