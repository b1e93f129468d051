#include "emulator/host/files/state.h"

#include <array>
#include <charconv>

#include "emulator/cm/cma_id.h"

namespace rdmaemu::files {
namespace {

std::string HexText(uint64_t value) {
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.begin(), digits.end(), value, 16).ptr;
  return "0x" + std::string(digits.begin(), end);
}

// Collects lines of "name: value".
class Lines {
 public:
  void Add(std::string_view name, std::string_view value) {
    text_.append(name).append(": ").append(value).append("\n");
  }
  void Add(std::string_view name, uint64_t value) { Add(name, std::to_string(value)); }
  // Adds a handle. Handle 0 names no object and becomes "none".
  void AddHandle(std::string_view name, Handle handle) {
    if (handle == 0) return Add(name, "none");
    Add(name, handle);
  }
  void AddHex(std::string_view name, uint64_t value) { Add(name, HexText(value)); }
  // Adds the program that created the object. The program chose its own name, so control characters
  // are replaced.
  void AddOwner(const Owner& owner) {
    if (owner.pid == 0 && owner.program.empty()) return;
    std::string program = owner.program;
    for (char& each : program) {
      if (static_cast<unsigned char>(each) < ' ' || each == '\x7f') each = '?';
    }
    Add("program", program);
    Add("pid", owner.pid);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

struct AccessName {
  unsigned bit;
  const char* name;
};
constexpr AccessName kAccessNames[] = {{IBV_ACCESS_LOCAL_WRITE, "LOCAL_WRITE"},
                                       {IBV_ACCESS_REMOTE_WRITE, "REMOTE_WRITE"},
                                       {IBV_ACCESS_REMOTE_READ, "REMOTE_READ"},
                                       {IBV_ACCESS_REMOTE_ATOMIC, "REMOTE_ATOMIC"},
                                       {IBV_ACCESS_MW_BIND, "MW_BIND"},
                                       {IBV_ACCESS_ZERO_BASED, "ZERO_BASED"},
                                       {IBV_ACCESS_ON_DEMAND, "ON_DEMAND"},
                                       {IBV_ACCESS_HUGETLB, "HUGETLB"},
                                       {IBV_ACCESS_RELAXED_ORDERING, "RELAXED_ORDERING"}};

std::string AccessText(unsigned access) {
  std::string text;
  for (const AccessName& each : kAccessNames) {
    if ((access & each.bit) != 0) text += (text.empty() ? "" : "|") + std::string(each.name);
    access &= ~each.bit;
  }
  if (access != 0) text += (text.empty() ? "" : "|") + HexText(access);
  return text.empty() ? "none" : text;
}

const char* TypeText(ibv_qp_type type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    default:
      return "other";
  }
}

std::string QueueText(const Ring& ring, uint32_t entries) {
  return std::to_string(ring ? ring.Count() : 0) + " of " + std::to_string(entries);
}

void AddConnection(const QueuePair& qp, Lines& lines) {
  const ibv_qp_attr& attr = qp.attr;
  lines.Add("local_address", qp.path.source.ToString());
  lines.Add("peer_address", qp.path.destination.ToString());
  lines.Add("peer_qp", attr.dest_qp_num);
  lines.Add("path_mtu", 128u << attr.path_mtu);
  if (qp.type != IBV_QPT_RC) return;
  lines.Add("timeout", unsigned{attr.timeout});
  lines.Add("retry_cnt", unsigned{attr.retry_cnt});
  lines.Add("rnr_retry", unsigned{attr.rnr_retry});
  lines.Add("min_rnr_timer", unsigned{attr.min_rnr_timer});
}

std::string QpText(const QueuePair& qp, const Owner& owner) {
  Lines lines;
  lines.Add("number", qp.qpn);
  lines.Add("state", StateName(qp.state()));
  lines.Add("type", TypeText(qp.type));
  lines.Add("device", qp.device->name);
  lines.AddOwner(owner);
  lines.Add("handle", qp.handle);
  lines.Add("pd", qp.pd->handle);
  lines.Add("send_cq", qp.send_cq->handle);
  lines.Add("recv_cq", qp.recv_cq->handle);
  lines.AddHandle("srq", qp.srq == nullptr ? 0 : qp.srq->handle);
  lines.Add("send_queue", QueueText(qp.send_ring, qp.send_entries));
  if (qp.srq == nullptr) lines.Add("recv_queue", QueueText(qp.recv_ring, qp.recv_entries));
  if (qp.type == IBV_QPT_UD) lines.AddHex("qkey", qp.attr.qkey);
  if (qp.type != IBV_QPT_UD) lines.Add("access", AccessText(qp.attr.qp_access_flags));
  const bool is_connected = qp.state() != IBV_QPS_RESET && qp.state() != IBV_QPS_INIT;
  if (qp.type != IBV_QPT_UD && is_connected && qp.attr.dest_qp_num != 0) AddConnection(qp, lines);
  return lines.Take();
}

std::string MrText(const MemoryRegion& mr, const Owner& owner) {
  Lines lines;
  lines.AddHex("lkey", mr.lkey);
  lines.AddHex("rkey", mr.rkey);
  lines.Add("device", DeviceOf(mr)->name);
  lines.AddOwner(owner);
  lines.Add("handle", mr.handle);
  lines.Add("pd", mr.pd->handle);
  lines.AddHex("address", mr.user_address);
  lines.AddHex("iova", mr.iova);
  lines.Add("length", mr.length);
  lines.Add("access", AccessText(static_cast<unsigned>(mr.access)));
  lines.Add("remote_access", mr.remote_valid ? "valid" : "invalidated");
  lines.Add("bound_windows", mr.bound_windows);
  return lines.Take();
}

std::string CqText(const CompletionQueue& cq, const Owner& owner) {
  Lines lines;
  lines.Add("handle", cq.handle);
  lines.Add("device", DeviceOf(cq)->name);
  lines.AddOwner(owner);
  lines.AddHandle("channel", cq.channel == nullptr ? 0 : cq.channel->handle);
  lines.Add("completions", QueueText(cq.ring, cq.entries));
  lines.Add("users", cq.users);
  return lines.Take();
}

// Returns the name of the kernel's enum rdma_cm_state without its prefix, as `rdma resource` does.
std::string_view StateText(cm::IdState state) {
  constexpr std::string_view kPrefix = "RDMA_CM_";
  constexpr std::string_view kNames[] = {
      "RDMA_CM_IDLE",    "RDMA_CM_ADDR_BOUND",    "RDMA_CM_ADDR_QUERY",
      "RDMA_CM_LISTEN",  "RDMA_CM_ADDR_RESOLVED", "RDMA_CM_ROUTE_RESOLVED",
      "RDMA_CM_CONNECT", "RDMA_CM_DISCONNECT",    "RDMA_CM_DEVICE_REMOVAL"};
  return kNames[static_cast<size_t>(state)].substr(kPrefix.size());
}

std::string AddressText(const cm::SocketAddress& address) {
  if (address.IsNone()) return "none";
  const std::string host = address.address.ToString();
  const std::string port = std::to_string(address.port);
  return address.family == AF_INET ? host + ":" + port : "[" + host + "]:" + port;
}

std::string PortSpaceText(uint16_t port_space) {
  switch (port_space) {
    case RDMA_PS_TCP:
      return "TCP";
    case RDMA_PS_UDP:
      return "UDP";
    case RDMA_PS_IPOIB:
      return "IPOIB";
    case RDMA_PS_IB:
      return "IB";
    default:
      return HexText(port_space);
  }
}

std::string IdText(const cm::CmaId& id, Verbs& verbs, const Owner& owner) {
  Lines lines;
  lines.Add("number", id.handle);
  lines.Add("state", StateText(id.state));
  lines.Add("port_space", PortSpaceText(id.port_space));
  lines.AddOwner(owner);
  lines.AddHandle("channel", id.channel);
  if (id.device) {
    const Device* const device = verbs.DeviceByIndex(id.device->index);
    lines.Add("device", device == nullptr ? "removed" : device->name);
  } else {
    lines.Add("device", "none");
  }
  lines.Add("source", AddressText(id.source()));
  lines.Add("destination", AddressText(id.destination()));
  lines.AddHandle("qp", id.qpn);
  if (id.state == cm::IdState::kListen) lines.Add("backlog_left", id.backlog_left);
  lines.Add("multicast_groups", id.memberships.size());
  return lines.Take();
}

// Lists objects: name(object) names a file, text(object) is its text.
template <class Object, class Name, class Text>
Directory List(std::vector<const Object*> all, Name name, Text text) {
  Directory directory;
  const bool is_cut = all.size() > kMaxListedObjects;
  if (is_cut) all.resize(kMaxListedObjects);
  for (const Object* const object : all) {
    directory.Add(name(*object), LazyText([object, text] { return text(*object); }));
  }
  if (is_cut) {
    directory.AddLine("more",
                      "only the first " + std::to_string(kMaxListedObjects) + " are listed");
  }
  return directory;
}

constexpr size_t kLookedAt = kMaxListedObjects + 1;

}  // namespace

LazyDirectory StateFiles(Verbs& verbs, const cm::Cm& cm, OwnerOf owner) {
  return [&verbs, &cm, owner = std::move(owner)] {
    const auto maker = [&verbs, owner](Handle handle) { return owner(verbs.MakerOf(handle)); };
    Directory state;
    state.Add("qps", LazyDirectory([&verbs, maker] {
                return List(
                    verbs.All<QueuePair>(kLookedAt),
                    [](const QueuePair& qp) { return std::to_string(qp.qpn); },
                    [maker](const QueuePair& qp) { return QpText(qp, maker(qp.handle)); });
              }));
    state.Add("ids", LazyDirectory([&verbs, &cm, owner] {
                return List(
                    cm.Ids(kLookedAt),
                    [](const cm::CmaId& id) { return std::to_string(id.handle); },
                    [&verbs, owner](const cm::CmaId& id) {
                      return IdText(id, verbs, owner(id.process));
                    });
              }));
    state.Add("mrs", LazyDirectory([&verbs, maker] {
                return List(
                    verbs.All<MemoryRegion>(kLookedAt),
                    [](const MemoryRegion& mr) { return HexText(mr.lkey); },
                    [maker](const MemoryRegion& mr) { return MrText(mr, maker(mr.handle)); });
              }));
    state.Add("cqs", LazyDirectory([&verbs, maker] {
                return List(
                    verbs.All<CompletionQueue>(kLookedAt),
                    [](const CompletionQueue& cq) { return std::to_string(cq.handle); },
                    [maker](const CompletionQueue& cq) { return CqText(cq, maker(cq.handle)); });
              }));
    return state;
  };
}

}  // namespace rdmaemu::files
