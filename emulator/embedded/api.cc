// Functions of rdmaemu.h that open, add and close the hosts of this process.

#include "rdmaemu/rdmaemu.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "emulator/embedded/last_error.h"
#include "emulator/embedded/process_host.h"

namespace rdmaemu::embedded {
namespace {

constexpr uint64_t kDefaultSeed = 1;

std::vector<std::string> Split(const char* text) {
  std::vector<std::string> parts;
  const std::string all = text == nullptr ? "" : text;
  for (size_t start = 0; start < all.size();) {
    const size_t comma = std::min(all.find(',', start), all.size());
    if (comma > start) parts.push_back(all.substr(start, comma - start));
    start = comma + 1;
  }
  return parts;
}

const char* Or(const char* text, const char* otherwise) {
  return text == nullptr || *text == '\0' ? otherwise : text;
}

runtime::OrMessage<void> TakeDevices(const rdmaemu_options& from, EmbeddedOptions& to) {
  if (from.device_count == 0) return {};
  if (from.devices == nullptr || from.device_count > kMaxDevices) {
    return tl::unexpected("device_count is " + std::to_string(from.device_count) +
                          "; give `devices` with 1 to " + std::to_string(kMaxDevices) + " of them");
  }
  for (size_t i = 0; i < from.device_count; i++) {
    const rdmaemu_device& device = from.devices[i];
    to.host.devices.push_back(std::string(Or(device.name, "")) + "=" + Or(device.profile, "rxe"));
    to.device_addresses.push_back(Split(device.addresses));
    if (to.device_addresses.back().empty()) {
      return tl::unexpected("device " + std::string(Or(device.name, "")) +
                            " has no address: give it one, as in .addresses = \"10.0.0.1\"");
    }
  }
  return {};
}

// Converts the options. The seed stays empty if none is given.
runtime::OrMessage<EmbeddedOptions> TakeOptions(const rdmaemu_options& from,
                                                const char* default_name) {
  EmbeddedOptions to;
  to.host.name = Or(from.name, default_name);
  if (const auto wrong = runtime::CheckHostName(to.host.name)) return tl::unexpected(*wrong);
  if (const auto taken = TakeDevices(from, to); !taken) return tl::unexpected(taken.error());
  const auto clock = runtime::ParseClockOption(Or(from.clock, "virtual"));
  if (!clock) return tl::unexpected(clock.error());
  to.clock = *clock;
  if (from.seed != 0) to.host.seed = std::to_string(from.seed);
  to.host.scenario_path = Or(from.scenario_path, "");
  to.host.trace_path = Or(from.trace_path, "");
  to.host.pcap_path = Or(from.pcap_path, "");
  to.host.silent_nets = Split(from.silent_nets);
  to.host.gateways = Split(from.gateways);
  to.host.payload_shortcuts = Or(from.payload_shortcuts, "");
  to.program_time = from.program_time != 0;
  to.report_bytes = from.report_bytes;
  return to;
}

// Copies the caller's options. Returns 0 or a negative errno. For NULL, `options` already holds the
// defaults.
int CopyOptions(const rdmaemu_options* given, rdmaemu_options& options) {
  if (given == nullptr) return 0;
  // A program that was built with an older header passes a struct that is a prefix of this one.
  if (given->size < offsetof(rdmaemu_options, name) || given->size > sizeof options) {
    return Refuse(EINVAL,
                  "options.size is not the size of a struct rdmaemu_options that this library "
                  "knows; set it to sizeof(struct rdmaemu_options), and run with the library "
                  "that the header came with");
  }
  std::memcpy(&options, given, given->size);
  return 0;
}

// Applies RDMAEMU_PROGRAM_TIME and the clock "program". Returns 0 or a negative errno.
int TakeProgramTime(EmbeddedOptions& options) {
  const char* const asked = std::getenv("RDMAEMU_PROGRAM_TIME");
  if (asked != nullptr && std::strcmp(asked, "1") == 0) options.program_time = true;
  using Mode = runtime::ClockOption::Mode;
  if (options.clock.mode == Mode::kProgram) {  // one word selects both, as in `rdmaemu run --clock`
    options.clock.mode = Mode::kVirtual;
    options.program_time = true;
  }
  if (!options.program_time || options.clock.mode == Mode::kVirtual ||
      options.clock.mode == Mode::kManual) {
    return 0;
  }
  return Refuse(EINVAL,
                "program_time needs a clock that does not run by itself; open the host with .clock "
                "= \"virtual\" or \"manual\", or without program_time and RDMAEMU_PROGRAM_TIME=1");
}

// Calls `use` with the host of that name. NULL means the first host.
template <class Use>
int WithNamedHost(const char* name, Use&& use) {
  return WithHosts([&](EmbeddedHosts& hosts) {
    EmbeddedHost* const host = name == nullptr ? hosts.At(0) : hosts.Find(name);
    if (host != nullptr) return use(hosts, *host);
    return Refuse(ENOENT, "this process has no host \"" + std::string(name) +
                              "\"; add it with rdmaemu_host_add");
  });
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

int rdmaemu_open(const rdmaemu_options* given) {
  return AtDoor([&] {
    rdmaemu_options options{};
    if (const int error = CopyOptions(given, options); error != 0) return error;
    auto taken = TakeOptions(options, "embedded");
    if (!taken) return Refuse(EINVAL, taken.error());
    if (taken->host.seed.empty()) taken->host.seed = std::to_string(kDefaultSeed);
    if (const int error = TakeProgramTime(*taken); error != 0) return error;
    const auto opened = ProcessHost::Get().Open(*taken);
    return opened ? 0 : Refuse(opened.error().error, opened.error().message);
  });
}

int rdmaemu_host_add(const rdmaemu_options* given) {
  return AtDoor([&] {
    rdmaemu_options options{};
    if (given == nullptr) return Refuse(EINVAL, "options is NULL; a host needs name and devices");
    if (const int error = CopyOptions(given, options); error != 0) return error;
    if (*Or(options.name, "") == '\0') {
      return Refuse(EINVAL, "a host that is added needs a name, as in .name = \"b\"");
    }
    if (*Or(options.clock, "") != '\0') {
      return Refuse(EINVAL,
                    "the hosts of a process have one clock, that of rdmaemu_open; leave .clock "
                    "empty");
    }
    if (options.program_time != 0) {
      return Refuse(EINVAL, "the program's time is that of rdmaemu_open; leave .program_time 0");
    }
    if (options.device_count == 0) {
      return Refuse(EINVAL, "host \"" + std::string(options.name) +
                                "\" has no device; give it one, with addresses of its own");
    }
    const auto taken = TakeOptions(options, "");
    if (!taken) return Refuse(EINVAL, taken.error());
    const auto added = ProcessHost::Get().Add(*taken);
    return added ? 0 : Refuse(added.error().error, added.error().message);
  });
}

int rdmaemu_host_enter(const char* name) {
  return AtDoor([&] {
    return WithNamedHost(name, [](EmbeddedHosts&, EmbeddedHost& host) {
      ProcessHost::Get().Enter(host.number());
      return 0;
    });
  });
}

int rdmaemu_host_entered(char* name, size_t bytes) {
  return AtDoor([&] {
    std::string entered;
    const int result = WithHosts([&](EmbeddedHosts& hosts) {
      entered = hosts.At(ProcessHost::Get().entered())->name();
      return 0;
    });
    if (result < 0) return result;
    if (name != nullptr && bytes > 0) name[entered.copy(name, bytes - 1)] = '\0';
    return static_cast<int>(entered.size());
  });
}

int rdmaemu_host_remove(const char* name) {
  return AtDoor([&] {
    if (name == nullptr) return Refuse(EINVAL, "name is NULL; give the name of the host");
    return WithNamedHost(name, [](EmbeddedHosts& hosts, EmbeddedHost& host) {
      if (host.has_ended()) {
        return Refuse(ENOENT, "the host \"" + host.name() + "\" has ended already");
      }
      hosts.End(host);
      return 0;
    });
  });
}

int rdmaemu_close() {
  return AtDoor([] { return ProcessHost::Get().Close() ? 0 : RefuseWithoutHost(); });
}

int rdmaemu_timeline(char* text, size_t bytes) {
  return AtDoor([&] {
    std::string all;
    const int result = WithHosts([&](EmbeddedHosts& hosts) {
      all = hosts.TraceText();
      return 0;
    });
    if (result < 0) return result;
    if (text != nullptr && bytes > 0) {
      const size_t room = std::min(bytes - 1, all.size());
      std::memcpy(text, all.data() + all.size() - room, room);
      text[room] = '\0';
    }
    return static_cast<int>(all.size());
  });
}

const char* rdmaemu_last_error() { return LastError().c_str(); }
