// Connections (rdma_listen(3), rdma_connect(3), rdma_accept(3), rdma_reject(3), rdma_disconnect(3),
// rdma_establish(3), rdma_notify(3)). Each function makes librdmacm's transitions of the id's QP
// and sends the command to the host.
#include <algorithm>
#include <cstring>

#include "emulator/base/nothing_queued.h"
#include "shim/rdmacm/announcement.h"
#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm {
namespace {

// IBTA's reject reason for unsupported vendor options (ECE) of the peer.
constexpr uint8_t kRejectVendorOption = 35;
constexpr uint8_t kRetryCountByDefault = 7;

// The device's limits can refuse responder resources only in the TCP port space.
bool DepthsFit(const Id& id, const rdma_conn_param& param) {
  if (id.ps != RDMA_PS_TCP) return true;
  return (param.responder_resources == RDMA_MAX_RESP_RES ||
          param.responder_resources <= id.device->max_responder_resources) &&
         (param.initiator_depth == RDMA_MAX_INIT_DEPTH ||
          param.initiator_depth <= id.device->max_initiator_depth);
}

// Fails with EINVAL if the private data of the user and of the address information together exceed
// one length byte.
int FillParameters(const Id& id, const rdma_conn_param* param, rdma_ucm_conn_param& out) {
  out.valid = 1;
  out.responder_resources = id.responder_resources;
  out.initiator_depth = id.initiator_depth;
  out.retry_count = kRetryCountByDefault;
  out.rnr_retry_count = kRetryCountByDefault;
  if (id.qp != nullptr) {
    out.qp_num = id.qp->qp_num;
    out.srq = id.qp->srq != nullptr || id.qp->qp_type == IBV_QPT_XRC_RECV ? 1 : 0;
  } else if (param != nullptr) {
    out.qp_num = param->qp_num;
    out.srq = param->srq;
  }
  size_t length = id.connect_length;
  std::memcpy(out.private_data, id.connect_data, length);
  if (param != nullptr) {
    out.flow_control = param->flow_control;
    out.retry_count = param->retry_count;
    out.rnr_retry_count = param->rnr_retry_count;
    if (param->private_data != nullptr && param->private_data_len != 0) {
      if (length + param->private_data_len > UINT8_MAX) return EINVAL;
      std::memcpy(out.private_data + length, param->private_data, param->private_data_len);
      length += param->private_data_len;
    }
  }
  out.private_data_len = static_cast<uint8_t>(length);
  return 0;
}

// Returns the options of the QP's device. A device without ECE has none.
rdma_ucm_ece LocalEce(const Id& id) {
  ibv_ece ece = id.local_ece;
  if (id.qp != nullptr && ibv_query_ece(id.qp, &ece) != 0) ece = {};
  return {ece.vendor_id, ece.options};
}

// The channel on which the host reports the result of a blocking connect. Only an RNIC has one,
// because its TCP connects within rdma_connect(3).
class ConnectOutcome {
 public:
  explicit ConnectOutcome(const Id& id) {
    if (id.verbs->device->transport_type == IBV_TRANSPORT_IWARP)
      channel_ = NewChannel(&ChannelOf(id));
  }
  ~ConnectOutcome() { rdma_destroy_event_channel(channel_); }
  ConnectOutcome(const ConnectOutcome&) = delete;
  ConnectOutcome& operator=(const ConnectOutcome&) = delete;

  uint32_t handle() const { return channel_ == nullptr ? 0 : channel_->handle; }
  // Returns 0 or a positive errno. A signal does not end the wait, because TCP continues to
  // connect.
  int Await() const {
    rdma_ucm_event_resp outcome = {};
    for (;;) {
      const int error = rdmaemu_client_wait(channel_->fd);
      if (error == EINTR) continue;
      if (error != 0) return error;
      const int taken = Call(*channel_, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{}, &outcome);
      if (taken == kNothingQueued) continue;
      if (taken == EINTR) {
        rdmaemu_client_put_back(channel_->fd);
        continue;
      }
      return taken != 0 ? taken : -static_cast<int>(outcome.status);
    }
  }

 private:
  Channel* channel_ = nullptr;
};

int MoveQpForAccept(Id& id) {
  if (id.qp == nullptr || IsDatagram(id)) return 0;
  if (id.remote_ece.vendor_id != 0) {
    const int error = ibv_set_ece(id.qp, &id.remote_ece);
    if (error != 0 && error != EOPNOTSUPP) return error;
  }
  if (const int error = ModifyQpToReadyToReceive(id, id.responder_resources); error != 0) {
    return error;
  }
  return ModifyQpToReadyToSend(id, id.initiator_depth);
}

int Reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len, uint8_t reason) {
  if (id == nullptr) return Fail(EINVAL);
  rdma_ucm_reject command = {};
  command.id = Private(id).handle;
  command.reason = reason;
  if (private_data != nullptr && private_data_len != 0) {
    std::memcpy(command.private_data, private_data, private_data_len);
    command.private_data_len = private_data_len;
  }
  return ReturnErrno(Call(ChannelOf(Private(id)), RDMA_USER_CM_CMD_REJECT, command));
}

}  // namespace
}  // namespace rdmaemu::rdmacm

extern "C" {

int rdma_listen(rdma_cm_id* id, int backlog) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  rdma_ucm_listen command = {};
  command.id = ours.handle;
  command.backlog = static_cast<uint32_t>(backlog);
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_LISTEN, command); error != 0) {
    return Fail(error);
  }
  // An id that was unbound has a port after the listen.
  return ReturnErrno(Uninterrupted([&] { return QueryAddressesAndGids(ours); }));
}

int rdma_connect(rdma_cm_id* id, rdma_conn_param* conn_param) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  if (IsForked(ChannelOf(ours))) return Fail(EACCES);
  if (ours.device == nullptr) return Fail(EINVAL);
  // This check precedes the lookup of the id, also for an id whose device was removed (measured).
  if (ours.ps == RDMA_PS_TCP && ours.qp == nullptr && conn_param == nullptr) return Fail(EINVAL);
  if (conn_param != nullptr && !DepthsFit(ours, *conn_param)) return Fail(EINVAL);
  ours.initiator_depth = conn_param != nullptr && conn_param->initiator_depth != RDMA_MAX_INIT_DEPTH
                             ? conn_param->initiator_depth
                             : ours.device->max_initiator_depth;
  ours.responder_resources =
      conn_param != nullptr && conn_param->responder_resources != RDMA_MAX_RESP_RES
          ? conn_param->responder_resources
          : ours.device->max_responder_resources;
  rdma_ucm_connect command = {};
  command.id = ours.handle;
  command.ece = LocalEce(ours);
  if (const int error = FillParameters(ours, conn_param, command.conn_param); error != 0) {
    return Fail(error);
  }
  const ConnectOutcome outcome(ours);
  command.reserved = outcome.handle();
  int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_CONNECT, command);
  if (error == EINPROGRESS) error = outcome.Await();
  return error != 0 ? Fail(error) : Complete(ours);
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* conn_param) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  if (IsForked(ChannelOf(ours))) return Fail(EACCES);
  if (ours.device == nullptr || (ours.qp == nullptr && conn_param == nullptr)) return Fail(EINVAL);
  if (conn_param != nullptr && !DepthsFit(ours, *conn_param)) return Fail(EINVAL);
  // If the caller gives no values, both depths are those of the request, limited by the device.
  // rdma_get_cm_event has stored the request's depths.
  ours.initiator_depth = conn_param != nullptr && conn_param->initiator_depth != RDMA_MAX_INIT_DEPTH
                             ? conn_param->initiator_depth
                             : std::min(ours.initiator_depth, ours.device->max_initiator_depth);
  ours.responder_resources =
      conn_param != nullptr && conn_param->responder_resources != RDMA_MAX_RESP_RES
          ? conn_param->responder_resources
          : std::min(ours.responder_resources, ours.device->max_responder_resources);
  rdma_ucm_accept command = {};
  command.uid = reinterpret_cast<uintptr_t>(&ours);
  command.id = ours.handle;
  command.ece = LocalEce(ours);
  const int refused = FillParameters(ours, conn_param, command.conn_param);
  Announcement announcement(Announcement::First::kInitQpAttr);
  if (id->qp != nullptr && !IsDatagram(ours)) {
    announcement.AddMovesToReady(ours, ours.responder_resources, ours.initiator_depth);
    if (refused == 0) announcement.AddCommand(ours, RDMA_USER_CM_CMD_ACCEPT, command);
    announcement.Begin();
  }
  if (const int error = MoveQpForAccept(ours); error != 0) return Fail(error);
  if (refused != 0) return Fail(refused);
  const auto accept = [&] { return Call(ChannelOf(ours), RDMA_USER_CM_CMD_ACCEPT, command); };
  // The QP has changed its state, so the program cannot repeat the call.
  if (const int error = ours.qp != nullptr ? Uninterrupted(accept) : accept(); error != 0) {
    ModifyQpToError(ours);
    return Fail(error);
  }
  return IsDatagram(ours) ? 0 : Complete(ours);
}

int rdma_establish(rdma_cm_id* id) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || id->qp != nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  rdma_ucm_accept command = {};  // a command without parameters sends the RTU
  command.uid = reinterpret_cast<uintptr_t>(&ours);
  command.id = ours.handle;
  return ReturnErrno(Call(ChannelOf(ours), RDMA_USER_CM_CMD_ACCEPT, command));
}

int rdma_reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return rdmaemu::rdmacm::Reject(id, private_data, private_data_len, 0);
}

int rdma_reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return rdmaemu::rdmacm::Reject(id, private_data, private_data_len,
                                 rdmaemu::rdmacm::kRejectVendorOption);
}

int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  rdma_ucm_notify command = {};
  command.id = Private(id).handle;
  command.event = static_cast<uint32_t>(event);
  return ReturnErrno(Call(ChannelOf(Private(id)), RDMA_USER_CM_CMD_NOTIFY, command));
}

int rdma_disconnect(rdma_cm_id* id) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr) return Fail(EINVAL);
  Id& ours = Private(id);
  if (IsForked(ChannelOf(ours))) return Fail(EACCES);
  if (id->verbs == nullptr) return Fail(EINVAL);
  rdma_ucm_disconnect command = {};
  command.id = ours.handle;
  Announcement announcement(Announcement::First::kModifyQp);
  if (id->qp != nullptr) {
    announcement.AddCommand(ours, RDMA_USER_CM_CMD_DISCONNECT, command);
    announcement.Begin();
  }
  if (const int error = ModifyQpToError(ours); error != 0) return Fail(error);
  if (const int error = Call(ChannelOf(ours), RDMA_USER_CM_CMD_DISCONNECT, command); error != 0) {
    return Fail(error);
  }
  return Complete(ours);
}

}  // extern "C"
