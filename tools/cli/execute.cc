#include "tools/cli/execute.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/cli/commands.h"

namespace rdmaemu::cli {

namespace {

bool children_were_ignored = false;

}  // namespace

void HearOfChildren() { children_were_ignored = signal(SIGCHLD, SIG_DFL) == SIG_IGN; }

void Execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  if (children_were_ignored) signal(SIGCHLD, SIG_IGN);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  _exit(Fail(error == ENOENT ? kNotFound : kNotExecutable,
             "cannot run " + command[0] + ": " + std::strerror(error) +
                 (error == ENOENT ? "; is it installed and in PATH?" : "")));
}

}  // namespace rdmaemu::cli
