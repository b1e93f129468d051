// `rdmaemu env`: prints the environment of `run` as shell exports.
#include <cstdio>

#include "tools/cli/commands.h"
#include "tools/cli/environment.h"

namespace rdmaemu::cli {
namespace {

// Quotes any text for a POSIX shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

int Env(const runtime::HostOptions& options) {
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  auto environment = ProgramEnvironment(*registry, options);
  if (!environment) return Fail(kFailed, environment.error());
  // The program's first call starts the host, which needs these options.
  for (const auto& variable : OptionEnvironment(options)) environment->push_back(variable);
  environment->emplace_back(kHostOfRunVariable, "");  // of an outer `run`
  for (const auto& [name, value] : *environment) {
    printf("export %s=%s\n", name.c_str(), Quoted(value).c_str());
  }
  return 0;
}

}  // namespace rdmaemu::cli
