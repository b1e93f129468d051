// Address handles: accepted attributes, and handles that are created from a received datagram.
#include <cerrno>

#include "tests/contract/support/objects.h"

namespace rdma_contract {
namespace {

class AhTest : public DeviceTest {
 protected:
  int Create(const ibv_ah_attr& path) {
    ibv_ah_attr copy = path;
    errno = 0;
    const Ah ah(ibv_create_ah(pd.get(), &copy));
    return ah ? 0 : errno;
  }
};

TEST_F(AhTest, ReachesAnAddress) { EXPECT_EQ(Create(PathToMyself()), 0); }

TEST_F(AhTest, NeedsAGlobalRoute) {
  ibv_ah_attr path = PathToMyself();
  path.is_global = 0;
  EXPECT_EQ(Create(path), EINVAL);
}

TEST_F(AhTest, RefusesTheZeroGid) {
  ibv_ah_attr path = PathToMyself();
  path.grh.dgid = {};
  EXPECT_EQ(Create(path), EINVAL);
}

TEST_F(AhTest, RefusesASourceIndexWithoutAGid) {
  ibv_ah_attr path = PathToMyself();
  path.grh.sgid_index = 99;
  EXPECT_EQ(Create(path), ENODATA);
}

TEST_F(AhTest, RefusesAPortThatIsNot) {
  ibv_ah_attr path = PathToMyself();
  path.port_num = 3;
  EXPECT_EQ(Create(path), EINVAL);
}

}  // namespace
}  // namespace rdma_contract
