#include "tools/cli/system_devices.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

// A machine's /sys and /dev, as far as RDMA devices need them.
class SystemDevices : public ::testing::Test {
 protected:
  SystemDevices() {
    std::string name = ::testing::TempDir() + "system_devices_XXXXXX";
    root_ = mkdtemp(name.data());
    roots_ = {root_ / "sys", root_ / "dev"};
  }
  ~SystemDevices() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text = "") {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void AddDevice(const std::string& name, const std::string& state, const std::string& node) {
    Write("sys/class/infiniband/" + name + "/ports/1/state", state);
    if (node.empty()) return;
    Write("sys/class/infiniband_verbs/" + node + "/ibdev", name);
    Write("dev/infiniband/" + node);
  }
  std::vector<std::string> Warnings(const std::string& wanted = "") {
    const auto warnings = CheckSystemDevices(roots_, wanted);
    EXPECT_TRUE(warnings) << warnings.error();
    return warnings.value_or(std::vector<std::string>{});
  }
  std::string Error(const std::string& wanted = "") {
    const auto warnings = CheckSystemDevices(roots_, wanted);
    EXPECT_FALSE(warnings);
    return warnings ? "" : warnings.error();
  }

  fs::path root_;
  SystemRoots roots_;
};

TEST_F(SystemDevices, AMachineWithoutOneIsToldWhereWasLookedAndHowSoftRoceIsSetUp) {
  EXPECT_EQ(Error(), "this machine has no RDMA device (looked for one in " + roots_.sys +
                         "/class/infiniband); soft-RoCE is set up by root with: modprobe rdma_rxe "
                         "&& rdma link add rxe0 type rxe netdev eth0; or run the program in a "
                         "virtual machine that has it: tools/softroce run -- CMD");
}

TEST_F(SystemDevices, AnActiveOneThatCanBeOpenedIsAllThatIsNeeded) {
  AddDevice("rxe0", "4: ACTIVE", "uverbs0");
  Write("dev/infiniband/rdma_cm");
  EXPECT_TRUE(Warnings().empty());
  EXPECT_TRUE(Warnings("rxe0").empty());
  const auto devices = FindSystemDevices(roots_);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "rxe0");
  EXPECT_EQ(devices[0].verbs_node, "uverbs0");
  EXPECT_TRUE(devices[0].accessible && devices[0].active);
}

TEST_F(SystemDevices, AnUnknownNameIsToldWhichThereAre) {
  AddDevice("mlx5_0", "4: ACTIVE", "uverbs1");
  AddDevice("rxe0", "1: DOWN", "uverbs0");
  EXPECT_EQ(Error("rxe1"), "this machine has no RDMA device rxe1; in " + roots_.sys +
                               "/class/infiniband there is mlx5_0, rxe0 (no active port)");
}

TEST_F(SystemDevices, WhatAProgramCannotOpenIsNamedWithTheRemedy) {
  AddDevice("rxe0", "4: ACTIVE", "");
  EXPECT_EQ(Error(), "device rxe0 has no entry in " + roots_.sys +
                         "/class/infiniband_verbs; as root: modprobe ib_uverbs");
  AddDevice("rxe0", "4: ACTIVE", "uverbs0");
  fs::remove(root_ / "dev/infiniband/uverbs0");
  EXPECT_EQ(Error(), "cannot open " + roots_.dev +
                         "/infiniband/uverbs0 of device rxe0: it does not exist; if this is a "
                         "container, pass the device in (docker run --device=" +
                         roots_.dev + "/infiniband/uverbs0)");
}

TEST_F(SystemDevices, WhatSomeProgramsNeedIsAWarning) {
  AddDevice("rxe0", "1: DOWN", "uverbs0");
  EXPECT_EQ(Warnings(),
            (std::vector<std::string>{"no port is active of: rxe0; is its link up?",
                                      "cannot open " + roots_.dev +
                                          "/infiniband/rdma_cm, which librdmacm needs; as root: "
                                          "modprobe rdma_ucm"}));
}

TEST_F(SystemDevices, ADeviceThatCannotBeOpenedIsAWarningWhereAnotherCan) {
  AddDevice("rxe0", "4: ACTIVE", "uverbs0");
  AddDevice("rxe1", "4: ACTIVE", "");
  Write("dev/infiniband/rdma_cm");
  EXPECT_EQ(Warnings().size(), 1u);
  EXPECT_TRUE(Warnings("rxe0").empty());
  EXPECT_NE(Error("rxe1").find("ib_uverbs"), std::string::npos);
}

}  // namespace
}  // namespace rdmaemu::cli
