// The values that move a QP to RTS when the device's connection manager (iw_cm) connects it. The
// program's ibv_modify_qp supplies these values on other devices.
#pragma once

#include <cstdint>

#include "emulator/base/net_address.h"

namespace rdmaemu {

struct QpConnection {
  NetAddress local, remote;
  uint8_t traffic_class = 0;
  uint32_t remote_qpn = 0;
  uint32_t rq_psn = 0, sq_psn = 0;
  uint8_t initiator_depth = 0, responder_resources = 0;  // READs in flight
};

}  // namespace rdmaemu
