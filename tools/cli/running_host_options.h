// The command lines of the commands that act on running hosts: `rdmaemu hosts`, `fault`, `clock`,
// `wait`, `mount`, `unmount` and `stop`.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tools/cli/commands.h"

namespace rdmaemu::cli {

// Returns the host of commands that are given none.
inline std::string DefaultHostName() {
  const char* const name = std::getenv("RDMAEMU_HOST");
  return name == nullptr || *name == '\0' ? "default" : name;
}

// `rdmaemu hosts`.
class HostsCommand {
 public:
  explicit HostsCommand(CLI::App& app) : hosts_(app.add_subcommand("hosts", "List running hosts")) {
    hosts_->add_option("--host", host_, "List only this host")->type_name("NAME");
    hosts_->add_flag("--json", json_,
                     "For a program, with all counters. With --watch: one object per line");
    hosts_->add_flag("--watch", is_watch_,
                     "Show the hosts and their traffic once per interval, until q or Ctrl-C. If "
                     "standard output is not a terminal, print one table after the other");
    hosts_
        ->add_option("--interval", interval_,
                     "Time between two tables of --watch, from 100ms to 1h; default 1s")
        ->type_name("TIME")
        ->needs("--watch");
    hosts_->footer(
        "A signal that ends --watch is the command's status for a shell: 130 after Ctrl-C, 143 "
        "after SIGTERM. NO_COLOR turns colours off.\n"
        "\n"
        "Example:\n"
        "  rdmaemu hosts --json | jq '.[].counters'\n"
        "  rdmaemu hosts --watch --interval 500ms");
  }
  bool given() const { return hosts_->parsed(); }
  int Do() const { return is_watch_ ? HostsWatch(host_, interval_, json_) : Hosts(host_, json_); }

 private:
  CLI::App* hosts_;
  std::string host_, interval_ = "1s";
  bool json_ = false, is_watch_ = false;
};

// `rdmaemu stop`.
class StopCommand {
 public:
  explicit StopCommand(CLI::App& app)
      : stop_(app.add_subcommand("stop", "Stop a host, even one that is in use")) {
    stop_->add_option("NAME,--host", name_, "Name of the host");
    stop_->footer("Example:\n  rdmaemu stop a");
  }
  bool given() const { return stop_->parsed(); }
  int Do() const {
    if (!name_.empty()) return Stop(name_);
    return Fail(kUsage, "the host's name is missing; name the host, as in: rdmaemu stop a");
  }

 private:
  CLI::App* stop_;
  std::string name_;
};

// `rdmaemu fault` and its subcommands.
class FaultCommand {
 public:
  explicit FaultCommand(CLI::App& app)
      : fault_(app.add_subcommand("fault", "Change and show the fault rules of a running host")) {
    fault_->require_subcommand(1);
    fault_->footer(
        "Example:\n"
        "  rdmaemu fault add --host a 'at = \"cm.req\", nth = 3, reject = 28'\n"
        "  rdmaemu fault list --host a");
    add_ = Add("add", "Append a rule: the keys of one [[fault]] table (docs/faults.md)");
    add_->add_option("RULE", text_, "Such as: at = \"cm.req\", nth = 3, reject = 28")->required();
    list_ = Add("list", "List the rules, with the number of matches and firings of each");
    list_->add_flag("--json", json_, "For a program");
    remove_ = Add("remove", "Remove one rule");
    remove_->add_option("NAME", text_, "Name of the rule")->required();
    release_ = Add("release", "Release everything that a rule with hold = true holds now");
    release_->add_option("NAME", text_, "Name of the rule")->required();
    wait_ = Add("wait", "Wait until a rule has fired");
    wait_->add_option("NAME", text_, "Name of the rule")->required();
    wait_
        ->add_option("--times", times_,
                     "Number of firings to wait for, counted since the rule was added; default 1")
        ->type_name("N");
    wait_
        ->add_option("--timeout", timeout_,
                     "Give up after so much real time, with status 124; default 10s")
        ->type_name("TIME");
    Add("clear", "Remove all rules");
  }
  bool given() const { return fault_->parsed(); }
  int Do() const {
    if (add_->parsed()) return FaultAdd(host_, text_);
    if (list_->parsed()) return FaultList(host_, json_);
    if (remove_->parsed()) return FaultRemove(host_, text_);
    if (release_->parsed()) return FaultRelease(host_, text_);
    if (wait_->parsed()) return FaultWait(host_, text_, times_, timeout_);
    return FaultClear(host_);
  }

 private:
  CLI::App* Add(const char* name, const char* what) {
    CLI::App* const command = fault_->add_subcommand(name, what);
    command->add_option("--host", host_, "Name of the host")->type_name("NAME");
    return command;
  }

  CLI::App *fault_, *add_, *list_, *remove_, *release_, *wait_;
  std::string host_ = DefaultHostName(), text_, timeout_ = "10s";
  uint64_t times_ = 1;
  bool json_ = false;
};

// `rdmaemu clock` and its subcommands.
class ClockCommand {
 public:
  explicit ClockCommand(CLI::App& app)
      : clock_(app.add_subcommand("clock", "Show and advance the time of a running host")) {
    clock_->require_subcommand(1);
    clock_->footer(
        "Example:\n"
        "  rdmaemu run --host a --clock manual -- ./my_test &\n"
        "  rdmaemu clock advance 5s --host a");
    show_ = Add("show", "Print the mode and the time");
    show_->add_flag("--json", json_, "For a program");
    advance_ =
        Add("advance", "Advance the time of all hosts with a manual clock, deadline by deadline");
    advance_->add_option("TIME", by_, "A number and ns, us, ms, s, min or h, as in 250ms")
        ->required();
    Add("run-until-idle",
        "Advance the time until no deadline is left, or a host waits for a program");
  }
  bool given() const { return clock_->parsed(); }
  int Do() const {
    if (show_->parsed()) return ClockShow(host_, json_);
    if (advance_->parsed()) return ClockAdvance(host_, by_);
    return ClockRunUntilIdle(host_);
  }

 private:
  CLI::App* Add(const char* name, const char* what) {
    CLI::App* const command = clock_->add_subcommand(name, what);
    command->add_option("--host", host_, "Name of the host")->type_name("NAME");
    return command;
  }

  CLI::App *clock_, *show_, *advance_;
  std::string host_ = DefaultHostName(), by_;
  bool json_ = false;
};

inline CLI::Validator IsPort() {
  return CLI::Validator(
      [](const std::string& text) {
        uint16_t port = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
        if (error == std::errc() && end == text.data() + text.size() && port != 0) return "";
        return "give a port from 1 to 65535";
      },
      "");
}

// `rdmaemu wait`.
class WaitCommand {
 public:
  explicit WaitCommand(CLI::App& app)
      : wait_(app.add_subcommand("wait", "Wait until a host has reached a given state")) {
    request_.host = DefaultHostName();
    wait_->add_option("--host", request_.host, "Name of the host; the host may start later")
        ->type_name("NAME");
    wait_
        ->add_option("--listening", request_.listening,
                     "Wait until a program listens on PORT with rdma_listen")
        ->check(IsPort())
        ->type_name("PORT");
    wait_
        ->add_option("--device", request_.device,
                     "Wait until the device is present and its port is active")
        ->type_name("NAME");
    wait_
        ->add_option("--event", request_.event,
                     "Wait until a program got the RDMA CM event, such as ESTABLISHED")
        ->type_name("EVENT");
    wait_
        ->add_option("--times", request_.times,
                     "Number of events to wait for, counted since the host's start; default 1")
        ->check(CLI::PositiveNumber)
        ->type_name("N");
    wait_
        ->add_option("--timeout", request_.timeout,
                     "Give up after so much real time, with status 124; default 10s")
        ->type_name("TIME");
    wait_->add_flag("--json", request_.json, "Print the host's status at the end, for a program");
    wait_->footer(
        "Without a condition, waits until the host replies. If there are several conditions, waits "
        "until all hold.\n"
        "\n"
        "Example, a client that starts when its server listens:\n"
        "  rdmaemu run --host a --address 127.0.1.1 -- rping -s -a 127.0.1.1 -C 3 &\n"
        "  rdmaemu wait --host a --listening 7174\n"
        "  rdmaemu run --host b --address 127.0.1.2 -- rping -c -a 127.0.1.1 -C 3");
  }
  bool given() const { return wait_->parsed(); }
  int Do() const { return Wait(request_); }

 private:
  CLI::App* wait_;
  WaitRequest request_;
};

// `rdmaemu mount` and `rdmaemu unmount`.
class MountCommands {
 public:
  explicit MountCommands(CLI::App& app)
      : mount_(app.add_subcommand("mount", "Show the running hosts as files below a directory")),
        unmount_(app.add_subcommand("unmount", "Remove a mount of `rdmaemu mount`")) {
    mount_->add_option("DIR", directory_, "An existing directory")->required();
    mount_->add_flag(
        "-f,--foreground", is_foreground_,
        "Serve the files in the foreground, until DIR is unmounted or a signal arrives");
    mount_->footer(
        "Returns when DIR shows the hosts. A process in the background serves the files to this "
        "user alone. When this process ends, DIR is unmounted. Errors of mounting are printed to "
        "standard error, later errors are written to RDMAEMU_DIR/mount-log (docs/mount.md).\n"
        "\n"
        "Example:\n"
        "  mkdir -p hosts && rdmaemu mount hosts\n"
        "  echo 'at = \"cm.req\", name = \"lost\", drop = true' > hosts/a/faults/new\n"
        "  cat hosts/a/faults/lost hosts/a/qps/*\n"
        "  tail -f hosts/a/trace.jsonl\n"
        "  rdmaemu unmount hosts");
    unmount_->add_option("DIR", directory_, "The directory of `rdmaemu mount`")->required();
    unmount_->add_flag(
        "--lazy", is_lazy_,
        "Unmount even while programs use the files. All other programs no longer see the mount");
    unmount_->footer("Example:\n  rdmaemu unmount hosts");
  }
  bool given() const { return mount_->parsed() || unmount_->parsed(); }
  int Do() const {
    return mount_->parsed() ? Mount(directory_, is_foreground_) : Unmount(directory_, is_lazy_);
  }

 private:
  CLI::App *mount_, *unmount_;
  std::string directory_;
  bool is_foreground_ = false, is_lazy_ = false;
};

}  // namespace rdmaemu::cli
