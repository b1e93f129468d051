#include "emulator/verbs/profile.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>

#include "emulator/base/toml.h"
#include "emulator/verbs/built_in_profiles.h"
#include "emulator/verbs/objects.h"

namespace rdmaemu {
namespace {

// A queue pair's index into the table has 16 bits. Subnet managers fill at most this many entries.
constexpr int64_t kMostPkeys = 4096;

// Reads one table key by key. Remembers the first error, and reports unknown keys at the end.
class Reader {
 public:
  Reader(const toml::table& table, std::string prefix, std::string file, std::string& error)
      : table_(table), prefix_(std::move(prefix)), file_(std::move(file)), error_(error) {}

  template <class Number>
  requires std::is_integral_v<Number>
  void Read(const char* key, Number& to, int64_t least = 0) {
    const uint64_t top = static_cast<uint64_t>(std::numeric_limits<Number>::max());
    const toml::node* node = Get(key, "an integer");
    if (node == nullptr) return;
    // A number beyond TOML's range is a hexadecimal string.
    if (const auto text = node->value_exact<std::string>(); text && top > INT64_MAX) {
      std::istringstream digits(*text);
      uint64_t value = 0;
      if (text->starts_with("0x") && digits >> std::hex >> value && digits.eof()) {
        to = static_cast<Number>(value);
        return;
      }
    }
    const auto value = node->value_exact<int64_t>();
    if (value && *value >= least && (*value < 0 || static_cast<uint64_t>(*value) <= top)) {
      to = static_cast<Number>(*value);
    } else {
      Wrong(*node, key,
            "must be an integer from " + std::to_string(least) + " to " + std::to_string(top));
    }
  }
  void Read(const char* key, bool& to) {
    const toml::node* node = Get(key, "true or false");
    if (node == nullptr) return;
    if (const auto value = node->value_exact<bool>()) {
      to = *value;
    } else {
      Wrong(*node, key, "must be true or false");
    }
  }
  // The key may be missing, because profiles may be older than the key.
  template <class Value>
  void ReadOptional(const char* key, Value& to) {
    known_.insert(key);
    if (table_.get(key) != nullptr) Read(key, to);
  }
  void Read(const char* key, std::string& to) {
    const toml::node* node = Get(key, "a string");
    if (node == nullptr) return;
    if (const auto value = node->value_exact<std::string>(); value && !value->empty()) {
      to = *value;
    } else {
      Wrong(*node, key, "must be a string that is not empty");
    }
  }
  // Reads a number of at least `least` and at most `most`.
  template <class Number>
  void ReadWithin(const char* key, Number& to, int64_t least, int64_t most) {
    int64_t value = 0;
    const toml::node* node = Get(key, "an integer");
    if (node == nullptr) return;
    if (const auto found = node->value_exact<int64_t>()) value = *found;
    if (!node->is_integer() || value < least || value > most) {
      Wrong(*node, key,
            "must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
      return;
    }
    to = static_cast<Number>(value);
  }
  // Reads the first entries of a table of 16-bit numbers. The key may be missing.
  void ReadList(const char* key, std::vector<uint16_t>& to) {
    known_.insert(key);
    const toml::node* const node = table_.get(key);
    if (node == nullptr) return;
    const toml::array* const list = node->as_array();
    bool right = list != nullptr && list->size() <= to.size();
    for (size_t i = 0; right && i < list->size(); i++) {
      const auto value = (*list)[i].value_exact<int64_t>();
      right = value && *value >= 0 && *value <= UINT16_MAX;
      if (right) to[i] = static_cast<uint16_t>(*value);
    }
    if (!right) {
      Wrong(*node, key,
            "must be a list of at most " + std::to_string(to.size()) + " integers from 0 to 65535");
    }
  }
  template <class Enum>
  void ReadName(const char* key, Enum& to, const std::map<std::string, Enum>& names) {
    const toml::node* node = Get(key, "a string");
    if (node == nullptr) return;
    const auto value = node->value_exact<std::string>();
    const auto found = value ? names.find(*value) : names.end();
    if (found != names.end()) {
      to = found->second;
      return;
    }
    std::string all;
    for (const auto& [name, unused] : names) all += (all.empty() ? "\"" : ", \"") + name + "\"";
    Wrong(*node, key, "must be one of " + all);
  }
  // Returns nullptr when the table is missing, after reporting the error.
  const toml::table* Table(const char* key) {
    const toml::node* node = Get(key, "a table");
    if (node == nullptr) return nullptr;
    if (const toml::table* table = node->as_table()) return table;
    Wrong(*node, key, "must be a table");
    return nullptr;
  }
  void NoOthers() {
    for (const auto& [key, node] : table_) {
      if (known_.contains(std::string(key.str()))) continue;
      Wrong(node, std::string(key.str()).c_str(), "is not a key of a profile");
    }
  }

 private:
  const toml::node* Get(const char* key, const char* wanted) {
    known_.insert(key);
    const toml::node* node = table_.get(key);
    if (node == nullptr) Wrong(table_, key, std::string("is missing: ") + wanted);
    return node;
  }
  void Wrong(const toml::node& node, const char* key, const std::string& what) {
    if (!error_.empty()) return;
    const toml::source_position& at = node.source().begin;
    error_ = file_ + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": " +
             prefix_ + key + " " + what;
  }

  const toml::table& table_;
  std::string prefix_, file_;
  std::string& error_;
  std::set<std::string> known_;
};

void ReadDevice(Reader& in, ibv_device_attr_ex& device) {
  ibv_device_attr& to = device.orig_attr;
  std::string firmware;
  in.Read("fw_ver", firmware);
  firmware.copy(to.fw_ver, sizeof to.fw_ver - 1);
  in.Read("max_mr_size", to.max_mr_size);
  in.Read("page_size_cap", to.page_size_cap);
  in.Read("vendor_id", to.vendor_id);
  in.Read("vendor_part_id", to.vendor_part_id);
  in.Read("hw_ver", to.hw_ver);
  in.ReadWithin("max_qp", to.max_qp, 1, 1 << 23);
  in.ReadWithin("max_qp_wr", to.max_qp_wr, 1, 1 << 20);
  in.Read("device_cap_flags", to.device_cap_flags);
  device.device_cap_flags_ex = to.device_cap_flags;
  // The sizes of the host's own structures limit what a profile may contain.
  in.ReadWithin("max_sge", to.max_sge, 1, SgeList::kCapacity);
  in.ReadWithin("max_sge_rd", to.max_sge_rd, 0, SgeList::kCapacity);
  in.Read("max_cq", to.max_cq);
  in.ReadWithin("max_cqe", to.max_cqe, 1, (1 << 22) - 1);
  in.Read("max_mr", to.max_mr);
  in.Read("max_pd", to.max_pd);
  in.ReadWithin("max_qp_rd_atom", to.max_qp_rd_atom, 0, 128);
  in.Read("max_ee_rd_atom", to.max_ee_rd_atom);
  in.Read("max_res_rd_atom", to.max_res_rd_atom);
  in.ReadWithin("max_qp_init_rd_atom", to.max_qp_init_rd_atom, 0, 128);
  in.Read("max_ee_init_rd_atom", to.max_ee_init_rd_atom);
  in.ReadName<ibv_atomic_cap>(
      "atomic_cap", to.atomic_cap,
      {{"none", IBV_ATOMIC_NONE}, {"hca", IBV_ATOMIC_HCA}, {"global", IBV_ATOMIC_GLOB}});
  in.Read("max_ee", to.max_ee);
  in.Read("max_rdd", to.max_rdd);
  in.Read("max_mw", to.max_mw);
  in.Read("max_raw_ipv6_qp", to.max_raw_ipv6_qp);
  in.Read("max_raw_ethy_qp", to.max_raw_ethy_qp);
  in.Read("max_mcast_grp", to.max_mcast_grp);
  in.Read("max_mcast_qp_attach", to.max_mcast_qp_attach);
  in.Read("max_total_mcast_qp_attach", to.max_total_mcast_qp_attach);
  in.Read("max_ah", to.max_ah);
  in.Read("max_fmr", to.max_fmr);
  in.Read("max_map_per_fmr", to.max_map_per_fmr);
  in.Read("max_srq", to.max_srq);
  in.ReadWithin("max_srq_wr", to.max_srq_wr, 0, 1 << 20);
  in.ReadWithin("max_srq_sge", to.max_srq_sge, 0, SgeList::kCapacity);
  in.Read("max_pkeys", to.max_pkeys);
  in.ReadWithin("local_ca_ack_delay", to.local_ca_ack_delay, 0, 31);
  in.ReadWithin("phys_port_cnt", to.phys_port_cnt, Device::kPort, Device::kPort);
  device.phys_port_cnt_ex = to.phys_port_cnt;
}

void ReadPort(Reader& in, ibv_port_attr& to) {
  uint32_t max_mtu_bytes = 4096;
  in.ReadWithin("max_mtu", max_mtu_bytes, 256, 4096);
  to.max_mtu = IBV_MTU_256;
  for (const ibv_mtu mtu : {IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (MtuBytes(mtu) <= max_mtu_bytes) to.max_mtu = mtu;
  }
  to.state = IBV_PORT_ACTIVE;
  to.active_mtu = to.max_mtu;
  in.ReadWithin("gid_tbl_len", to.gid_tbl_len, 1, 65535);
  in.Read("port_cap_flags", to.port_cap_flags);
  in.Read("max_msg_sz", to.max_msg_sz);
  in.ReadWithin("pkey_tbl_len", to.pkey_tbl_len, 0, kMostPkeys);
  in.Read("max_vl_num", to.max_vl_num);
  in.Read("active_width", to.active_width);
  in.Read("active_speed", to.active_speed);
  in.ReadName<uint8_t>(
      "link_layer", to.link_layer,
      {{"ethernet", IBV_LINK_LAYER_ETHERNET}, {"infiniband", IBV_LINK_LAYER_INFINIBAND}});
}

void ReadTransport(Reader& in, TransportProfile& to) {
  in.Read("ack_every_packets", to.ack_every_packets, 1);
  in.Read("max_unacked_packets", to.max_unacked_packets, 1);
  in.Read("retry_count_7_is_endless", to.retry_count_7_is_endless);
  in.ReadWithin("lowest_qpn", to.lowest_qpn, 2, 1 << 20);
}

void ReadCm(Reader& in, CmProfile& to) {
  in.ReadWithin("response_timeout", to.response_timeout, 0, 31);
  in.ReadWithin("max_retries", to.max_retries, 0, 15);
  in.ReadWithin("packet_lifetime", to.packet_lifetime, 0, 31);
  in.ReadWithin("mra_service_timeout", to.mra_service_timeout, 0, 31);
  uint32_t timewait_floor_ms = 0;
  in.Read("timewait_floor_ms", timewait_floor_ms);
  to.timewait_floor = std::chrono::milliseconds(timewait_floor_ms);
  in.Read("max_backlog", to.max_backlog);
  in.Read("ud_qkey", to.ud_qkey);
  in.ReadName<ConnectionManager>(
      "manager", to.manager,
      {{"ib", ConnectionManager::kIb}, {"iwarp", ConnectionManager::kIwarp}});
  uint32_t connect_timeout_ms = 0, reply_timeout_ms = 0;
  in.Read("connect_timeout_ms", connect_timeout_ms);
  to.connect_timeout = std::chrono::milliseconds(connect_timeout_ms);
  in.Read("reply_timeout_ms", reply_timeout_ms);
  to.reply_timeout = std::chrono::milliseconds(reply_timeout_ms);
  in.ReadWithin("max_reply_private_data", to.max_reply_private_data, 0, UINT8_MAX);
}

void ReadHabits(Reader& in, Profile& to) {
  in.Read("flush_receives_posted_in_error", to.flush_receives_posted_in_error);
  in.Read("raises_qp_fatal", to.raises_qp_fatal);
  in.ReadOptional("serves_srq_queries", to.serves_srq_queries);
  in.ReadOptional("checks_srq_limit", to.checks_srq_limit);
  in.ReadOptional("raises_rnic_events", to.raises_rnic_events);
  in.ReadOptional("keeps_failed_opcodes", to.keeps_failed_opcodes);
  in.Read("raises_last_wqe_reached", to.raises_last_wqe_reached);
  in.Read("raises_comm_est", to.raises_comm_est);
  in.Read("reregisters_regions", to.reregisters_regions);
  in.Read("serves_uc", to.serves_uc);
  in.Read("serves_ud", to.serves_ud);
  in.Read("serves_immediate_data", to.serves_immediate_data);
  in.Read("serves_extended_calls", to.serves_extended_calls);
  in.Read("resizes_cqs", to.resizes_cqs);
  in.Read("allows_empty_queues", to.allows_empty_queues);
  in.Read("reports_qp_state", to.reports_qp_state);
  in.Read("has_ip_gids", to.has_ip_gids);
  in.Read("marks_grh", to.marks_grh);
  in.Read("tells_remote_errors", to.tells_remote_errors);
  in.Read("tells_receive_errors_apart", to.tells_receive_errors_apart);
  in.Read("tells_gather_errors_apart", to.tells_gather_errors_apart);
  in.ReadName<QueueDepths>(
      "queue_depths", to.queue_depths,
      {{"ring", QueueDepths::kRing}, {"power_of_two", QueueDepths::kPowerOfTwo}});
  in.Read("removal_flushes", to.removal_flushes);
  in.Read("raises_device_fatal", to.raises_device_fatal);
  in.Read("fails_sends_without_link", to.fails_sends_without_link);
  in.Read("checks_pkey_index", to.checks_pkey_index);
  in.ReadOptional("enforces_max_msg_sz", to.enforces_max_msg_sz);
  in.ReadOptional("refuses_receives_in_reset", to.refuses_receives_in_reset);
  in.ReadOptional("registers_empty_regions", to.registers_empty_regions);
}

}  // namespace

tl::expected<Profile, std::string> ParseProfile(std::string_view toml, std::string_view file_name) {
  const std::string file(file_name);
  const auto parsed = ParseToml(toml, file);
  if (!parsed) return tl::make_unexpected(parsed.error());
  const toml::table& root = *parsed;
  Profile profile{};
  std::string error;
  Reader top(root, "", file, error);
  top.Read("name", profile.name);
  top.ReadName<ibv_node_type>("node_type", profile.node_type,
                              {{"ca", IBV_NODE_CA}, {"rnic", IBV_NODE_RNIC}});
  profile.node_desc = profile.name;
  top.ReadOptional("node_desc", profile.node_desc);
  top.ReadName<ibv_transport_type>("transport", profile.transport,
                                   {{"ib", IBV_TRANSPORT_IB}, {"iwarp", IBV_TRANSPORT_IWARP}});
  top.ReadWithin("max_inline_bytes", profile.max_inline_bytes, 0, 4096);
  top.ReadWithin("completion_vectors", profile.completion_vectors, 1, 4096);
  const auto section = [&](const char* key, auto read) {
    const toml::table* table = top.Table(key);
    if (table == nullptr) return;
    Reader in(*table, std::string(key) + ".", file, error);
    read(in);
    in.NoOthers();
  };
  section("device", [&](Reader& in) { ReadDevice(in, profile.device); });
  section("port", [&](Reader& in) {
    ReadPort(in, profile.port);
    profile.pkeys.assign(profile.port.pkey_tbl_len, 0);
    if (!profile.pkeys.empty()) profile.pkeys[0] = Device::kDefaultPkey;
    in.ReadList("pkeys", profile.pkeys);
  });
  section("rc", [&](Reader& in) { ReadTransport(in, profile.rc); });
  section("cm", [&](Reader& in) { ReadCm(in, profile.cm); });
  section("habits", [&](Reader& in) { ReadHabits(in, profile); });
  top.NoOthers();
  if (!error.empty()) return tl::make_unexpected(error);
  return profile;
}

const Profile* BuiltInProfile(std::string_view name) {
  // Parsed once. The text is part of the program. profile_test finds errors in it.
  static const std::vector<Profile> kProfiles = [] {
    std::vector<Profile> all;
    for (const EmbeddedProfile& embedded : EmbeddedProfiles()) {
      if (auto parsed = ParseProfile(embedded.toml, embedded.file_name)) {
        all.push_back(std::move(*parsed));
      }
    }
    return all;
  }();
  for (const Profile& profile : kProfiles) {
    if (profile.name == name) return &profile;
  }
  return nullptr;
}

std::string BuiltInProfileNames() {
  std::string names;
  for (const EmbeddedProfile& embedded : EmbeddedProfiles()) {
    const std::string_view name = embedded.file_name.substr(0, embedded.file_name.rfind('.'));
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace rdmaemu
