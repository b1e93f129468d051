#include "emulator/base/net_prefix.h"

#include <gtest/gtest.h>

namespace rdmaemu {
namespace {

bool Holds(const char* net, const char* address) {
  return NetPrefix::Parse(net)->Contains(*NetAddress::Parse(address));
}

TEST(NetPrefix, HoldsTheAddressesThatBeginWithItsBits) {
  EXPECT_TRUE(Holds("10.99.0.0/16", "10.99.255.1"));
  EXPECT_FALSE(Holds("10.99.0.0/16", "10.98.255.1"));
  EXPECT_TRUE(Holds("10.99.4.0/23", "10.99.5.1"));
  EXPECT_FALSE(Holds("10.99.4.0/23", "10.99.6.1"));
  EXPECT_TRUE(Holds("10.99.0.7", "10.99.0.7"));
  EXPECT_FALSE(Holds("10.99.0.7", "10.99.0.8"));
  EXPECT_TRUE(Holds("0.0.0.0/0", "10.99.0.8"));
  EXPECT_FALSE(Holds("0.0.0.0/0", "fd99::1"));
  EXPECT_TRUE(Holds("fd99::/64", "fd99::1:2"));
  EXPECT_FALSE(Holds("fd99::/64", "fd99:0:0:1::1"));
}

TEST(NetPrefix, IsAnAddressAndANumberOfItsBits) {
  for (const char* text : {"", "/8", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/8x",
                           "fd99::/129", "ten/8", "10.0.0.0/256"}) {
    EXPECT_FALSE(NetPrefix::Parse(text)) << text;
  }
}

}  // namespace
}  // namespace rdmaemu
