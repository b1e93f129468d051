// The command line of rdmaemu: subcommands, options and help.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "emulator/runtime/clock.h"
#include "emulator/runtime/host_setup.h"
#include "tools/cli/commands.h"
#include "tools/cli/completion_options.h"
#include "tools/cli/device_options.h"
#include "tools/cli/environment.h"
#include "tools/cli/execute.h"
#include "tools/cli/program_trace/convert.h"
#include "tools/cli/run_report.h"
#include "tools/cli/running_host_options.h"
#include "tools/cli/sweep_options.h"
#include "tools/cli/trace_options.h"

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

// The version, and the build: the compiler, and the version of the calls between a program and its
// host.
const std::string kVersion = "rdmaemu " RDMAEMU_VERSION "\nbuild: " __VERSION__
                             ", "
#ifdef NDEBUG
                             "optimized"
#else
                             "with assertions"
#endif
                             ", calls version " +
                             std::to_string(kCallVersion);

// Refuses an empty value, for example of an unset shell variable. An empty value would otherwise
// mean the default.
CLI::Validator IsNotEmpty() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? "the value is empty; give a value, or omit the option" : "";
      },
      "");
}

void AddHostOptions(CLI::App& app, HostOptions& options, std::vector<std::string>& profiles) {
  // Each option takes one value at a time, so that it never takes CMD as a value.
  app.add_option(
         "--address", options.addresses,
         "Addresses of the host on the network (UDP port 4791), with the prefixes of their "
         "networks. The networks are the host's routes. Without BITS, the prefix is that of the "
         "machine's interface, else 127.0.0.0/8, /24 (IPv4) or /64 (IPv6). Default: 127.0.0.1 and "
         "::1 on the network, and the machine's other addresses inside the host only")
      ->type_name("IP[/BITS][,...]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--device", options.devices,
                 "RDMA devices. A device with @IP has exactly these addresses. The addresses of "
                 "--address are assigned to the other devices in turn. Default: rxe0=rxe")
      ->type_name("NAME[=PROFILE][@IP[/BITS]...]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--profile", profiles,
                 "A device that behaves as PROFILE, with a name made from the profile's: rxe, "
                 "rxe-6.12, siw, mlx5-roce, mlx5-ib, minimal, or a TOML file (docs/profiles.md). "
                 "Same as --device NAME0=PROFILE")
      ->type_name("PROFILE")
      ->allow_extra_args(false);
  app.add_option("--silent-net", options.silent_nets,
                 "Networks in which no address answers. Resolving such an address ends with "
                 "RDMA_CM_EVENT_ADDR_ERROR, status -ETIMEDOUT, at the time-out")
      ->type_name("IP/BITS[,...]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--gateway", options.gateways,
                 "Next hops for destinations outside the host's networks. Without a gateway, "
                 "rdma_resolve_addr returns ENETUNREACH for such a destination")
      ->type_name("IP[,IP...]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--pcap", options.pcap_path, "Write all packets to FILE (pcapng)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  app.add_option("--trace", options.trace_path,
                 "Write the host's trace to FILE (one JSON object per line)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  app.add_option("--scenario", options.scenario_path, "Fault rules (TOML, docs/faults.md)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  app.add_option("--clock", options.clock,
                 "The host's clock: real, scaled:K (K times as fast), virtual (jumps to the next "
                 "deadline), manual (advanced by `rdmaemu clock`), program (virtual with "
                 "--program-time). Default: real (docs/time.md)")
      ->type_name("MODE");
  app.add_option("--payload-shortcuts", options.payload_shortcuts,
                 "off: the host copies every payload when it is posted and delivered, and programs "
                 "fetch each event of RDMA CM by a call. This is slower, and makes no other "
                 "difference to programs that keep to the "
                 "man pages (docs/processes.md). Default: on")
      ->type_name("on|off")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option(
         "--wire", options.wire,
         "shared: packets to other hosts of the same user on this machine are in shared memory. "
         "udp: every packet to another host is a datagram of a socket. udp-single: as udp, without "
         "bursts (UDP_SEGMENT). Default: shared")
      ->type_name("shared|udp|udp-single")
      ->check(CLI::IsMember({"shared", "udp", "udp-single"}));
  app.add_option("--seed", options.seed,
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

// Returns the mistake in the command line, and the help to read.
std::string ParseMessage(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  std::string path = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    path += " " + command->get_name();
  }
  std::string message = error.what();
  std::string choices;
  for (const CLI::App* each : command->get_subcommands([](const CLI::App*) { return true; })) {
    choices += (choices.empty() ? "" : ", ") + each->get_name();
  }
  if (!choices.empty() && command != &app) {
    const std::vector<std::string> rest = command->remaining();
    message = (rest.empty() ? path + " needs a command" : "there is no " + path + " " + rest[0]) +
              "; choose one of: " + choices;
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message + "; see " + path + " --help";
}

int Main(int argc, char** argv) {
  CLI::App app("An RDMA device made of software: runs RDMA programs on a machine that has none.",
               "rdmaemu");
  app.require_subcommand(1);
  app.set_version_flag("--version", kVersion);
  app.footer(
      "rdmaemu COMMAND --help describes one command, with an example. Its docs/ is "
      "share/doc/rdmaemu/ below the prefix of an installed rdmaemu.\n"
      "\n"
      "RDMAEMU_DIR names the directory in which commands find hosts. Default: "
      "$XDG_RUNTIME_DIR/rdmaemu, else /tmp/rdmaemu-UID. Commands with different directories do not "
      "find each other's hosts.\n"
      "RDMAEMU_HOST names the host of commands without a host's name. Default: \"default\".");

  HostOptions options;
  options.name = DefaultHostName();
  std::vector<std::string> profiles;
  std::string backend = "emulator";
  bool daemonize = false, strict = false;

  CLI::App* const run = app.add_subcommand(
      "run", "Run a program on an emulated host: rdmaemu run [OPTIONS] -- CMD ARGS...");
  run->add_option("--host", options.name,
                  "Name of the host. `run` starts the host if it does not run")
      ->type_name("NAME");
  AddHostOptions(*run, options, profiles);
  run->add_option("--backend", backend,
                  "emulator (default), or system: the machine's own rdma-core and device. --device "
                  "selects one of the machine's devices")
      ->check(CLI::IsMember({"emulator", "system"}))
      ->type_name("NAME");
  run->add_flag("--strict", strict,
                "Fail with status 123 if CMD succeeded and a fault rule of the host never fired");
  std::string replay;
  run->add_option(
         "--replay", replay,
         "Use the seed of TRACE and compare this run with TRACE. Print the record at which the run "
         "departs from TRACE, and fail with status 122 if CMD succeeded and the run departed")
      ->type_name("TRACE");
  ProgramTraceRequest program_trace{.limit_bytes = kMaxRecordingBytes};
  run->add_option("--program-trace", program_trace.path,
                  "Write each call, event and completion of CMD and its children as JSON lines, on "
                  "either backend (docs/trace.md)")
      ->check(IsNotEmpty())
      ->type_name("FILE");
  run->add_option("--program-trace-limit", program_trace.limit_bytes,
                  "Limit of the recording for --program-trace, such as 500M; default 4G. Records "
                  "beyond the limit are lost, and `run` fails with status 125")
      ->transform(CLI::AsSizeValue(false))
      ->type_name("SIZE");
  run->add_flag("--payload-hashes", program_trace.hashes_payloads,
                "Add to the trace a hash of the bytes that each request sends, and of the received "
                "bytes (docs/trace.md)")
      ->needs("--program-trace");
  std::string check;
  run->add_flag("--check{report}", check,
                "Check how CMD and its children use libibverbs and librdmacm, on either backend. "
                "Print each finding with its place (docs/checks.md). With --check=error, fail with "
                "status 121 if CMD succeeded and there are findings")
      ->check(CLI::IsMember({"report", "error"}));
  ChecksRequest checks;
  run->add_option("--check-json", checks.json_path,
                  "Also write the findings of --check as JSON lines")
      ->type_name("FILE")
      ->needs("--check");
  bool program_time = false;
  const auto add_program_time = [&](CLI::App& command) {
    command.add_flag(
        "--program-time", program_time,
        "Make the hosts' virtual time the program's time. The program's clocks, timers and "
        "time-outs follow that time. Time advances only while all programs wait (docs/time.md)");
  };
  add_program_time(*run);
  SysfsDoor sysfs = SysfsDoor::kAuto;
  run->add_option(
         "--sysfs", sysfs,
         "How CMD finds the devices under /sys and /dev (docs/filesystem.md). fuse: a mount that "
         "only CMD and its children see. preload: a library that redirects file calls. off: not at "
         "all. auto (default): fuse if the system allows it, else preload")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, SysfsDoor>{{"auto", SysfsDoor::kAuto},
                                                                   {"fuse", SysfsDoor::kFuse},
                                                                   {"preload", SysfsDoor::kPreload},
                                                                   {"off", SysfsDoor::kOff}},
                                  CLI::ignore_case))
      ->type_name("DOOR")
      ->option_text("auto|fuse|preload|off");
  bool is_private = false;
  run->add_flag("--private", is_private,
                "Use hosts that no other command can find, in a private network namespace if the "
                "kernel allows it. Commands that CMD starts use the same hosts");
  ReportRequest report{.version = kVersion};
  AddReportOptions(*run, report);
  run->get_option("--report")->check(IsNotEmpty());
  run->prefix_command();
  run->footer(kRunExample);

  CLI::App* const env = app.add_subcommand("env", "Print the environment of `run` for a shell");
  env->add_option("--host", options.name, "Name of the host")->type_name("NAME");
  AddHostOptions(*env, options, profiles);
  add_program_time(*env);
  env->footer(
      "Example:\n  eval \"$(rdmaemu env --host a --address 127.0.1.1)\"; rping -s -a 127.0.1.1");

  const HostsCommand hosts(app);
  CLI::App* const stop = app.add_subcommand("stop", "Stop a host, even one that is in use");
  std::string stopped;
  stop->add_option("NAME,--host", stopped, "Name of the host");
  stop->footer("Example:\n  rdmaemu stop a");

  const FaultCommand fault(app);
  const ClockCommand clock(app);
  const WaitCommand wait(app);
  const MountCommands mount(app);
  const TraceOptions trace(app);
  AbOptions ab(app);
  SweepOptions sweep(app);
  const CompletionOptions completion(app);

  CLI::App* const host = app.add_subcommand("host", "Run a host until it is stopped");
  host->add_option("--name,--host", options.name, "Name of the host")->type_name("NAME");
  AddHostOptions(*host, options, profiles);
  host->add_flag(
      "--daemonize", daemonize,
      "Run in the background. Return when programs can connect. End after the last program");
  host->footer(
      "Options that are not given come from the environment variables RDMAEMU_ADDRESS, "
      "RDMAEMU_DEVICE, RDMAEMU_SILENT_NET, RDMAEMU_GATEWAY, RDMAEMU_PCAP, RDMAEMU_TRACE, "
      "RDMAEMU_SCENARIO, RDMAEMU_CLOCK, RDMAEMU_SEED, RDMAEMU_PAYLOAD_SHORTCUTS and RDMAEMU_WIRE, "
      "which `rdmaemu env` sets.\n"
      "\n"
      "Example:\n"
      "  rdmaemu host --name a --address 127.0.1.1 --pcap a.pcapng");

  CLI::App* const install = app.add_subcommand(
      "install", "Copy the command, its libraries, man pages and scenarios below a prefix");
  std::string prefix;
  install
      ->add_option("--prefix", prefix, "The prefix, such as /usr/local or a directory of your own")
      ->type_name("DIR")
      ->required();
  install->footer("Example:\n  rdmaemu install --prefix ~/.local");

  DeviceOptions devices;
  devices.AddTo(app, options.name);

  // Everything after "--" belongs to the program.
  char** const separator = std::find_if(
      argv, argv + argc, [](const char* each) { return std::string_view(each) == "--"; });
  std::vector<std::string> command(std::min(separator + 1, argv + argc), argv + argc);
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  const bool known = std::any_of(commands.begin(), commands.end(), [&](const CLI::App* each) {
    return argc > 1 && each->get_name() == argv[1];
  });
  if (argc > 1 && argv[1][0] != '-' && !known) {
    return Fail(kUsage, "there is no command " + std::string(argv[1]) + "; see rdmaemu --help");
  }
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help
    return Fail(kUsage, ParseMessage(app, error));
  }

  if (hosts.given()) return hosts.Do();
  if (*stop && stopped.empty())
    return Fail(kUsage, "the host's name is missing; name the host, as in: rdmaemu stop a");
  if (*stop) return Stop(stopped);
  if (*install) return Install(prefix);
  if (const DeviceRequest* request = devices.Chosen()) return ChangeDevices(*request);
  if (fault.given()) return fault.Do();
  if (clock.given()) return clock.Do();
  if (wait.given()) return wait.Do();
  if (mount.given()) return mount.Do();
  if (trace.given()) return trace.Do();
  if (completion.given()) return completion.Do();
  if (ab.given()) return ab.Do(command);
  if (sweep.given()) return sweep.Do(command);
  checks.is_wanted = !check.empty();
  checks.is_error = check == "error";
  if (backend == "system") {
    if (const auto wrong = NeedsEmulator(*run)) return Fail(kRunFailed, *wrong);
    const auto program = ProgramOf(*run, command);
    MakePathsAbsolute(options);
    if (const auto wrong = runtime::CheckHostName(options.name)) return Fail(kRunFailed, *wrong);
    return program ? RunOnSystem({options, HasRules(*run), strict, program_trace, checks, *program})
                   : Fail(kUsage, program.error());
  }
  if (const auto wrong = AddProfiles(profiles, options)) {
    return Fail(*run ? kRunFailed : kUsage, *wrong);
  }
  if (*host) ReadOptionEnvironment(options);
  if (program_time) {
    if (options.clock != "virtual" && options.clock != kProgramClock) {
      return Fail(*run ? kRunFailed : kUsage,
                  "--program-time needs a clock that does not run by itself; add --clock virtual");
    }
    options.clock = kProgramClock;
  }
  MakePathsAbsolute(options);
  if (const auto wrong = CheckOptions(options)) return Fail(*run ? kRunFailed : kUsage, *wrong);
  if (*env) return Env(options);
  if (*host) return HostMain(options, daemonize);

  const auto program = ProgramOf(*run, command);
  return program ? RunAndReport({options, strict, replay, is_private, program_trace, checks, sysfs,
                                 *program, report})
                 : Fail(kUsage, program.error());
}

// Opens the standard streams that the caller has closed. Otherwise a lock or socket would get the
// number of a stream, and messages would be written to it. A program that is run still has these
// streams closed.
void FillClosedStreams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open(2) takes the lowest free number.
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", O_RDWR | O_CLOEXEC);
  }
}

// Returns the status of the command. A command whose output was lost has failed.
int FlushOutput(int status) {
  if (fflush(stdout) == 0 && ferror(stdout) == 0) return status;
  const int failed =
      Fail(kFailed, std::string("cannot write to standard output: ") + std::strerror(errno));
  return status == 0 ? failed : status;
}

}  // namespace
}  // namespace rdmaemu::cli

int main(int argc, char** argv) {
  rdmaemu::cli::FillClosedStreams();
  rdmaemu::cli::HearOfChildren();
  return rdmaemu::cli::FlushOutput(rdmaemu::cli::Main(argc, argv));
}
