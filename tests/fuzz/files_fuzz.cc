// Text that a host reads: device profiles (and a host with the described device), the records of
// other hosts, lines of /proc, fault rules, and command line arguments.
#include <stdexcept>
#include <string>
#include <string_view>

#include "emulator/fault/programs.h"
#include "emulator/host/faults/host_faults.h"
#include "emulator/runtime/host_setup.h"
#include "emulator/runtime/memory_maps.h"
#include "emulator/runtime/registry.h"
#include "tests/fuzz/scene.h"

namespace rdmaemu::fuzz {
namespace {

// A program that uses the profile's limits in full.
void UseDevice(testing::World& world, Host& host) {
  testing::Client client(world, host);
  testing::Verb verb(client, 1);
  QueryDeviceOut device{};
  REQUIRE(client.Call(CallOp::kQueryDevice, HandleIn{verb.context, 0}, device) == 0);
  QueryPortOut port{};
  client.Call(CallOp::kQueryPort, QueryPortIn{verb.context, 1}, port);
  QueryGidsOut gids{};
  client.Call(CallOp::kQueryGids, QueryGidsIn{verb.context, 1, 0, 4}, gids);
  const ibv_device_attr& limits = device.attr.orig_attr;
  CqOut cq{};
  client.Call(CallOp::kCreateCq,
              CreateCqIn{verb.context, 0, static_cast<uint32_t>(limits.max_cqe), 0, 1}, cq);
  CreateQpIn in{};
  in.pd = verb.pd;
  in.send_cq = in.recv_cq = verb.cq.handle;
  in.type = IBV_QPT_RC;
  const auto most_wr = static_cast<uint32_t>(limits.max_qp_wr);
  const auto most_sge = static_cast<uint32_t>(limits.max_sge);
  in.cap = {most_wr, most_wr, most_sge, most_sge, 4096};
  CreateQpOut qp{};
  client.Call(CallOp::kCreateQp, in, qp);
  client.Kill();
}

void ReadProfile(std::string_view text) {
  auto profile = ParseProfile(text, "profile.toml");
  if (!profile) {
    REQUIRE(!profile.error().empty());
    return;
  }
  REQUIRE(!profile->name.empty());
  testing::World world;
  try {
    UseDevice(world, world.AddHost("fuzz", kOwnAddress, *profile));
  } catch (const std::runtime_error&) {
    // The device has no room for a program's first objects.
  }
}

void ReadRecord(std::string_view text) {
  const auto record = runtime::ParseRecord("name", text);
  if (record) REQUIRE(record->options.name == "name");
}

// Reads a scenario file, and the same bytes from a client that changes the rules of a running host.
void ReadRules(const std::string& text) {
  const auto rules = fault::ParseScenario(text, "scenario.toml", FaultVocabulary());
  if (!rules) REQUIRE(!rules.error().empty());
  const auto programs = fault::ParsePrograms(text, "scenario.toml");
  if (rules) REQUIRE(programs.has_value());
  testing::FakeTrace trace;
  HostFaults faults(RandomSeed(1), "fuzz", trace);
  REQUIRE(!faults.AddText(text).empty());
  REQUIRE(!faults.RemoveText(text).empty());
  REQUIRE(!faults.ListText().empty());
}

void ReadMaps(Input& in) {
  const uint64_t address = in.U64(), length = in.U64();
  runtime::CoverageCheck check({address, length}, in.OneIn(2));
  const auto rest = in.Rest();
  std::string_view text(reinterpret_cast<const char*>(rest.data()), rest.size());
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    // A separate string, so that a sanitizer detects a read beyond the line's end.
    if (!check.AddLine(std::string(text.substr(0, end)))) break;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  (void)check.covered();
}

void ReadOptions(const std::string& text) {
  (void)runtime::CheckHostName(text);
  if (const auto device = runtime::ParseDeviceOption(text)) REQUIRE(!device->name.empty());
  const auto address = NetAddress::Parse(text);
  if (!address) return;
  const auto again = NetAddress::Parse(address->ToString());
  REQUIRE(again.has_value() && *again == *address);
}

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmaemu::fuzz;
  Input in(data, size);
  const char kind = static_cast<char>(in.U8());
  if (kind == 'm') {
    ReadMaps(in);
    return 0;
  }
  const auto rest = in.Rest();
  const std::string text(reinterpret_cast<const char*>(rest.data()), rest.size());
  switch (kind) {
    case 'r':
      ReadRecord(text);
      break;
    case 's':
      ReadRules(text);
      break;
    case 'o':
      ReadOptions(text);
      break;
    default:
      ReadProfile(text);
      break;
  }
  return 0;
}
