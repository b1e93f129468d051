// Machines "a" and "b" with one device each. The test's thread is on "a".
#pragma once

#include <string>
#include <vector>

#include "tests/embedded/pair.h"

namespace rdmaemu_test {

inline constexpr char kAddressOfA[] = "10.0.0.1", kAddressOfB[] = "10.0.0.2";

inline rdmaemu::DeviceOptions DeviceAt(const char* address) {
  rdmaemu::DeviceOptions device;
  device.addresses = address;
  return device;
}

class TwoHostsTest : public rdmaemu::testing::EmbeddedTest {
 protected:
  TwoHostsTest() : EmbeddedTest(OptionsOfA()) { AddB(); }
  void AddB() { AddHost("b", {DeviceAt(kAddressOfB)}); }

  static rdmaemu::EmbeddingOptions OptionsOfA() {
    rdmaemu::EmbeddingOptions options;
    options.name = "a";
    options.devices = {DeviceAt(kAddressOfA)};
    return options;
  }
};

}  // namespace rdmaemu_test
