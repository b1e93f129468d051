#include "emulator/runtime/environment_text.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <system_error>

namespace rdmaemu::runtime {
namespace {

bool IsShown(std::string_view variable) {
  return variable.starts_with("RDMAEMU_") || variable.starts_with("LD_") ||
         variable.starts_with("XDG_RUNTIME_DIR=");
}

std::string LimitText(const char* name, decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) return {};
  return std::string(name) + " " +
         (limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur)) + "\n";
}

}  // namespace

std::string EnvironmentText() {
  std::error_code error;
  std::string text = "directory " + std::filesystem::current_path(error).string() + "\n";
  utsname system{};
  if (uname(&system) == 0) {
    text += std::string("system ") + system.sysname + " " + system.release + " " + system.machine +
            "\n";
  }
  text += LimitText("open files", RLIMIT_NOFILE) + LimitText("locked bytes", RLIMIT_MEMLOCK);
  // clearenv(3) sets environ to nullptr.
  for (char** variable = environ; variable != nullptr && *variable != nullptr; variable++) {
    if (IsShown(*variable)) text += std::string(*variable) + "\n";
  }
  return text;
}

}  // namespace rdmaemu::runtime
