#include "tools/cli/execute.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/cli/commands.h"

namespace rdmaemu::cli {

void Execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  _exit(Fail(error == ENOENT ? kNotFound : kNotExecutable,
             "cannot run " + command[0] + ": " + std::strerror(error) +
                 (error == ENOENT ? "; is it installed and in PATH?" : "")));
}

}  // namespace rdmaemu::cli
