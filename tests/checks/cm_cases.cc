#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>

#include <vector>

#include "usage.h"

namespace {

void Finish(Pair& pair) {
  pair.Disconnect();
  pair.Destroy();
}

// Sends a request to a port on which nobody listens.
void BeRejected(Pair& pair) {
  CHECK(rdma_destroy_id(pair.listener) == 0);
  pair.listener = nullptr;
  pair.Request();
  pair.active.Await(RDMA_CM_EVENT_REJECTED);
}

rdma_cm_event* ResolveAddress(Pair& pair) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = pair.port;
  address.sin_addr.s_addr = inet_addr(g_address);
  CHECK(rdma_resolve_addr(pair.active.id, nullptr, reinterpret_cast<sockaddr*>(&address), 2000) ==
        0);
  return pair.active.Take(RDMA_CM_EVENT_ADDR_RESOLVED);
}

void DestroyUnacked(bool breaks) {
  Pair pair;
  rdma_cm_event* const event = ResolveAddress(pair);
  if (!breaks) CHECK(rdma_ack_cm_event(event) == 0);
  pair.Destroy();
}

void DestroyListenerUnacked(bool breaks) {
  Pair pair;
  pair.Request();
  rdma_cm_event* const event = pair.passive.Take(RDMA_CM_EVENT_CONNECT_REQUEST);
  pair.passive.id = event->id;
  if (!breaks) CHECK(rdma_ack_cm_event(event) == 0);
  CHECK(rdma_destroy_id(pair.listener) == 0);
  pair.listener = nullptr;
  CHECK(rdma_reject(pair.passive.id, nullptr, 0) == 0);
  pair.active.Await(RDMA_CM_EVENT_REJECTED);
  pair.Destroy();
}

void AckTwice(bool breaks) {
  Pair pair;
  rdma_cm_event* const event = ResolveAddress(pair);
  CHECK(rdma_ack_cm_event(event) == 0);
  if (breaks) CHECK(rdma_ack_cm_event(event) != 0);
  pair.Destroy();
}

void DestroyIdWithQp(bool breaks) {
  Pair pair;
  pair.Connect();
  pair.Disconnect();
  if (!breaks) rdma_destroy_qp(pair.active.id);
  CHECK(rdma_destroy_id(pair.active.id) == 0);
  pair.active.id = nullptr;
  if (!breaks) pair.Destroy();
}

void AnswerTwice(bool breaks) {
  Pair pair;
  pair.Connect();
  rdma_conn_param parameters = Parameters();
  if (breaks) rdma_accept(pair.passive.id, &parameters);
  Finish(pair);
}

void SendPrivateData(bool breaks) {
  static char data[57];
  Pair pair;
  rdma_conn_param parameters = Parameters();
  parameters.private_data = data;
  parameters.private_data_len = breaks ? 57 : 56;
  pair.Request(parameters);
  pair.TakeRequest();
  pair.Accept();
  pair.AwaitEstablished();
  Finish(pair);
}

void ConnectRejected(bool breaks) {
  Pair pair;
  BeRejected(pair);
  rdma_conn_param parameters = Parameters();
  if (breaks) CHECK(rdma_connect(pair.active.id, &parameters) != 0);
  pair.Destroy();
}

void Migrate(bool breaks) {
  Pair pair;
  rdma_cm_event* const event = ResolveAddress(pair);
  if (!breaks) CHECK(rdma_ack_cm_event(event) == 0);
  CHECK(rdma_migrate_id(pair.active.id, pair.passive.channel) == 0);
  pair.Destroy();
}

void GetRequest(bool breaks) {
  Pair pair;
  rdma_cm_id* id = nullptr;
  if (breaks) CHECK(rdma_get_request(pair.listener, &id) != 0);
  pair.Connect();
  Finish(pair);
}

void SynchronousInEventLoop(bool breaks) {
  rdma_cm_id *listener = nullptr, *request = nullptr;
  CHECK(rdma_create_id(nullptr, &listener, nullptr, RDMA_PS_TCP) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = inet_addr(g_address);
  CHECK(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&address)) == 0);
  CHECK(rdma_listen(listener, 4) == 0);
  const int flags = fcntl(listener->channel->fd, F_GETFL);
  CHECK(fcntl(listener->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
  if (breaks) CHECK(rdma_get_request(listener, &request) != 0 && errno == EAGAIN);
  CHECK(rdma_destroy_id(listener) == 0);
}

void ResolveRoute(bool breaks) {
  Pair pair;
  if (breaks) CHECK(rdma_resolve_route(pair.active.id, 100) != 0);
  pair.active.Resolve(pair.port);
  pair.Destroy();
}

void ConnectUnresolved(bool breaks) {
  Pair pair;
  rdma_conn_param parameters = Parameters();
  parameters.qp_num = 17;
  if (breaks) CHECK(rdma_connect(pair.active.id, &parameters) != 0);
  pair.Destroy();
}

void AcceptListener(bool breaks) {
  Pair pair;
  pair.Request();
  pair.TakeRequest();
  rdma_conn_param parameters = Parameters();
  if (breaks) CHECK(rdma_accept(pair.listener, &parameters) != 0);
  pair.Accept();
  pair.AwaitEstablished();
  Finish(pair);
}

void RejectListener(bool breaks) {
  Pair pair;
  pair.Request();
  pair.TakeRequest();
  if (breaks) CHECK(rdma_reject(pair.listener, nullptr, 0) != 0);
  CHECK(rdma_reject(pair.passive.id, nullptr, 0) == 0);
  pair.active.Await(RDMA_CM_EVENT_REJECTED);
  pair.Destroy();
}

void QpWithoutDevice(bool breaks) {
  Pair pair;
  if (!breaks) pair.active.Resolve(pair.port);
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  if (breaks) {
    rdma_create_qp(pair.active.id, nullptr, &init);
  } else {
    pair.active.MakeQp();
  }
  pair.Destroy();
}

void SecondQp(bool breaks) {
  Pair pair;
  pair.active.Resolve(pair.port);
  pair.active.MakeQp();
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = pair.active.cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  if (breaks) CHECK(rdma_create_qp(pair.active.id, pair.active.pd, &init) != 0);
  pair.Destroy();
}

void ChannelWithIds(bool breaks) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  CHECK(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) == 0);
  if (!breaks) CHECK(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(channel);
}

void ChannelWithEvents(bool breaks) {
  Pair pair;
  rdma_cm_event* const event = ResolveAddress(pair);
  if (!breaks) {
    CHECK(rdma_ack_cm_event(event) == 0);
    pair.Destroy();
  } else {
    rdma_destroy_event_channel(pair.active.channel);
  }
}

void AcceptDepth(bool breaks) {
  Pair pair;
  pair.Request();
  pair.TakeRequest();
  rdma_conn_param parameters = Parameters();
  if (breaks) parameters.initiator_depth = 3;
  const int result = rdma_accept(pair.passive.id, &parameters);
  if (breaks) return;
  CHECK(result == 0);
  pair.AwaitEstablished();
  Finish(pair);
}

void RetryCount(bool breaks) {
  Pair pair;
  rdma_conn_param parameters = Parameters();
  if (breaks) parameters.retry_count = 0;
  pair.Request(parameters);
  pair.TakeRequest();
  pair.Accept();
  pair.AwaitEstablished();
  Finish(pair);
}

void RnrRetryCount(bool breaks) {
  Pair pair;
  pair.Request();
  pair.TakeRequest();
  rdma_conn_param parameters = Parameters();
  if (breaks) parameters.rnr_retry_count = 0;
  pair.Accept(parameters);
  pair.AwaitEstablished();
  Finish(pair);
}

void NoQpNumber(bool breaks) {
  Pair pair;
  pair.active.Resolve(pair.port);
  if (!breaks) pair.active.MakeQp();
  rdma_conn_param parameters = Parameters();
  const int result = rdma_connect(pair.active.id, &parameters);
  if (breaks) return;
  CHECK(result == 0);
  pair.TakeRequest();
  pair.Accept();
  pair.AwaitEstablished();
  Finish(pair);
}

void DisconnectUnconnected(bool breaks) {
  Pair pair;
  pair.active.Resolve(pair.port);
  if (breaks) CHECK(rdma_disconnect(pair.active.id) != 0);
  pair.Destroy();
}

void UseDestroyedId(bool breaks) {
  Pair pair;
  rdma_cm_id* const id = pair.active.id;
  CHECK(rdma_destroy_id(id) == 0);
  if (breaks) CHECK(rdma_listen(id, 1) != 0);
  pair.active.id = nullptr;
  pair.Destroy();
}

void PostAfterAccept(bool breaks) {
  Pair pair;
  pair.Request();
  pair.TakeRequest(!breaks);
  pair.Accept();
  pair.AwaitEstablished();
  pair.passive.PostReceive();
  Finish(pair);
}

void UseDestroyedChannel(bool breaks) {
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_destroy_event_channel(channel);
  rdma_cm_event* event = nullptr;
  if (breaks) CHECK(rdma_get_cm_event(channel, &event) != 0);
}

}  // namespace

const std::vector<Case> kCmCases = {
    {"CM-001", DestroyUnacked},
    {"CM-002", DestroyListenerUnacked},
    {"CM-003", AckTwice},
    {"CM-005", DestroyIdWithQp},
    {"CM-006", AnswerTwice},
    {"CM-007", SendPrivateData},
    {"CM-008", ConnectRejected},
    {"CM-010", Migrate},
    {"CM-012", GetRequest},
    {"CM-013", ResolveRoute},
    {"CM-014", ConnectUnresolved},
    {"CM-015", AcceptListener},
    {"CM-016", RejectListener},
    {"CM-017", QpWithoutDevice},
    {"CM-018", SecondQp},
    {"CM-020", ChannelWithIds},
    {"CM-021", ChannelWithEvents},
    {"CM-022", AcceptDepth},
    {"CM-023", RetryCount},
    {"CM-024", RnrRetryCount},
    {"CM-025", NoQpNumber},
    {"CM-026", DisconnectUnconnected},
    {"CM-027", UseDestroyedId},
    {"CM-028", PostAfterAccept},
    {"CM-029", UseDestroyedChannel},
    {"CM-030", SynchronousInEventLoop},
};
