// The events of Connections' programs, and the programs' reactions.
#include "emulator/base/cm_event_names.h"
#include "tests/sim/connections.h"

namespace rdmaemu::sim {

void Connections::Harvest(Program& program) {
  const auto found = channels_.find(&program);
  if (found == channels_.end() || !program.Lives()) return;
  for (const Channel& channel : found->second) {
    while (program.machine().counters.Take(channel.counter)) {
      rdma_ucm_event_resp event{};
      const int error = program.process().FetchEvent(channel.handle, event);
      if (error != 0) {
        world_.verdict().Complain("cm", program.name() + ": its channel is readable, and errno " +
                                            std::to_string(error) + " says there is no event");
        break;
      }
      Happened(program, event);
    }
  }
}

void Connections::Happened(Program& program, const rdma_ucm_event_resp& event) {
  const auto kind = static_cast<CmEventKind>(event.event);
  if (event.uid == 0 || event.uid > ids_.size()) {
    world_.verdict().Complain("cm", program.name() + ": an event of nobody's id");
    return;
  }
  CmId& id = *ids_[event.uid - 1];
  if (kind == CmEventKind::kConnectRequest) return Requested(program, event, id);
  if (event.id != id.handle || id.program != &program) {
    world_.verdict().Complain("cm", program.name() + ": an event whose id and uid do not agree");
    return;
  }
  world_.tally().Count(std::string("cm.event.") + CmEventName(event.event));
  if (kind == CmEventKind::kRejected) {
    world_.tally().Count("cm.rejected." + std::to_string(event.status));
  }
  const bool datagram = id.type == IBV_QPT_UD && kind == CmEventKind::kEstablished;
  const uint8_t* bytes = datagram ? event.param.ud.private_data : event.param.conn.private_data;
  const size_t length =
      datagram ? event.param.ud.private_data_len : event.param.conn.private_data_len;
  Say(id, std::string("hears ") + CmEventName(event.event) + ", status " +
              std::to_string(static_cast<int32_t>(event.status)));
  checker_.Event(id.number, kind, static_cast<int32_t>(event.status), {bytes, length});
  if (kind == CmEventKind::kConnectResponse) {
    uint32_t passive = 0;
    if (length >= sizeof passive) std::memcpy(&passive, bytes, sizeof passive);
    if (passive > 0 && passive <= ids_.size()) id.partner = ids_[passive - 1].get();
  }
  const Duration later = calm_ ? Duration(1000) : Duration(world_.random().Below(500'000));
  world_.After(later, [this, &id, kind] { React(id, kind); });
}

void Connections::React(CmId& id, CmEventKind event) {
  if (id.ended || !id.program->Lives()) return;
  if (!id.program->Runs()) {
    world_.After(std::chrono::milliseconds(1), [this, &id, event] { React(id, event); });
    return;
  }
  switch (event) {
    case CmEventKind::kAddrResolved: {
      rdma_ucm_resolve_route command{};
      command.id = id.handle;
      command.timeout_ms = 2000;
      checker_.Called(id.number, CmCallKind::kResolveRoute);
      (void)Call(id, RDMA_USER_CM_CMD_RESOLVE_ROUTE, command);
      return;
    }
    case CmEventKind::kRouteResolved:
      return calm_ ? Destroy(id) : Connect(id);
    case CmEventKind::kConnectResponse:
      return Establish(id);
    case CmEventKind::kEstablished:
      if (id.passive && id.endpoint != nullptr && id.endpoint->stage == Stage::kMade &&
          id.endpoint->peer != nullptr && id.endpoint->peer->peer == id.endpoint) {
        id.endpoint->stage = Stage::kReady;
      }
      return;
    case CmEventKind::kDisconnected:
      return Disconnect(id);
    case CmEventKind::kRejected:
    case CmEventKind::kUnreachable:
    case CmEventKind::kAddrError:
      if (id.endpoint != nullptr) traffic_.Destroy(*id.endpoint);
      return Destroy(id);
    default:
      return;
  }
}

}  // namespace rdmaemu::sim
