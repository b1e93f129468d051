// An RDMA CM id, as in the kernel's cma.c and ucma.c (rdma_id_private and ucma_context).
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "emulator/base/ids.h"
#include "emulator/base/net_address.h"
#include "emulator/base/uapi.h"
#include "emulator/cm/ib_cm.h"
#include "emulator/cm/port_space.h"

namespace rdmaemu::cm {

enum class IdState : uint8_t {
  kIdle,
  kAddrBound,
  kAddrQuery,  // waiting for a neighbour's answer
  kListen,
  kAddrResolved,
  kRouteQuery,  // waiting for the subnet administrator's answer
  kRouteResolved,
  kConnect,
  kDisconnect,
  kRemoved,  // its device was removed: every command but destroying returns ENXIO
};

// A copy of the device's values that an id needs, because the device may be removed.
struct BoundDevice {
  uint32_t index;
  LocalPort local;
  uint8_t port;
  uint8_t active_mtu;  // ibv_mtu
  bool has_lids;       // Device::has_lids
};

// A path record (sa_path_rec) of a route: RoCE's, or with LIDs InfiniBand's.
struct PathRecord {
  uint64_t service_id = 0;
  NetAddress sgid, dgid;
  uint16_t slid = 0, dlid = 0;  // 0: RoCE, or another subnet
  uint32_t flow_label = 0;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint8_t mtu = 0;  // ibv_mtu
  uint8_t rate = 0;
  uint8_t packet_lifetime = 0;  // exponent
  uint8_t preference = 0;
  uint8_t number_of_paths = 0;
  uint16_t pkey = 0xffff;
  bool reversible = true;
};

struct Membership {
  uint32_t handle = 0;
  uint64_t uid = 0;
  NetAddress group;       // its GID
  NetAddress wire_group;  // the IP group that carries it
  NetAddress local;       // the address of the device that joins
  uint16_t mlid = 0;      // on a port with LIDs
  int status = 0;         // of the event of the join, negative
  bool receives = false;  // this membership makes the device a member of the group
  uint32_t events_reported = 0;
};

struct CmaId {
  uint32_t handle = 0;
  GroupId group = GroupId::kNone;
  ProcessId process = ProcessId::kNone;
  uint32_t channel = 0;
  uint64_t uid = 0;  // 0: of a request not accepted yet, which gets no events
  uint32_t events_reported = 0;

  uint16_t port_space = 0;
  uint16_t bound_port_space = 0;  // the space of its port: RDMA_PS_IB ids may hold a port of TCP's
  ibv_qp_type qp_type = IBV_QPT_RC;
  IdState state = IdState::kIdle;
  PortBinding binding;  // source and destination address
  bool holds_port = false;
  bool af_only_set = false;
  std::optional<BoundDevice> device;
  // The P_Key of ib_addr_get_pkey. It is 0 for an Ethernet interface (measured). For a loopback
  // address it is the first entry of the chosen device's P_Key table. On a port with LIDs it is the
  // partition of the sockaddr_ib, or of the IPoIB interface.
  uint16_t address_pkey = 0;
  // Both GIDs of an id that resolved a loopback address on a port with LIDs (cma_bind_loopback).
  std::optional<NetAddress> loopback_gid;
  // The id got its device through an IP address, so that there is a link to route over.
  bool on_link = false;
  uint64_t attach_order = 0;  // the order in which ids got their devices
  std::optional<uint8_t> type_of_service, ack_timeout;
  std::optional<PathRecord> path;

  uint32_t starting_psn = 0;  // 24 bits
  uint32_t qpn = 0;
  bool srq = false;
  uint32_t qkey = 0;
  rdma_ucm_ece ece = {};
  uint64_t connection = 0;  // IbCm's key; 0: none
  // Only ids whose manager is iw_cm use the members up to responder_resources.
  bool established = false;
  uint32_t outcome_channel = 0;  // channel on which a blocked rdma_connect waits for its outcome
  bool reset_by_peer = false;    // the peer has withdrawn this id's request
  uint8_t initiator_depth = 0, responder_resources = 0;  // negotiated so far
  uint32_t backlog_left = 0;
  std::map<uint32_t, Membership> memberships;

  const SocketAddress& source() const { return binding.source; }
  const SocketAddress& destination() const { return binding.destination; }
  // Returns the service id of a port in this id's port space (rdma_get_service_id).
  uint64_t ServiceId(uint16_t port) const { return (uint64_t{port_space} << 16) + port; }
  uint64_t ServiceId(const SocketAddress& at) const {
    return at.family == AF_IB ? (at.service_id & ~uint64_t{0xffff}) | at.port : ServiceId(at.port);
  }
  bool IsIwarp() const {
    return device && device->local.profile.manager == ConnectionManager::kIwarp;
  }
  bool IsUd() const { return qp_type == IBV_QPT_UD; }
  bool HasLids() const { return device && device->has_lids; }
  // True when the id's messages have no header with IP addresses (cma_user_data_offset).
  bool IsAfIb() const { return source().family == AF_IB; }
  // Returns the GIDs of the id's two ends (rdma_read_gids).
  const NetAddress& SourceGid() const { return loopback_gid ? *loopback_gid : source().address; }
  const NetAddress& DestinationGid() const {
    return loopback_gid ? *loopback_gid : destination().address;
  }
};

}  // namespace rdmaemu::cm
