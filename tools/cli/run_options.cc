#include "tools/cli/run_options.h"

#include <algorithm>
#include <filesystem>

#include "emulator/runtime/clock.h"
#include "emulator/runtime/host_setup.h"
#include "tools/cli/completion_options.h"
#include "tools/cli/environment.h"
#include "tools/cli/program_trace/convert.h"
#include "tools/cli/run_report.h"
#include "tools/cli/running_host_options.h"

namespace rdmaemu::cli {
namespace {

using runtime::HostOptions;

constexpr const char* kRunExample =
    "Example, two machines on one laptop:\n"
    "  rdmaemu run --host a --address 127.0.1.1 -- rping -s -a 127.0.1.1 -C 10\n"
    "  rdmaemu run --host b --address 127.0.1.2 -- rping -c -a 127.0.1.1 -C 10 -V\n"
    "The same program on this machine's own device, soft-RoCE or a real one:\n"
    "  rdmaemu run --backend system --device rxe0 -- ibv_devinfo\n"
    "A failure when the program uses the libraries wrongly:\n"
    "  rdmaemu run --check=error -- ./my_test\n"
    "A CI job that no other job of the same user can disturb:\n"
    "  rdmaemu run --private -- ./ci.sh\n\n"
    "Exit status: that of CMD, or 128+n if signal n ended CMD. Other statuses:\n"
    "  121  with --check=error, CMD succeeded and there are findings\n"
    "  122  CMD succeeded and the run departed from the trace of --replay\n"
    "  123  with --strict, CMD succeeded and a rule never fired\n"
    "  125  rdmaemu itself failed, or a trace or capture was cut\n"
    "  126  CMD cannot be executed\n"
    "  127  there is no CMD\n"
    "docs/command.md has the statuses of all commands.\n\n"
    "Commands find hosts in the directory RDMAEMU_DIR. Default: $XDG_RUNTIME_DIR/rdmaemu, else"
    " /tmp/rdmaemu-UID.";

// Refuses an empty value, for example of an unset shell variable. An empty value would otherwise
// mean the default.
CLI::Validator IsNotEmpty() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? "the value is empty; give a value, or omit the option" : "";
      },
      "");
}

// Adds the options for the host's network and devices.
void AddNetworkOptions(CLI::App& command, HostOptions& options,
                       std::vector<std::string>& profiles) {
  // Each option takes one value at a time, so that it never takes CMD as a value.
  command
      .add_option(
          "--address", options.addresses,
          "Addresses of the host on the network (UDP port 4791), with the prefixes of their "
          "networks. The networks are the host's routes. Without BITS, the prefix is that of the "
          "machine's interface, else 127.0.0.0/8, /24 (IPv4) or /64 (IPv6). Default: 127.0.0.1 and "
          "::1 on the network, and the machine's other addresses inside the host only")
      ->type_name("IP[/BITS][,...]")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--device", options.devices,
                  "RDMA devices. A device with @IP has exactly these addresses. The addresses of "
                  "--address are assigned to the other devices in turn. Default: rxe0=rxe")
      ->type_name("NAME[=PROFILE][@IP[/BITS]...]")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--profile", profiles,
                  "A device that behaves as PROFILE, with a name made from the profile's: rxe, "
                  "rxe-6.12, siw, mlx5-roce, mlx5-ib, minimal, or a TOML file (docs/profiles.md). "
                  "Same as --device NAME0=PROFILE")
      ->type_name("PROFILE")
      ->allow_extra_args(false);
  command
      .add_option("--silent-net", options.silent_nets,
                  "Networks in which no address answers. Resolving such an address ends with "
                  "RDMA_CM_EVENT_ADDR_ERROR, status -ETIMEDOUT, at the time-out")
      ->type_name("IP/BITS[,...]")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--gateway", options.gateways,
                  "Next hops for destinations outside the host's networks. Without a gateway, "
                  "rdma_resolve_addr returns ENETUNREACH for such a destination")
      ->type_name("IP[,IP...]")
      ->delimiter(',')
      ->allow_extra_args(false);
}

// Adds the options for the host's files, its clock and its transport.
void AddOtherOptions(CLI::App& command, HostOptions& options) {
  command.add_option("--pcap", options.pcap_path, "Write all packets to FILE (pcapng)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  command
      .add_option("--trace", options.trace_path,
                  "Write the host's trace to FILE (one JSON object per line)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  command.add_option("--scenario", options.scenario_path, "Fault rules (TOML, docs/faults.md)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  command
      .add_option("--clock", options.clock,
                  "The host's clock: real, scaled:K (K times as fast), virtual (jumps to the next "
                  "deadline), manual (advanced by `rdmaemu clock`), program (virtual with "
                  "--program-time). Default: real (docs/time.md)")
      ->check(IsNotEmpty())
      ->type_name("MODE");
  command
      .add_option(
          "--payload-shortcuts", options.payload_shortcuts,
          "off: the host copies every payload when it is posted and delivered, and programs "
          "fetch each event of RDMA CM by a call. This is slower, and makes no other "
          "difference to programs that keep to the "
          "man pages (docs/processes.md). Default: on")
      ->type_name("on|off")
      ->check(CLI::IsMember({"on", "off"}));
  command
      .add_option(
          "--wire", options.wire,
          "shared: packets to other hosts of the same user on this machine are in shared memory. "
          "udp: every packet to another host is a datagram of a socket. udp-single: as udp, "
          "without "
          "bursts (UDP_SEGMENT). Default: shared")
      ->type_name("shared|udp|udp-single")
      ->check(CLI::IsMember({"shared", "udp", "udp-single"}));
  command
      .add_option("--seed", options.seed,
                  "Seed of the host's random choices: keys, numbers, random decisions of rules")
      ->check(IsNotEmpty())
      ->type_name("N");
}

// Adds the devices of --profile options. Returns the error message, if any.
std::optional<std::string> AddProfiles(const std::vector<std::string>& profiles,
                                       HostOptions& options) {
  for (const std::string& profile : profiles) {
    const auto device = runtime::DeviceOfProfile(profile);
    if (!device) return device.error();
    options.devices.push_back(*device);
  }
  return std::nullopt;
}

// A daemon has another working directory, so paths must be absolute.
void MakePathsAbsolute(HostOptions& options) {
  for (std::string* path : {&options.pcap_path, &options.trace_path, &options.scenario_path}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
  for (std::string& device : options.devices) {
    const size_t at = device.find('=') + 1;  // 0: the option has no profile
    const size_t end = std::min(device.find('@'), device.size());
    if (at == 0 || at > end) continue;
    const std::string profile = device.substr(at, end - at);
    if (!runtime::IsProfileFile(profile)) continue;
    device = device.substr(0, at) + std::filesystem::absolute(profile).lexically_normal().string() +
             device.substr(end);
  }
}

// Errors that need no system call are reported before anything is started.
std::optional<std::string> CheckOptions(const HostOptions& options) {
  if (const auto wrong = runtime::CheckHostName(options.name)) return wrong;
  for (const std::string& address : options.addresses) {
    if (const auto parsed = runtime::ParseAddressOption(address); !parsed) return parsed.error();
  }
  for (const std::string& device : options.devices) {
    if (const auto parsed = runtime::ParseDeviceOption(device); !parsed) return parsed.error();
  }
  for (const std::string& net : options.silent_nets) {
    if (const auto parsed = runtime::ParseSilentNetOption(net); !parsed) return parsed.error();
  }
  for (const std::string& gateway : options.gateways) {
    if (const auto parsed = runtime::ParseGatewayOption(gateway); !parsed) return parsed.error();
  }
  if (const auto wrong = runtime::CheckChoices(options)) return wrong;
  if (!options.seed.empty() && !runtime::ParseSeed(options.seed)) {
    return "\"" + options.seed +
           "\" is not a seed; use a number from 0 to 18446744073709551615, or the seed that "
           "`rdmaemu run` printed";
  }
  if (const auto clock = runtime::ParseClockOption(options.clock); !clock) return clock.error();
  if (!options.scenario_path.empty()) {
    if (const auto rules = runtime::ReadScenario(options.scenario_path); !rules) {
      return rules.error();
    }
  }
  return std::nullopt;
}

// Returns the program of `run`: the arguments after "--", or else those after the options.
runtime::OrMessage<std::vector<std::string>> ProgramOf(const CLI::App& run,
                                                       const std::vector<std::string>& command) {
  std::vector<std::string> rest = run.remaining();
  if (!rest.empty() && rest[0].starts_with('-')) {
    return tl::unexpected("there is no option " + rest[0] + "; see rdmaemu run --help");
  }
  rest.insert(rest.end(), command.begin(), command.end());
  if (rest.empty()) {
    return tl::unexpected(std::string(
        "no program is given; put the program after --, as in: rdmaemu run -- rping -s"));
  }
  return rest;
}

// Returns whether an option is about fault rules. On the system backend such an option starts a
// host that accepts rules.
bool IsForRules(const std::string& option) {
  return option == "--host" || option == "--scenario" || option == "--strict" ||
         option == "--seed" || option == "--trace";
}

bool HasRules(const CLI::App& run) {
  return std::ranges::any_of(run.get_options(), [](const CLI::Option* option) {
    return option->count() > 0 && IsForRules(option->get_name());
  });
}

// `name`: auto, fuse, preload or off.
SysfsDoor DoorOf(const std::string& name) {
  if (name == "fuse") return SysfsDoor::kFuse;
  if (name == "preload") return SysfsDoor::kPreload;
  return name == "off" ? SysfsDoor::kOff : SysfsDoor::kAuto;
}

// Returns the first option of `run` that the machine's own devices do not support. Returns nullopt
// if there is none.
std::optional<std::string> NeedsEmulator(const CLI::App& run) {
  for (const CLI::Option* option : run.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--backend" || name == "--device" ||
        name == "--program-trace" || name == "--program-trace-limit" ||
        name == "--payload-hashes" || name == "--check" || name == "--check-json" ||
        IsForRules(name)) {
      continue;
    }
    return name +
           " needs the emulator; with --backend system a program gets the machine's own devices "
           "unchanged";
  }
  return std::nullopt;
}

}  // namespace

SharedHostOptions::SharedHostOptions(int failed) : failed_(failed) {
  options_.name = DefaultHostName();
}

void SharedHostOptions::AddTo(CLI::App& command) {
  AddNetworkOptions(command, options_, profiles_);
  AddOtherOptions(command, options_);
}

void SharedHostOptions::AddNameTo(CLI::App& command, const std::string& names,
                                  const std::string& help) {
  command.add_option(names, options_.name, help)->type_name("NAME");
}

void SharedHostOptions::AddProgramTimeTo(CLI::App& command) {
  command.add_flag(
      "--program-time", program_time_,
      "Make the hosts' virtual time the program's time. The program's clocks, timers and "
      "time-outs follow that time. Time advances only while all programs wait (docs/time.md)");
}

std::optional<int> SharedHostOptions::Check(bool reads_environment) {
  if (const auto wrong = AddProfiles(profiles_, options_)) return Fail(failed_, *wrong);
  if (reads_environment) ReadOptionEnvironment(options_);
  if (program_time_) {
    if (options_.clock != "virtual" && options_.clock != kProgramClock) {
      return Fail(failed_,
                  "--program-time needs a clock that does not run by itself; add --clock virtual");
    }
    options_.clock = kProgramClock;
  }
  MakePathsAbsolute(options_);
  if (const auto wrong = CheckOptions(options_)) return Fail(failed_, *wrong);
  return std::nullopt;
}

RunCommand::RunCommand(CLI::App& app)
    : run_(app.add_subcommand(
          "run", "Run a program on an emulated host: rdmaemu run [OPTIONS] -- CMD ARGS...")),
      host_(kRunFailed),
      program_trace_{.limit_bytes = kMaxRecordingBytes},
      report_{.version = VersionText()} {
  host_.AddNameTo(*run_, "--host", "Name of the host. `run` starts the host if it does not run");
  host_.AddTo(*run_);
  run_->add_option("--backend", backend_,
                   "emulator (default), or system: the machine's own rdma-core and device. "
                   "--device selects one of the machine's devices")
      ->check(CLI::IsMember({"emulator", "system"}))
      ->type_name("NAME");
  AddTrace();
  AddChecks();
  host_.AddProgramTimeTo(*run_);
  AddPlace();
  AddReportOptions(*run_, report_);
  run_->get_option("--report")->check(IsNotEmpty());
  run_->prefix_command();
  run_->footer(kRunExample);
}

// Adds the options for rules that never fire, and for traces.
void RunCommand::AddTrace() {
  run_->add_flag("--strict", strict_,
                 "Fail with status 123 if CMD succeeded and a fault rule of the host never fired");
  run_->add_option(
          "--replay", replay_,
          "Use the seed of TRACE and compare this run with TRACE. Print the record at which the "
          "run departs from TRACE, and fail with status 122 if CMD succeeded and the run departed")
      ->check(IsNotEmpty())
      ->type_name("TRACE");
  run_->add_option("--program-trace", program_trace_.path,
                   "Write each call, event and completion of CMD and its children as JSON lines, "
                   "on either backend (docs/trace.md)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  run_->add_option("--program-trace-limit", program_trace_.limit_bytes,
                   "Limit of the recording for --program-trace, such as 500M; default 4G. Records "
                   "beyond the limit are lost, and `run` fails with status 125")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  run_->add_flag("--payload-hashes", program_trace_.hashes_payloads,
                 "Add to the trace a hash of the bytes that each request sends, and of the "
                 "received bytes (docs/trace.md)")
      ->needs("--program-trace");
}

void RunCommand::AddChecks() {
  run_->add_flag("--check{report}", check_,
                 "Check how CMD and its children use libibverbs and librdmacm, on either backend. "
                 "Print each finding with its place (docs/checks.md). With --check=error, fail "
                 "with status 121 if CMD succeeded and there are findings")
      ->check(CLI::IsMember({"report", "error"}));
  run_->add_option("--check-json", checks_.json_path,
                   "Also write the findings of --check as JSON lines")
      ->check(IsNotEmpty())
      ->type_name("FILE")
      ->needs("--check");
}

// Adds the options for where the program finds devices and hosts.
void RunCommand::AddPlace() {
  run_->add_option(
          "--sysfs", sysfs_,
          "How CMD finds the devices under /sys and /dev (docs/filesystem.md). fuse: a mount that "
          "only CMD and its children see. preload: a library that redirects file calls. off: not "
          "at all. auto (default): fuse if the system allows it, else preload")
      ->check(CLI::IsMember({"auto", "fuse", "preload", "off"}, CLI::ignore_case))
      ->type_name("DOOR")
      ->option_text("auto|fuse|preload|off");
  run_->add_flag("--private", is_private_,
                 "Use hosts that no other command can find, in a private network namespace if the "
                 "kernel allows it. Commands that CMD starts use the same hosts");
}

int RunCommand::DoOnSystem(const std::vector<std::string>& command) {
  HostOptions& options = host_.values();
  if (const auto wrong = NeedsEmulator(*run_)) return Fail(kRunFailed, *wrong);
  const auto program = ProgramOf(*run_, command);
  MakePathsAbsolute(options);
  if (const auto wrong = runtime::CheckHostName(options.name)) return Fail(kRunFailed, *wrong);
  if (!program) return Fail(kUsage, program.error());
  return RunOnSystem({options, HasRules(*run_), strict_, program_trace_, checks_, *program});
}

int RunCommand::Do(const std::vector<std::string>& command) {
  checks_.is_wanted = !check_.empty();
  checks_.is_error = check_ == "error";
  if (backend_ == "system") return DoOnSystem(command);
  if (const auto failed = host_.Check(/*reads_environment=*/false)) return *failed;
  const auto program = ProgramOf(*run_, command);
  if (!program) return Fail(kUsage, program.error());
  return RunAndReport({host_.values(), strict_, replay_, is_private_, program_trace_, checks_,
                       DoorOf(sysfs_), *program, report_});
}

EnvCommand::EnvCommand(CLI::App& app)
    : env_(app.add_subcommand("env", "Print the environment of `run` for a shell")), host_(kUsage) {
  host_.AddNameTo(*env_, "--host", "Name of the host");
  host_.AddTo(*env_);
  host_.AddProgramTimeTo(*env_);
  env_->footer(
      "Example:\n  eval \"$(rdmaemu env --host a --address 127.0.1.1)\"; rping -s -a 127.0.1.1");
}

int EnvCommand::Do() {
  if (const auto failed = host_.Check(/*reads_environment=*/false)) return *failed;
  return Env(host_.values());
}

HostCommand::HostCommand(CLI::App& app)
    : command_(app.add_subcommand("host", "Run a host until it is stopped")), host_(kUsage) {
  host_.AddNameTo(*command_, "--name,--host", "Name of the host");
  host_.AddTo(*command_);
  command_->add_flag(
      "--daemonize", daemonize_,
      "Run in the background. Return when programs can connect. End after the last program");
  command_->footer(
      "Options that are not given come from the environment variables RDMAEMU_ADDRESS, "
      "RDMAEMU_DEVICE, RDMAEMU_SILENT_NET, RDMAEMU_GATEWAY, RDMAEMU_PCAP, RDMAEMU_TRACE, "
      "RDMAEMU_SCENARIO, RDMAEMU_CLOCK, RDMAEMU_SEED, RDMAEMU_PAYLOAD_SHORTCUTS and RDMAEMU_WIRE, "
      "which `rdmaemu env` sets.\n"
      "\n"
      "Example:\n"
      "  rdmaemu host --name a --address 127.0.1.1 --pcap a.pcapng");
}

int HostCommand::Do() {
  if (const auto failed = host_.Check(/*reads_environment=*/true)) return *failed;
  return HostMain(host_.values(), daemonize_);
}

std::string VersionText() {
  return "rdmaemu " RDMAEMU_VERSION "\nbuild: " __VERSION__
         ", "
#ifdef NDEBUG
         "optimized"
#else
         "with assertions"
#endif
         ", calls version " +
         std::to_string(kCallVersion);
}

}  // namespace rdmaemu::cli
