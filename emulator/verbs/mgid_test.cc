#include "emulator/verbs/mgid.h"

#include <gtest/gtest.h>

namespace rdmaemu {
namespace {

NetAddress At(const char* text) { return *NetAddress::Parse(text); }

TEST(Mgid, OfAnIpGroupIsIpoibs) {
  EXPECT_EQ(MgidOf(At("239.1.2.3"), 0xffff, MgidSignature::kIpoib), At("ff12:401b:ffff::f01:203"));
  EXPECT_EQ(MgidOf(At("239.1.2.3"), 0x8005, MgidSignature::kRdmaCm), At("ff12:4001:8005::f01:203"));
  EXPECT_EQ(MgidOf(At("ff02::1:ff28:9c5a"), 0xffff, MgidSignature::kIpoib),
            At("ff12:601b:ffff::1:ff28:9c5a"));  // RFC 4391, 4
}

TEST(Mgid, TravelsInAnIpv4Group) {
  EXPECT_EQ(WireGroupOf(At("ff12:401b:ffff::f01:203")), At("239.1.2.3"));
  EXPECT_EQ(WireGroupOf(At("ff12:4001:8005::f01:203")), At("239.1.2.3"));
  const NetAddress ipv6 = WireGroupOf(At("ff12:601b:ffff::1:ff28:9c5a"));
  EXPECT_EQ(ipv6.ToIpv4() >> 24, 239u);
  EXPECT_NE(ipv6, WireGroupOf(At("ff12:601b:ffff::1:ff28:9c5b")));
  for (const char* unchanged : {"239.1.2.3", "fe80::1", "10.0.0.1"}) {
    EXPECT_EQ(WireGroupOf(At(unchanged)), At(unchanged));
  }
}

TEST(Mgid, HasAMulticastLid) {
  EXPECT_EQ(MlidOf(At("ff12:401b:ffff::fff:ffff")), 0xc000);
  for (const char* text : {"ff12:401b:ffff::1", "ff12:601b:ffff::1", "ff12:a01b:ffff::1"}) {
    EXPECT_GT(MlidOf(At(text)), 0xc000) << text;
    EXPECT_LT(MlidOf(At(text)), 0xffff) << text;
  }
}

}  // namespace
}  // namespace rdmaemu
