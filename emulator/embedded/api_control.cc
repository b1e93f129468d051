// rdmaemu.h: rules and devices. They go as calls through the process's libibverbs.so.1, so that
// they reach whichever host it uses: the one in this process, or a host process.

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "emulator/base/net_address.h"
#include "emulator/embedded/last_error.h"
#include "emulator/host/calls.h"
#include "rdmaemu/rdmaemu.h"

namespace rdmaemu::embedded {
namespace {

using Json = nlohmann::json;
using CallFunction = decltype(&rdmaemu_client_call);

int CallHost(CallOp op, const void* in, size_t in_bytes, std::string* out) {
  const auto call = reinterpret_cast<CallFunction>(dlsym(RTLD_DEFAULT, "rdmaemu_client_call"));
  if (call == nullptr) {
    return Refuse(ENOTSUP,
                  "this process does not use rdmaemu's libibverbs.so.1, so it has no host of "
                  "rdmaemu; link with the flags of `pkg-config --libs rdmaemu`, or start it with "
                  "`rdmaemu run`");
  }
  std::string reply(out == nullptr ? 0 : kMaxReplyBytes, '\0');
  uint32_t filled = 0;
  const int error = call(static_cast<uint32_t>(op), in, static_cast<uint32_t>(in_bytes),
                         reply.data(), static_cast<uint32_t>(reply.size()), &filled, nullptr, 0);
  if (error == 0 && out != nullptr) *out = reply.substr(0, filled);
  if (error == EIO || error == ENODEV) {
    return Refuse(error,
                  "this process has no host: it was closed, has ended, or none could be "
                  "reached; open one with rdmaemu_open");
  }
  return -error;
}

// One of kFault*, whose answers are JSON.
int CallFault(CallOp op, std::string_view text, Json& answer) {
  if (text.size() > kMaxFaultTextBytes) {
    return Refuse(EMSGSIZE, "the text is longer than " + std::to_string(kMaxFaultTextBytes) +
                                " bytes, which no rule is");
  }
  std::string reply;
  const int error = CallHost(op, text.data(), text.size(), &reply);
  if (error != 0) return error;
  answer = Json::parse(reply, nullptr, false);
  if (answer.is_discarded()) return Refuse(EPROTO, "the host's answer is no JSON");
  if (answer.is_object() && answer.contains("error")) {
    return Refuse(op == CallOp::kFaultAdd ? EINVAL : ENOENT, answer["error"].get<std::string>());
  }
  return 0;
}

template <size_t N>
void CopyText(const Json& from, char (&to)[N]) {
  const std::string text = from.get<std::string>();
  to[text.copy(to, N - 1)] = '\0';
}

int NoText(const char* what) { return Refuse(EINVAL, std::string(what) + " is NULL; give a text"); }

// Names are cut by nobody here: what has no room is no device's name.
template <size_t N>
bool PutName(const char* name, char (&to)[N]) {
  if (name == nullptr || std::strlen(name) >= sizeof to) return false;
  std::strcpy(to, name);
  return true;
}

int ChangeErrno(int error, const char* device) {
  const std::string name = device == nullptr ? "" : device;
  if (error == -ENODEV || error == -ENOENT) {
    return Refuse(-error, "there is no device or address \"" + name + "\" on this host");
  }
  if (error < 0 && LastError().empty()) LastError() = std::strerror(-error);
  return error;
}

int Change(DeviceChange what, const char* device, const char* profile, const char* address) {
  ChangeDeviceIn in{};
  in.change = static_cast<uint32_t>(what);
  in.link_mtu_bytes = 1500;
  in.on_wire = 1;
  if (device != nullptr && !PutName(device, in.device)) {
    return Refuse(EINVAL, "a device's name has 1 to 63 letters, digits, '-' and '_'");
  }
  if (profile != nullptr && !PutName(profile, in.profile)) {
    return Refuse(EINVAL, "a running host takes its profiles by name: \"rxe\" or \"siw\"");
  }
  if (address != nullptr) {
    const auto parsed = NetAddress::Parse(address);
    if (!parsed) {
      return Refuse(EINVAL, "\"" + std::string(address) +
                                "\" is no IPv4 or IPv6 address; give one as in \"10.0.0.1\"");
    }
    std::copy(parsed->bytes.begin(), parsed->bytes.end(), in.address);
  }
  const int error = CallHost(CallOp::kChangeDevice, &in, sizeof in, nullptr);
  return ChangeErrno(error, device != nullptr ? device : address);
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

int rdmaemu_rule_add(const char* rule, char* name, size_t name_bytes) {
  return AtDoor([&] {
    if (rule == nullptr) return NoText("rule");
    Json answer;
    const int error = CallFault(CallOp::kFaultAdd, rule, answer);
    if (error != 0) return error;
    if (name != nullptr && name_bytes > 0) {
      const std::string text = answer.at("name").get<std::string>();
      name[text.copy(name, name_bytes - 1)] = '\0';
    }
    return 0;
  });
}

int rdmaemu_rule_remove(const char* name) {
  return AtDoor([&] {
    if (name == nullptr) return NoText("name");
    Json answer;
    return CallFault(CallOp::kFaultRemove, name, answer);
  });
}

int rdmaemu_rule_release(const char* name) {
  return AtDoor([&] {
    if (name == nullptr) return NoText("name");
    Json answer;
    return CallFault(CallOp::kFaultRelease, name, answer);
  });
}

int rdmaemu_rules_clear() {
  return AtDoor([] {
    Json answer;
    return CallFault(CallOp::kFaultClear, "", answer);
  });
}

int rdmaemu_rules(rdmaemu_rule* rules, size_t capacity) {
  return AtDoor([&] {
    Json answer;
    const int error = CallFault(CallOp::kFaultList, "", answer);
    if (error != 0) return error;
    for (size_t i = 0; rules != nullptr && i < std::min(capacity, answer.size()); i++) {
      const Json& from = answer.at(i);
      CopyText(from.at("name"), rules[i].name);
      CopyText(from.at("at"), rules[i].at);
      CopyText(from.at("does"), rules[i].does);
      rules[i].matched = from.at("matched").get<uint64_t>();
      rules[i].fired = from.at("fired").get<uint64_t>();
    }
    return static_cast<int>(answer.size());
  });
}

int rdmaemu_device_remove(const char* device) {
  return AtDoor([&] {
    return device == nullptr ? NoText("device")
                             : Change(DeviceChange::kRemoveDevice, device, nullptr, nullptr);
  });
}

int rdmaemu_device_add(const char* device, const char* profile) {
  return AtDoor([&] {
    return device == nullptr ? NoText("device")
                             : Change(DeviceChange::kAddDevice, device, profile, nullptr);
  });
}

int rdmaemu_port_set(const char* device, int up) {
  return AtDoor([&] {
    const DeviceChange change = up != 0 ? DeviceChange::kPortUp : DeviceChange::kPortDown;
    return device == nullptr ? NoText("device") : Change(change, device, nullptr, nullptr);
  });
}

int rdmaemu_address_add(const char* device, const char* address) {
  return AtDoor([&] {
    if (device == nullptr || address == nullptr) return NoText("device or address");
    return Change(DeviceChange::kAddAddress, device, nullptr, address);
  });
}

int rdmaemu_address_remove(const char* address) {
  return AtDoor([&] {
    return address == nullptr ? NoText("address")
                              : Change(DeviceChange::kRemoveAddress, nullptr, nullptr, address);
  });
}

int rdmaemu_address_move(const char* address, const char* to_device) {
  return AtDoor([&] {
    if (to_device == nullptr || address == nullptr) return NoText("to_device or address");
    return Change(DeviceChange::kMoveAddress, to_device, nullptr, address);
  });
}
