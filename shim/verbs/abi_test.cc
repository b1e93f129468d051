// Tests the built library. Its exported names must agree with the list that programs were linked
// with. Its texts and rates must equal the values of the real library.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <set>
#include <string>

#include "shim/testing/elf.h"

namespace {

using rdmaemu::testing::ExportedNames;
using rdmaemu::testing::InstalledLibrary;
using rdmaemu::testing::NamesIn;
using rdmaemu::testing::NamesMissing;
using rdmaemu::testing::OutputOf;

std::string g_library, g_table, g_provider;

TEST(Abi, ExportsTheNamesOfTheTableOurOwnAndNoOthers) {
  std::set<std::string> expected = NamesIn(g_table, "IBVERBS_");
  ASSERT_EQ(expected.size(), 569u);
  for (const char* own : {"call", "wait", "put_back", "close_counter", "is_forked_from", "embed",
                          "join", "host_ended", "devices_beside", "host_generation", "announce",
                          "end_announcement", "host_is_gone"}) {
    expected.insert(std::string("rdmaemu_client_") + own + "@@RDMAEMU_PRIVATE");
  }
  EXPECT_EQ(ExportedNames(g_library), expected);
}

// A program that starts on the installed rdma-core (44 to 65) also starts on this library.
TEST(Abi, ExportsEveryNameOfTheInstalledLibrary) {
  const std::string installed = InstalledLibrary("libibverbs.so.1");
  ASSERT_NE(installed, "") << "libibverbs-dev brings one";
  const std::set<std::string> names = ExportedNames(installed);
  ASSERT_GE(names.size(), 180u) << installed;
  EXPECT_EQ(NamesMissing(names, ExportedNames(g_library)), "") << "exported by " << installed;
}

// rdma-core 56 has two names more in this node than rdma-core 44.
TEST(Abi, ThePrivateNodeIsThatOfRdmaCore56) {
  const std::set<std::string> node = NamesIn(g_table, "IBVERBS_PRIVATE_34");
  EXPECT_EQ(node.size(), 73u);
  for (const char* added : {"ibv_cmd_create_cq_ex2", "ibv_wr_opcode_str"}) {
    EXPECT_EQ(node.count(std::string(added) + "@@IBVERBS_PRIVATE_34"), 1u) << added;
  }
}

TEST(Abi, CallsItselfWhatProgramsWereLinkedWithAndBringsNoCxxRuntime) {
  const std::string dynamic = OutputOf("readelf -d -W " + g_library);
  EXPECT_NE(dynamic.find("soname: [libibverbs.so.1]"), std::string::npos) << dynamic;
  EXPECT_EQ(dynamic.find("libstdc++"), std::string::npos) << dynamic;
  EXPECT_EQ(dynamic.find("libgcc_s"), std::string::npos) << dynamic;
}

TEST(Abi, VersionNodesAreChildrenOfTheOneBefore) {
  const std::string versions = OutputOf("readelf -V -W " + g_library);
  std::string parent;
  for (const char* node : {"1.0", "1.1", "1.5", "1.6", "1.7", "1.8", "1.9", "1.10", "1.11", "1.12",
                           "1.13", "1.14", "1.15", "1.16", "1.17", "1.18"}) {
    const std::string name = std::string("IBVERBS_") + node;
    const size_t at = versions.find("Name: " + name + "\n");
    ASSERT_NE(at, std::string::npos) << name;
    if (!parent.empty()) {
      EXPECT_NE(versions.find("Parent 1: " + parent, at), std::string::npos) << name;
    }
    parent = name;
  }
}

template <class F>
F* Loaded(const char* name, const char* version) {
  static void* library = dlopen(g_library.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library == nullptr ? nullptr : reinterpret_cast<F*>(dlvsym(library, name, version));
}

TEST(Strings, OpcodesOfRequestsAreThoseOfRdmaCore56) {
  auto* name = Loaded<const char*(int)>("ibv_wr_opcode_str", "IBVERBS_PRIVATE_34");
  ASSERT_NE(name, nullptr);
  EXPECT_STREQ(name(IBV_WR_RDMA_WRITE), "rdma-write");
  EXPECT_STREQ(name(IBV_WR_DRIVER1), "driver1");
  EXPECT_EQ(name(12), nullptr);
  EXPECT_STREQ(name(14), "flush");
  EXPECT_STREQ(name(15), "atomic-write");
  EXPECT_STREQ(name(16), "unknown");
}

TEST(Strings, AreThoseOfTheRealLibrary) {
  auto* status = Loaded<const char*(int)>("ibv_wc_status_str", "IBVERBS_1.1");
  auto* event = Loaded<const char*(int)>("ibv_event_type_str", "IBVERBS_1.1");
  auto* node = Loaded<const char*(int)>("ibv_node_type_str", "IBVERBS_1.1");
  auto* port = Loaded<const char*(int)>("ibv_port_state_str", "IBVERBS_1.1");
  ASSERT_TRUE(status && event && node && port);
  EXPECT_STREQ(status(IBV_WC_WR_FLUSH_ERR), "Work Request Flushed Error");
  EXPECT_STREQ(status(IBV_WC_TM_RNDV_INCOMPLETE), "TM software rendezvous");
  EXPECT_STREQ(status(IBV_WC_TM_RNDV_INCOMPLETE + 1), "unknown");
  EXPECT_STREQ(event(IBV_EVENT_QP_LAST_WQE_REACHED), "last WQE reached");
  EXPECT_STREQ(event(-1), "unknown");
  EXPECT_STREQ(node(IBV_NODE_CA), "InfiniBand channel adapter");
  EXPECT_STREQ(port(IBV_PORT_ACTIVE_DEFER), "active defer");
}

TEST(Rates, AreThoseOfTheRealLibrary) {
  auto* to_mbps = Loaded<int(ibv_rate)>("ibv_rate_to_mbps", "IBVERBS_1.1");
  auto* to_multiple = Loaded<int(ibv_rate)>("ibv_rate_to_mult", "IBVERBS_1.0");
  auto* from_multiple = Loaded<ibv_rate(int)>("mult_to_ibv_rate", "IBVERBS_1.0");
  ASSERT_TRUE(to_mbps && to_multiple && from_multiple);
  EXPECT_EQ(to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(to_multiple(IBV_RATE_100_GBPS), -1);
  EXPECT_EQ(to_multiple(IBV_RATE_28_GBPS), 11);
  EXPECT_EQ(from_multiple(11), IBV_RATE_28_GBPS);
  EXPECT_EQ(from_multiple(-1), IBV_RATE_MAX);
}

// Providers issue the kernel's commands by these functions, which ignore their arguments.
TEST(Private, EveryCommandOfAProviderAnswersEopnotsupp) {
  for (const char* node : {"IBVERBS_PRIVATE_34", "IBVERBS_PRIVATE_65"}) {
    size_t commands = 0;
    for (const std::string& versioned : NamesIn(g_table, node)) {
      const std::string name = versioned.substr(0, versioned.find('@'));
      if (name != "execute_ioctl" && name.rfind("ibv_cmd_", 0) != 0) continue;
      ++commands;
      auto* command = Loaded<int()>(name.c_str(), node);
      ASSERT_NE(command, nullptr) << name;
      errno = 0;
      EXPECT_EQ(command(), EOPNOTSUPP) << name;
      EXPECT_EQ(errno, EOPNOTSUPP) << name;
    }
    EXPECT_EQ(commands, std::string(node) == "IBVERBS_PRIVATE_34" ? 61u : 76u) << node;
  }
}

TEST(Private, EachNodeHasARegistrationOfItsRelease) {
  for (const char* release : {"34", "57", "59", "64", "65"}) {
    const std::string name = std::string("verbs_register_driver_") + release;
    const std::string node = std::string("IBVERBS_PRIVATE_") + release;
    EXPECT_NE(Loaded<void()>(name.c_str(), node.c_str()), nullptr) << node;
    EXPECT_NE(Loaded<void()>("verbs_set_ops", node.c_str()), nullptr) << node;
  }
}

// The library of this test imports the names that the providers of rdma-core 65 import.
TEST(Private, AProviderOfRdmaCore65Loads) {
  ASSERT_NE(Loaded<void()>("ibv_open_device", "IBVERBS_1.1"), nullptr);
  void* const provider = dlopen(g_provider.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(provider, nullptr) << dlerror();
  auto* const imports = static_cast<void* const*>(dlsym(provider, "provider_imports"));
  ASSERT_NE(imports, nullptr);
  size_t count = 0;
  while (imports[count] != nullptr) ++count;
  EXPECT_EQ(count, 87u);
}

// As in rdma-core, a file that is not a character device is not a command file.
TEST(Import, RefusesADescriptorThatIsNoDevice) {
  auto* import = Loaded<ibv_context*(int)>("ibv_import_device", "IBVERBS_1.10");
  ASSERT_NE(import, nullptr);
  errno = 0;
  EXPECT_EQ(import(-1), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(OldTwins, RefuseToListDevices) {
  auto* list = Loaded<void*(int*)>("ibv_get_device_list", "IBVERBS_1.0");
  ASSERT_NE(list, nullptr);
  errno = 0;
  EXPECT_EQ(list(nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 4) return 2;
  g_library = argv[1];
  g_table = argv[2];
  g_provider = argv[3];
  return RUN_ALL_TESTS();
}
