#include "emulator/verbs/profile.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "emulator/base/toml.h"
#include "emulator/verbs/built_in_profiles.h"
#include "emulator/verbs/device.h"
#include "emulator/verbs/profile_codec.h"

namespace rdmaemu {
namespace {

using namespace profile_codec;

// A queue pair's index into the table has 16 bits. Subnet managers fill at most this many entries.
constexpr int64_t kMostPkeys = 4096;

constexpr auto kNodeTypes = NamesOf<ibv_node_type>({{"ca", IBV_NODE_CA}, {"rnic", IBV_NODE_RNIC}});
constexpr auto kTransports =
    NamesOf<ibv_transport_type>({{"ib", IBV_TRANSPORT_IB}, {"iwarp", IBV_TRANSPORT_IWARP}});
constexpr auto kAtomicCaps = NamesOf<ibv_atomic_cap>(
    {{"global", IBV_ATOMIC_GLOB}, {"hca", IBV_ATOMIC_HCA}, {"none", IBV_ATOMIC_NONE}});
constexpr auto kLinkLayers = NamesOf<int>(
    {{"ethernet", IBV_LINK_LAYER_ETHERNET}, {"infiniband", IBV_LINK_LAYER_INFINIBAND}});
constexpr auto kManagers = NamesOf<ConnectionManager>(
    {{"ib", ConnectionManager::kIb}, {"iwarp", ConnectionManager::kIwarp}});
constexpr auto kQueueDepths = NamesOf<QueueDepths>(
    {{"power_of_two", QueueDepths::kPowerOfTwo}, {"ring", QueueDepths::kRing}});

enum Presence : uint8_t { kRequired, kOptional };

struct Key {
  std::string_view section, name;
  Presence presence;
  // Reads the value, or returns its error. A missing value is nullptr.
  Wrong (*read)(const toml::node*, Profile&);
  std::string (*write)(const Profile&);
};

template <class Codec, class Value>
Wrong ReadValue(const Codec& codec, const toml::node* node, Value& to) {
  return node == nullptr ? std::string("is missing: ") + Codec::Kind() : codec.Read(*node, to);
}

#define KEY(section, key, member, codec, presence, meaning) \
  {#section, #key, presence,                                \
   [](const toml::node* node, Profile& profile) {           \
     return ReadValue(codec, node, profile.member);         \
   },                                                       \
   [](const Profile& profile) { return (codec).Write(profile.member); }},

// In a function, because the codecs are not constant expressions.
const std::vector<Key>& Keys() {
  static const std::vector<Key> kKeys = {
#include "emulator/verbs/profile_keys.inc"
  };
  return kKeys;
}

#undef KEY

constexpr std::string_view kTop = "top";
constexpr std::array<std::string_view, 6> kSections = {kTop, "device", "port",
                                                       "rc", "cm",     "habits"};

// One file of a chain of bases.
struct Layer {
  std::string file;
  toml::table table;
};

std::string PlaceOf(const Layer& layer, const toml::node& node) {
  const toml::source_position& at = node.source().begin;
  return layer.file + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": ";
}

// Reads the keys of one section. Returns the first error.
std::string ReadSection(const Layer& layer, std::string_view section, const toml::table& table,
                        bool has_base, Profile& to) {
  const std::string prefix = section == kTop ? "" : std::string(section) + ".";
  std::set<std::string_view> known;
  for (const Key& key : Keys()) {
    if (key.section != section) continue;
    known.insert(key.name);
    const std::string name = prefix + std::string(key.name);
    const toml::node* const node = table.get(key.name);
    // A profile with its base's name could not be selected by its name.
    const bool required = key.presence == kRequired && (!has_base || key.name == "name");
    if (node == nullptr && !required) continue;
    if (const Wrong wrong = key.read(node, to); !wrong.empty()) {
      return PlaceOf(layer, node == nullptr ? table : *node) + name + " " + wrong;
    }
  }
  for (const auto& [key, node] : table) {
    const std::string_view name = key.str();
    const bool is_part = section == kTop && (name == "base" || std::ranges::count(kSections, name));
    if (known.contains(name) || (is_part && name != kTop)) continue;
    return PlaceOf(layer, node) + prefix + std::string(name) + " is not a key of a profile";
  }
  return {};
}

// Reads all sections of one file over what its base has. Returns the first error.
std::string ReadLayer(const Layer& layer, Profile& to) {
  const bool has_base = layer.table.contains("base");
  for (const std::string_view section : kSections) {
    const toml::node* const node = section == kTop ? &layer.table : layer.table.get(section);
    const std::string name(section);
    if (node == nullptr && has_base) continue;
    if (node == nullptr) return PlaceOf(layer, layer.table) + name + " is missing: a table";
    if (!node->is_table()) return PlaceOf(layer, *node) + name + " must be a table";
    if (std::string error = ReadSection(layer, section, *node->as_table(), has_base, to);
        !error.empty()) {
      return error;
    }
  }
  return {};
}

// Parses a profile and its bases, the root last.
tl::expected<std::vector<Layer>, std::string> ReadChain(ProfileText text,
                                                        const FindProfileText& find_base) {
  std::vector<Layer> chain;
  std::string names;
  for (;;) {
    auto table = ParseToml(text.toml, text.file);
    if (!table) return tl::unexpected(table.error());
    names += (names.empty() ? "" : " -> ") + text.file;
    chain.push_back({std::move(text.file), std::move(*table)});
    const Layer& layer = chain.back();
    const toml::node* const node = layer.table.get("base");
    if (node == nullptr) return chain;
    std::string base;
    Wrong wrong = Text::Read(*node, base);
    if (wrong.empty() && chain.size() > kMaxProfileBases) {
      wrong = "is one base too many: a profile has at most " + std::to_string(kMaxProfileBases) +
              " bases (" + names + ")";
    }
    if (wrong.empty()) {
      auto found = find_base(base, layer.file);
      if (found) {
        const bool is_cycle = std::ranges::any_of(
            chain, [&](const Layer& other) { return other.file == found->file; });
        if (is_cycle) wrong = "contains itself: " + names + " -> " + found->file;
        text = std::move(*found);
      } else {
        wrong = "cannot be used: " + found.error();
      }
    }
    if (!wrong.empty()) return tl::unexpected(PlaceOf(layer, *node) + "base " + wrong);
  }
}

// Fills in the members that follow from the keys.
void Complete(Profile& profile) {
  ibv_device_attr_ex& device = profile.device;
  device.device_cap_flags_ex &= ~uint64_t{UINT32_MAX};
  device.device_cap_flags_ex |= device.orig_attr.device_cap_flags;
  device.phys_port_cnt_ex = device.orig_attr.phys_port_cnt;
  profile.port.state = IBV_PORT_ACTIVE;
  profile.port.active_mtu = profile.port.max_mtu;
  if (profile.pkeys.empty()) profile.pkeys.push_back(Device::kDefaultPkey);
  profile.pkeys.resize(profile.port.pkey_tbl_len);
  if (profile.node_desc.empty()) profile.node_desc = profile.name;
  if (profile.device_prefix.empty()) profile.device_prefix = profile.name;
}

}  // namespace

uint8_t VendorErrors::Of(ibv_wc_status status, bool of_send) const {
  switch (status) {
    case IBV_WC_LOC_LEN_ERR:
      return local_length;
    case IBV_WC_LOC_QP_OP_ERR:
      return local_operation;
    case IBV_WC_LOC_PROT_ERR:
      return of_send ? local_protection : receive_protection;
    case IBV_WC_WR_FLUSH_ERR:
      return flush;
    case IBV_WC_MW_BIND_ERR:
      return bind;
    case IBV_WC_REM_INV_REQ_ERR:
      return remote_invalid;
    case IBV_WC_REM_ACCESS_ERR:
      return remote_access;
    case IBV_WC_REM_OP_ERR:
      return remote_operation;
    case IBV_WC_RETRY_EXC_ERR:
      return retry_exceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return rnr_exceeded;
    default:
      return 0;
  }
}

tl::expected<ProfileText, std::string> BuiltInProfileText(const std::string& name) {
  for (const EmbeddedProfile& embedded : EmbeddedProfiles()) {
    if (embedded.file_name == name + ".toml") return ProfileText{name, std::string(embedded.toml)};
  }
  return tl::unexpected("there is no device profile \"" + name + "\"; choose one of: " +
                        BuiltInProfileNames() + "; or name a file, as in ./my-nic.toml");
}

tl::expected<Profile, std::string> ParseProfile(std::string_view toml, std::string_view file_name,
                                                const FindProfileText& find_base) {
  const auto built_in = [](const std::string& base, const std::string&) {
    return BuiltInProfileText(base);
  };
  const auto chain = ReadChain({std::string(file_name), std::string(toml)},
                               find_base ? find_base : FindProfileText(built_in));
  if (!chain) return tl::unexpected(chain.error());
  Profile profile{};
  for (size_t i = chain->size(); i-- > 0;) {
    if (std::string error = ReadLayer((*chain)[i], profile); !error.empty()) {
      return tl::unexpected(error);
    }
  }
  Complete(profile);
  return profile;
}

std::string ProfileToml(const Profile& profile) {
  std::string text;
  for (const std::string_view section : kSections) {
    if (section != kTop) text += "[" + std::string(section) + "]\n";
    for (const Key& key : Keys()) {
      if (key.section != section) continue;
      text += std::string(key.name) + " = " + key.write(profile) + "\n";
    }
  }
  return text;
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
