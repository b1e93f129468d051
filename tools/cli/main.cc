// The command line of rdmaemu. Each class of a *_options.h file adds commands and runs them.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>

#include "tools/cli/commands.h"
#include "tools/cli/completion_options.h"
#include "tools/cli/device_options.h"
#include "tools/cli/execute.h"
#include "tools/cli/run_options.h"
#include "tools/cli/running_host_options.h"
#include "tools/cli/sweep_options.h"
#include "tools/cli/trace_options.h"

namespace rdmaemu::cli {
namespace {

// Commands of the command line `app`.
struct Commands {
  std::function<bool()> given;
  // Runs the given command. `program` has the words after "--", if the class takes a program.
  // Returns the exit status.
  std::function<int(const std::vector<std::string>& program)> run;
};

// Returns whether the words after "--" are a program, and not arguments of the command.
template <typename Class>
constexpr bool kTakesProgram = requires(Class& commands, const std::vector<std::string>& program) {
  commands.Do(program);
};

template <typename Class>
Commands Add(CLI::App& app) {
  const auto commands = std::make_shared<Class>(app);
  return {[commands] { return commands->given(); },
          [commands](const std::vector<std::string>& program) {
            if constexpr (kTakesProgram<Class>) {
              return commands->Do(program);
            } else {
              return commands->Do();
            }
          }};
}

// A class of a *_options.h file.
struct CommandClass {
  std::vector<std::string_view> names;  // of the commands that the class adds
  Commands (*add)(CLI::App& app);
  bool takes_program;
};
template <typename Class>
CommandClass ClassOf(std::vector<std::string_view> names) {
  return {std::move(names), Add<Class>, kTakesProgram<Class>};
}

// All commands, in the order of the help text.
const CommandClass kCommands[] = {
    ClassOf<RunCommand>({"run"}),
    ClassOf<EnvCommand>({"env"}),
    ClassOf<HostsCommand>({"hosts"}),
    ClassOf<StopCommand>({"stop"}),
    ClassOf<FaultCommand>({"fault"}),
    ClassOf<ClockCommand>({"clock"}),
    ClassOf<WaitCommand>({"wait"}),
    ClassOf<MountCommands>({"mount", "unmount"}),
    ClassOf<TraceOptions>({"trace"}),
    ClassOf<AbOptions>({"ab", "ab-programs"}),
    ClassOf<SweepOptions>({"sweep"}),
    ClassOf<CompletionOptions>({"completion", "doctor"}),
    ClassOf<HostCommand>({"host"}),
    ClassOf<InstallCommand>({"install"}),
    ClassOf<DeviceOptions>({"device", "port", "address", "pkey"}),
};

// Returns the class with this command. Returns nullptr if there is no such command.
const CommandClass* ClassWith(std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kCommands, [&](const auto& each) { return std::ranges::count(each.names, name) > 0; });
  return found == std::end(kCommands) ? nullptr : found;
}

// Adds the class of one command, or all classes for the help and for `completion`. Adding all
// classes takes as long as the rest of a command's start.
std::vector<Commands> AddCommands(CLI::App& app, std::string_view name) {
  const CommandClass* const only = name == "completion" ? nullptr : ClassWith(name);
  std::vector<Commands> added;
  for (const CommandClass& each : kCommands) {
    if (only == nullptr || only == &each) added.push_back(each.add(app));
  }
  return added;
}

// Returns whether a word is an option of `app` itself, with or without a value.
bool IsOptionOf(const CLI::App& app, std::string_view word) {
  return app.get_option_no_throw(std::string(word.substr(0, word.find('=')))) != nullptr;
}

// Returns the first word that looks like an option but is none. Returns "" if there is none.
std::string UnknownOption(const CLI::App& command) {
  const std::vector<std::string> rest = command.remaining();
  const auto found = std::ranges::find_if(
      rest, [](const std::string& word) { return word.size() > 1 && word.starts_with('-'); });
  return found == rest.end() ? "" : *found;
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
  // CLI11 reports a missing argument before an option that it does not know.
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError)) {
    const std::string unknown = UnknownOption(*command);
    if (!unknown.empty()) message = "there is no option " + unknown;
  }
  std::replace(message.begin(), message.end(), '\n', ' ');
  return message + "; see " + path + " --help";
}

int Main(int argc, char** argv) {
  CLI::App app("An RDMA device made of software: runs RDMA programs on a machine that has none.",
               "rdmaemu");
  app.require_subcommand(1);
  app.set_version_flag("--version", VersionText());
  app.footer(
      "rdmaemu COMMAND --help describes one command, with an example. Its docs/ is "
      "share/doc/rdmaemu/ below the prefix of an installed rdmaemu.\n"
      "\n"
      "RDMAEMU_DIR names the directory in which commands find hosts. Default: "
      "$XDG_RUNTIME_DIR/rdmaemu, else /tmp/rdmaemu-UID. Commands with different directories do not "
      "find each other's hosts.\n"
      "RDMAEMU_HOST names the host of commands without a host's name. Default: \"default\".");
  const std::string_view name = argc > 1 ? argv[1] : "";
  const CommandClass* const named = ClassWith(name);
  const std::vector<Commands> commands = AddCommands(app, name);
  if (argc > 1 && named == nullptr && !IsOptionOf(app, name)) {
    return Fail(kUsage, std::string("there is no ") +
                            (name.starts_with('-') ? "option " : "command ") + std::string(name) +
                            (name.starts_with('-') ? " before a command" : "") +
                            "; see rdmaemu --help");
  }

  char** separator = argv + argc;
  if (named != nullptr && named->takes_program) {
    separator = std::find_if(argv, argv + argc,
                             [](const char* each) { return std::string_view(each) == "--"; });
  }
  const std::vector<std::string> program(std::min(separator + 1, argv + argc), argv + argc);
  try {
    app.parse(static_cast<int>(separator - argv), argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help
    return Fail(kUsage, ParseMessage(app, error));
  }
  const auto chosen = std::ranges::find_if(commands, [](const auto& each) { return each.given(); });
  return chosen->run(program);
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
