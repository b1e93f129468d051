// Verbs objects of this process that free themselves, and a test fixture with an open device. For
// tests of one side's calls without a peer.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <memory>

#include "tests/contract/support/side.h"

namespace rdma_contract {

template <auto Destroy>
struct Deleter {
  template <typename Object>
  void operator()(Object* object) const {
    Destroy(object);
  }
};
using Context = std::unique_ptr<ibv_context, Deleter<ibv_close_device>>;
using Pd = std::unique_ptr<ibv_pd, Deleter<ibv_dealloc_pd>>;
using Mr = std::unique_ptr<ibv_mr, Deleter<ibv_dereg_mr>>;
using Mw = std::unique_ptr<ibv_mw, Deleter<ibv_dealloc_mw>>;
using Channel = std::unique_ptr<ibv_comp_channel, Deleter<ibv_destroy_comp_channel>>;
using Cq = std::unique_ptr<ibv_cq, Deleter<ibv_destroy_cq>>;
using Srq = std::unique_ptr<ibv_srq, Deleter<ibv_destroy_srq>>;
using Qp = std::unique_ptr<ibv_qp, Deleter<ibv_destroy_qp>>;
using Ah = std::unique_ptr<ibv_ah, Deleter<ibv_destroy_ah>>;

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    context.reset(OpenTestDevice());
    ASSERT_TRUE(context) << "no device " << DeviceName();
    pd.reset(ibv_alloc_pd(context.get()));
    ASSERT_TRUE(pd);
  }

  Cq MakeCq(int cqe = 16, ibv_comp_channel* channel = nullptr, void* user = nullptr) {
    return Cq(ibv_create_cq(context.get(), cqe, user, channel, 0));
  }
  Qp MakeQp(ibv_qp_type type, ibv_cq* cq, ibv_srq* srq = nullptr,
            ibv_qp_cap cap = {8, 8, 1, 1, 0}) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.srq = srq;
    init.cap = cap;
    init.qp_type = type;
    return Qp(ibv_create_qp(pd.get(), &init));
  }
  ibv_ah_attr PathToMyself() {
    ibv_ah_attr path{};
    path.is_global = 1;
    path.port_num = 1;
    path.grh.dgid = GidOf(LocalAddress());
    path.grh.sgid_index = static_cast<uint8_t>(GidIndexOf(context.get(), LocalAddress()));
    path.grh.hop_limit = 64;
    return path;
  }

  Context context;
  Pd pd;
};

}  // namespace rdma_contract
