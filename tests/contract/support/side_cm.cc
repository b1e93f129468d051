#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "tests/contract/support/side.h"
#include "tests/contract/support/state.h"

namespace rdma_contract {
namespace {

// rdma_* calls return -1 and set errno.
int Errno(int result) { return result == 0 ? 0 : errno; }

rdma_cm_id*& IdAt(State& state, int id) { return state.ids[static_cast<size_t>(id)]; }

int CreateIdStep(State& state, const rdma_port_space& space) {
  if (state.channel == nullptr) state.channel = rdma_create_event_channel();
  if (state.channel == nullptr) return -errno;
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(state.channel, &id, nullptr, space) != 0) return -errno;
  state.ids.push_back(id);
  return static_cast<int>(state.ids.size()) - 1;
}
int CreateSyncIdStep(State& state, const rdma_port_space& space) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(nullptr, &id, nullptr, space) != 0) return -errno;
  state.ids.push_back(id);
  return static_cast<int>(state.ids.size()) - 1;
}

struct AddressOrder {
  int id;
  sockaddr_in destination, source;
  bool has_source;
  int timeout_ms;
};
int BindStep(State& state, const AddressOrder& order) {
  sockaddr_in address = order.destination;
  return Errno(rdma_bind_addr(IdAt(state, order.id), reinterpret_cast<sockaddr*>(&address)));
}
int ResolveAddrStep(State& state, const AddressOrder& order) {
  sockaddr_in source = order.source;
  sockaddr_in destination = order.destination;
  return Errno(rdma_resolve_addr(IdAt(state, order.id),
                                 order.has_source ? reinterpret_cast<sockaddr*>(&source) : nullptr,
                                 reinterpret_cast<sockaddr*>(&destination), order.timeout_ms));
}

struct NumberOrder {
  int id;
  int number;
};
int ListenStep(State& state, const NumberOrder& order) {
  return Errno(rdma_listen(IdAt(state, order.id), order.number));
}
int PortStep(State& state, const int& id) { return ntohs(rdma_get_src_port(IdAt(state, id))); }
int ResolveRouteStep(State& state, const NumberOrder& order) {
  return Errno(rdma_resolve_route(IdAt(state, order.id), order.number));
}

struct OptionOrder {
  int id, level, option, value, bytes;
};
int SetOptionStep(State& state, const OptionOrder& order) {
  int value[2] = {order.value, 0};
  return Errno(rdma_set_option(IdAt(state, order.id), order.level, order.option, value,
                               static_cast<size_t>(order.bytes)));
}

struct CmQpOrder {
  int id;
  QpSpec spec;
};
int CreateCmQpStep(State& state, const CmQpOrder& order) {
  rdma_cm_id* id = IdAt(state, order.id);
  // The library crashes on an id without a device. A test for this case makes the call itself.
  if (id->verbs == nullptr) return -EINVAL;
  QueuePair pair;
  pair.owned_by_id = true;
  pair.send_cq = ibv_create_cq(id->verbs, order.spec.cqe, nullptr, nullptr, 0);
  pair.receive_cq = ibv_create_cq(id->verbs, order.spec.cqe, nullptr, nullptr, 0);
  if (pair.send_cq == nullptr || pair.receive_cq == nullptr) return -errno;
  ibv_qp_init_attr init{};
  init.send_cq = pair.send_cq;
  init.recv_cq = pair.receive_cq;
  init.qp_type = id->qp_type;
  init.sq_sig_all = order.spec.signal_all;
  init.cap = {order.spec.depth, order.spec.depth, order.spec.pieces, order.spec.pieces,
              order.spec.inline_bytes};
  // Uses a PD of the side's own, so that its memory regions work with all its QPs.
  if (state.pd == nullptr) state.pd = ibv_alloc_pd(id->verbs);
  if (rdma_create_qp(id, state.pd, &init) != 0) {
    const int error = errno;
    ibv_destroy_cq(pair.send_cq);
    ibv_destroy_cq(pair.receive_cq);
    return -error;
  }
  pair.qp = id->qp;
  state.qps.push_back(pair);
  return static_cast<int>(state.qps.size()) - 1;
}
struct DestroyCmQpOrder {
  int id, qp;
};
int DestroyCmQpStep(State& state, const DestroyCmQpOrder& order) {
  rdma_destroy_qp(IdAt(state, order.id));
  state.qps[static_cast<size_t>(order.qp)].qp = nullptr;
  return 0;
}

struct ConnectOrder {
  int id;
  ConnectSpec spec;
};
rdma_conn_param ParametersOf(const ConnectSpec& spec) {
  rdma_conn_param parameters{};
  parameters.private_data = spec.private_data_len > 0 ? spec.private_data : nullptr;
  parameters.private_data_len = static_cast<uint8_t>(spec.private_data_len);
  parameters.responder_resources = spec.responder_resources;
  parameters.initiator_depth = spec.initiator_depth;
  parameters.flow_control = spec.flow_control;
  parameters.retry_count = spec.retry_count;
  parameters.rnr_retry_count = spec.rnr_retry_count;
  parameters.qp_num = spec.qp_num;
  return parameters;
}
int ConnectStep(State& state, const ConnectOrder& order) {
  rdma_conn_param parameters = ParametersOf(order.spec);
  return Errno(
      rdma_connect(IdAt(state, order.id), order.spec.null_parameters ? nullptr : &parameters));
}
int AcceptStep(State& state, const ConnectOrder& order) {
  rdma_conn_param parameters = ParametersOf(order.spec);
  return Errno(
      rdma_accept(IdAt(state, order.id), order.spec.null_parameters ? nullptr : &parameters));
}
int RejectStep(State& state, const ConnectOrder& order) {
  return Errno(rdma_reject(IdAt(state, order.id), order.spec.private_data,
                           static_cast<uint8_t>(order.spec.private_data_len)));
}
int EstablishStep(State& state, const int& id) { return Errno(rdma_establish(IdAt(state, id))); }
int DisconnectStep(State& state, const int& id) { return Errno(rdma_disconnect(IdAt(state, id))); }
int DestroyIdStep(State& state, const int& id) {
  rdma_cm_id*& slot = IdAt(state, id);
  if (slot->qp != nullptr) {
    for (QueuePair& pair : state.qps)
      if (pair.qp == slot->qp) pair.qp = nullptr;
    rdma_destroy_qp(slot);
  }
  const int result = Errno(rdma_destroy_id(slot));
  if (result == 0) slot = nullptr;
  return result;
}
int MigrateStep(State& state, const NumberOrder& order) {
  rdma_event_channel* to = state.channel;
  if (order.number != 0) to = rdma_create_event_channel();
  if (to == nullptr) return errno;
  const int result = Errno(rdma_migrate_id(IdAt(state, order.id), to));
  if (result == 0 && order.number != 0) {
    // The side now reads events from the new channel. The old channel remains for other ids.
    state.channel = to;
  }
  return result;
}

int IndexOf(const State& state, const rdma_cm_id* id) {
  const auto found = std::find(state.ids.begin(), state.ids.end(), id);
  return id == nullptr || found == state.ids.end() ? -1
                                                   : static_cast<int>(found - state.ids.begin());
}

EventCopy CopyOf(State& state, const rdma_cm_event& event) {
  EventCopy copy;
  copy.found = true;
  copy.event = event.event;
  copy.status = event.status;
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) state.ids.push_back(event.id);
  copy.id = IndexOf(state, event.id);
  copy.listen_id = IndexOf(state, event.listen_id);
  const bool datagram = event.id->ps == RDMA_PS_UDP || event.id->ps == RDMA_PS_IPOIB;
  const void* data = datagram ? event.param.ud.private_data : event.param.conn.private_data;
  copy.private_data_len =
      datagram ? event.param.ud.private_data_len : event.param.conn.private_data_len;
  copy.has_private_data = data != nullptr;
  if (data != nullptr) memcpy(copy.private_data, data, copy.private_data_len);
  if (datagram)
    copy.ud = event.param.ud;
  else
    copy.conn = event.param.conn;
  return copy;
}

EventCopy NextEventStep(State& state, const int& limit_ms) {
  EventCopy copy;
  pollfd waiting{state.channel->fd, POLLIN, 0};
  if (poll(&waiting, 1, limit_ms) <= 0) return copy;
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(state.channel, &event) != 0) {
    copy.error = errno;
    return copy;
  }
  copy = CopyOf(state, *event);
  rdma_ack_cm_event(event);
  return copy;
}

IdFields FieldsStep(State& state, const int& index) {
  rdma_cm_id* id = IdAt(state, index);
  IdFields fields{};
  fields.has_verbs = id->verbs != nullptr;
  fields.has_qp = id->qp != nullptr;
  fields.has_pd = id->pd != nullptr;
  fields.has_channel = id->channel != nullptr;
  fields.port_num = id->port_num;
  fields.num_paths = id->route.num_paths;
  fields.port_space = id->ps;
  fields.qp_type = id->qp_type;
  fields.event = id->event ? static_cast<int>(id->event->event) : -1;
  memcpy(&fields.source, rdma_get_local_addr(id), sizeof fields.source);
  memcpy(&fields.destination, rdma_get_peer_addr(id), sizeof fields.destination);
  fields.source_gid = id->route.addr.addr.ibaddr.sgid;
  fields.destination_gid = id->route.addr.addr.ibaddr.dgid;
  fields.qp_num = id->qp ? id->qp->qp_num : 0;
  return fields;
}

}  // namespace

int Side::CreateId(rdma_port_space space) { return worker_->Call(&CreateIdStep, space); }
int Side::CreateSyncId(rdma_port_space space) { return worker_->Call(&CreateSyncIdStep, space); }
int Side::Bind(int id, const std::string& address, uint16_t port) {
  return worker_->Call(&BindStep, AddressOrder{id, SocketAddress(address, port), {}, false, 0});
}
int Side::Listen(int id, int backlog) {
  return worker_->Call(&ListenStep, NumberOrder{id, backlog});
}
int Side::PortOf(int id) { return worker_->Call(&PortStep, id); }
int Side::SetReuse(int id, int value) {
  return SetOption(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, value, sizeof(int));
}
int Side::SetOption(int id, int level, int option, int value, int bytes) {
  return worker_->Call(&SetOptionStep, OptionOrder{id, level, option, value, bytes});
}
int Side::ResolveAddr(int id, const std::string& destination, uint16_t port,
                      const std::string& source, int timeout_ms) {
  return worker_->Call(&ResolveAddrStep,
                       AddressOrder{id, SocketAddress(destination, port), SocketAddress(source, 0),
                                    !source.empty(), timeout_ms});
}
int Side::ResolveRoute(int id, int timeout_ms) {
  return worker_->Call(&ResolveRouteStep, NumberOrder{id, timeout_ms});
}
int Side::CreateCmQp(int id, const QpSpec& spec) {
  return worker_->Call(&CreateCmQpStep, CmQpOrder{id, spec});
}
int Side::DestroyCmQp(int id, int qp) {
  return worker_->Call(&DestroyCmQpStep, DestroyCmQpOrder{id, qp});
}
int Side::CmConnect(int id, const ConnectSpec& spec) {
  return worker_->Call(&ConnectStep, ConnectOrder{id, spec});
}
int Side::Accept(int id, const ConnectSpec& spec) {
  return worker_->Call(&AcceptStep, ConnectOrder{id, spec});
}
int Side::Reject(int id, int private_data_len, uint32_t seed) {
  return worker_->Call(&RejectStep, ConnectOrder{id, ConnectSpec(private_data_len, seed)});
}
int Side::Establish(int id) { return worker_->Call(&EstablishStep, id); }
int Side::Disconnect(int id) { return worker_->Call(&DisconnectStep, id); }
int Side::DestroyId(int id) { return worker_->Call(&DestroyIdStep, id); }
int Side::Migrate(int id, bool to_new_channel) {
  return worker_->Call(&MigrateStep, NumberOrder{id, to_new_channel ? 1 : 0});
}
EventCopy Side::NextEvent(int limit_ms) { return worker_->Call(&NextEventStep, limit_ms); }
IdFields Side::FieldsOf(int id) { return worker_->Call(&FieldsStep, id); }

std::string Describe(const EventCopy& event) {
  if (!event.found) return "no event, errno " + std::to_string(event.error);
  std::ostringstream text;
  text << rdma_event_str(event.event) << ", status " << event.status << ", id " << event.id;
  return text.str();
}

}  // namespace rdma_contract
