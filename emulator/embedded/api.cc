// rdmaemu.h: the host of this process and its time.

#include "rdmaemu/rdmaemu.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "emulator/embedded/last_error.h"
#include "emulator/embedded/process_host.h"

namespace rdmaemu::embedded {
namespace {

constexpr uint64_t kDefaultSeed = 1;
constexpr uint64_t kMaxAdvance_ns = uint64_t{1} << 60;  // 36 years

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

runtime::OrMessage<EmbeddedOptions> TakeOptions(const rdmaemu_options& from) {
  EmbeddedOptions to;
  to.host.name = Or(from.name, "embedded");
  if (const auto wrong = runtime::CheckHostName(to.host.name)) return tl::unexpected(*wrong);
  if (const auto taken = TakeDevices(from, to); !taken) return tl::unexpected(taken.error());
  const auto clock = runtime::ParseClockOption(Or(from.clock, "virtual"));
  if (!clock) return tl::unexpected(clock.error());
  to.clock = *clock;
  to.host.seed = std::to_string(from.seed == 0 ? kDefaultSeed : from.seed);
  to.host.scenario_path = Or(from.scenario_path, "");
  to.host.trace_path = Or(from.trace_path, "");
  to.host.pcap_path = Or(from.pcap_path, "");
  to.host.silent_nets = Split(from.silent_nets);
  return to;
}

}  // namespace
}  // namespace rdmaemu::embedded

using namespace rdmaemu;
using namespace rdmaemu::embedded;

int rdmaemu_open(const rdmaemu_options* given) {
  return AtDoor([&] {
    rdmaemu_options options{};
    if (given != nullptr) {
      // A program may have been built with an older header, whose struct is a beginning of ours.
      if (given->size < offsetof(rdmaemu_options, name) || given->size > sizeof options) {
        return Refuse(EINVAL,
                      "options.size is not the size of a struct rdmaemu_options that this library "
                      "knows; set it to sizeof(struct rdmaemu_options), and run with the library "
                      "that the header came with");
      }
      std::memcpy(&options, given, given->size);
    }
    const auto taken = TakeOptions(options);
    if (!taken) return Refuse(EINVAL, taken.error());
    const auto opened = ProcessHost::Get().Open(*taken);
    return opened ? 0 : Refuse(opened.error().error, opened.error().message);
  });
}

int rdmaemu_close() {
  return AtDoor([] { return ProcessHost::Get().Close() ? 0 : RefuseWithoutHost(); });
}

int64_t rdmaemu_now() {
  int64_t now_ns = 0;
  const int result = AtDoor([&] {
    return WithHost([&](EmbeddedHost& host) {
      now_ns = host.Now().time_since_epoch().count();
      return 0;
    });
  });
  return result < 0 ? result : now_ns;
}

int rdmaemu_advance(uint64_t time_ns) {
  return AtDoor([&] {
    if (time_ns > kMaxAdvance_ns) {
      return Refuse(EINVAL, "time_ns is more than 36 years; is it a negative number?");
    }
    return WithHost([&](EmbeddedHost& host) {
      if (host.clock().runs()) {
        return Refuse(EOPNOTSUPP,
                      "this host's clock runs by itself; open it with .clock = \"virtual\" or "
                      "\"manual\"");
      }
      host.Advance(Duration(static_cast<int64_t>(time_ns)));
      return 0;
    });
  });
}

int rdmaemu_run_until_idle() {
  return AtDoor([] {
    return WithHost([](EmbeddedHost& host) {
      if (host.RunUntilIdle()) return 0;
      return Refuse(ELOOP,
                    "the host is never idle: something is due again and again, as a rule "
                    "without an end can make it; rdmaemu_timeline shows what");
    });
  });
}

int rdmaemu_timeline(char* text, size_t bytes) {
  return AtDoor([&] {
    std::string all;
    const int result = WithHost([&](EmbeddedHost& host) {
      all = host.TraceText();
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
