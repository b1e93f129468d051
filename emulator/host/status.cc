#include "emulator/host/status.h"

#include <nlohmann/json.hpp>

#include "emulator/base/cm_event_names.h"

namespace rdmaemu {
namespace {

using Json = nlohmann::ordered_json;

Json DevicesJson(const HostDevices& all) {
  Json devices = Json::array();
  for (const HostDevices::Entry* entry : all.entries()) {
    const DeviceConfig& device = entry->config;
    const bool present = entry->device != nullptr;
    Json addresses = Json::array(), on_wire = Json::array(), networks = Json::array();
    for (const HostAddress& address : device.addresses) {
      addresses.push_back(address.address.ToString());
      if (!address.on_wire) continue;
      on_wire.push_back(address.address.ToString());
      networks.push_back(NetworkOf(address).ToString());
    }
    devices.push_back({{"name", device.name},
                       {"profile", device.profile.name},
                       {"present", present},
                       {"index", present ? Json(entry->device->index) : Json()},
                       {"port", present && entry->device->Carries() ? "active" : "down"},
                       {"addresses", addresses},
                       {"on_wire", on_wire},
                       {"networks", networks}});
  }
  return devices;
}

Json GatewaysJson(const HostConfig& config) {
  Json gateways = Json::array();
  for (const NetAddress& gateway : config.gateways) gateways.push_back(gateway.ToString());
  return gateways;
}

// The most clients and groups that are listed individually. The totals count all of them. This
// limit keeps the text within one reply.
constexpr size_t kMaxListed = 256;

Json ClientsJson(const Processes& processes) {
  Json clients = Json::array();
  for (const auto& [process, connected] : processes.all()) {
    if (clients.size() >= kMaxListed) break;
    clients.push_back({{"process", static_cast<uint32_t>(process)},
                       {"pid", connected.info.pid},
                       {"program", connected.info.program},
                       {"group", static_cast<uint32_t>(connected.group)}});
  }
  return clients;
}

const char* PortSpaceName(uint16_t port_space) {
  switch (port_space) {
    case RDMA_PS_TCP:
      return "TCP";
    case RDMA_PS_UDP:
      return "UDP";
    case RDMA_PS_IPOIB:
      return "IPOIB";
    default:
      return "IB";
  }
}

Json ListenersJson(const cm::Cm& cm) {
  Json listeners = Json::array();
  for (const cm::CmListener& each : cm.Listeners()) {
    if (listeners.size() >= kMaxListed) break;
    listeners.push_back({{"port", each.port},
                         {"address", each.address.ToString()},
                         {"port_space", PortSpaceName(each.port_space)}});
  }
  return listeners;
}

Json EventsJson(const cm::Cm& cm) {
  Json events = Json::object();
  for (const auto& [type, count] : cm.queued_events()) events[CmEventName(type)] = count;
  return events;
}

// One key per reason. docs/counters.md explains them.
Json DroppedJson(const transport::EngineCounters& engine, const FabricCounters& fabric,
                 const cm::CmStatistics& cm) {
  return {{"network_full", fabric.dropped_network_full},
          {"bad_icrc", fabric.dropped_bad_icrc},
          {"packet_too_short", fabric.dropped_unparsed[0]},
          {"packet_version", fabric.dropped_unparsed[1]},
          {"packet_opcode", fabric.dropped_unparsed[2]},
          {"packet_length", fabric.dropped_unparsed[3]},
          {"packet_padding", fabric.dropped_unparsed[4]},
          {"not_ours", fabric.dropped_not_ours},
          {"gsi_key", fabric.dropped_gsi_key},
          {"gsi_queue", fabric.dropped_gsi_queue},
          {"mad_too_short", fabric.dropped_unparsed_mad[0]},
          {"mad_class", fabric.dropped_unparsed_mad[1]},
          {"mad_version", fabric.dropped_unparsed_mad[2]},
          {"mad_method", fabric.dropped_unparsed_mad[3]},
          {"mad_attribute", fabric.dropped_unparsed_mad[4]},
          {"mad_too_long", fabric.dropped_unparsed_mad[5]},
          {"no_qp", engine.dropped_no_qp},
          {"wrong_state", engine.dropped_wrong_state},
          {"wrong_address", engine.dropped_wrong_address},
          {"wrong_pkey", engine.dropped_wrong_pkey},
          {"wrong_qkey", engine.dropped_wrong_qkey},
          {"bad_opcode", engine.dropped_bad_opcode},
          {"bad_syndrome", engine.dropped_bad_syndrome},
          {"own_multicast", engine.dropped_own_multicast},
          {"no_group", engine.dropped_no_group},
          {"no_receive", engine.dropped_no_receive},
          {"out_of_sequence", engine.dropped_out_of_sequence},
          {"wrong_length", engine.dropped_wrong_length},
          {"no_access", engine.dropped_no_access},
          {"no_memory", engine.dropped_no_memory},
          {"old_request", engine.dropped_old_request},
          {"old_answer", engine.dropped_old_answer},
          {"unexpected_answer", engine.dropped_unexpected_answer},
          {"answer_gap", engine.dropped_answer_gap},
          {"answer_queue_full", engine.dropped_answer_queue_full},
          {"sender_gone", engine.dropped_sender_gone},
          {"above_mtu", engine.dropped_above_mtu},
          {"no_link", engine.dropped_no_link + fabric.dropped_no_link},
          {"cm_no_device", cm.dropped_no_device},
          {"cm_no_match", cm.dropped_no_match},
          {"cm_backlog_full", cm.dropped_backlog_full},
          {"cm_id_in_use", cm.dropped_id_in_use},
          {"cm_no_room", cm.dropped_no_room},
          {"cm_no_route", cm.dropped_no_route},
          {"cm_channel_full", cm.dropped_channel_full}};
}

Json CountersJson(const StatusSources& sources) {
  const transport::EngineCounters& engine = sources.engine;
  const FabricCounters& fabric = sources.fabric;
  const cm::CmStatistics& cm = sources.cm.statistics();
  return {{"messages_sent", engine.messages_sent},
          {"messages_by_permit", engine.messages_by_permit},
          {"messages_by_lane", engine.messages_by_lane},
          {"bytes_sent", engine.bytes_sent},
          {"packets_sent", engine.packets_sent},
          {"packets_received", engine.packets_received},
          {"local_packets", engine.local_packets},
          {"retransmissions", engine.retransmissions},
          {"rnr_naks", engine.rnr_naks},
          {"naks", engine.naks},
          {"duplicates", engine.duplicates},
          {"datagrams_sent", fabric.datagrams_sent},
          {"datagrams_received", fabric.datagrams_received},
          {"datagram_bytes_sent", fabric.bytes_sent},
          {"datagram_bytes_received", fabric.bytes_received},
          {"cm_messages_sent", cm.messages_sent},
          {"cm_messages_received", cm.messages_received},
          {"cm_retransmissions", cm.retransmissions},
          {"cm_duplicates", cm.duplicates},
          {"dropped", DroppedJson(engine, fabric, cm)},
          {"fault_no_room",
           {{"delayed_calls", sources.faults.delayed_calls_full},
            {"delayed_messages", sources.faults.delayed_messages_full},
            {"delayed_completions", sources.faults.delayed_completions_full},
            {"delayed_async_events", sources.faults.delayed_async_events_full},
            {"kept_packets", sources.faults.kept_packets_full},
            {"paused_datagrams", sources.faults.paused_datagrams_full},
            {"deeds", sources.faults.deeds_full}}}};
}

}  // namespace

std::string StatusJson(const StatusSources& sources) {
  Json groups = Json::array();
  size_t qps = 0;
  for (const auto& [group, members] : sources.processes.groups()) {
    const ObjectCounts counts = sources.verbs.Counts(group);
    qps += counts.qps;
    if (groups.size() >= kMaxListed) continue;
    groups.push_back({{"group", static_cast<uint32_t>(group)},
                      {"contexts", counts.contexts},
                      {"pds", counts.pds},
                      {"mrs", counts.mrs},
                      {"mws", counts.mws},
                      {"channels", counts.channels},
                      {"cqs", counts.cqs},
                      {"srqs", counts.srqs},
                      {"qps", counts.qps},
                      {"ahs", counts.ahs},
                      {"ids", sources.cm.ids(group)}});
  }
  const Json status = {{"name", sources.config.name},
                       {"pid", sources.config.pid},
                       {"call_version", kCallVersion},
                       {"devices", DevicesJson(sources.devices)},
                       {"gateways", GatewaysJson(sources.config)},
                       {"clients", ClientsJson(sources.processes)},
                       {"groups", groups},
                       {"clients_total", sources.processes.all().size()},
                       {"groups_total", sources.processes.groups().size()},
                       {"ids", sources.cm.ids()},
                       // Connections of the CM protocol. They outlive their ids in timewait, or
                       // until their peers answer.
                       {"connections", sources.cm.connections()},
                       {"qps", qps},
                       {"listeners", ListenersJson(sources.cm)},
                       {"events", EventsJson(sources.cm)},
                       {"counters", CountersJson(sources)}};
  // A client chose its program name. Bytes that are not UTF-8 are replaced, without an exception.
  return status.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace rdmaemu
