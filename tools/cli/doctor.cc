// `rdmaemu doctor`: checks what this machine allows, says what a failure costs and how to mend it.
#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "tools/cli/commands.h"
#include "tools/cli/environment.h"

namespace rdmaemu::cli {
namespace {

constexpr uint16_t kRocePort = 4791;
constexpr rlim_t kFewFiles = 1024;
constexpr rlim_t kFewLockedBytes = rlim_t{64} << 10;
constexpr long kSmallReceiveBuffer = 200'000;  // bytes; the kernel's default is 212992

struct Finding {
  std::string name;
  bool is_required = false;
  std::string wrong = {};  // empty: it works
  std::string found = {};  // what works, or what was seen
  std::string cost = {}, mend = {};
};

std::string ErrorText(int error) { return std::strerror(error); }

// Runs a check in a child process, which may enter namespaces. Returns the errno of the check.
int InChild(const std::function<int()>& check) {
  fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(check() & 0xff);
  if (child < 0) return errno;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

std::optional<long> Sysctl(const std::string& path) {
  std::ifstream file("/proc/sys/" + path);
  long value = 0;
  if (!(file >> value)) return std::nullopt;
  return value;
}

Finding CheckLibraries() {
  Finding finding{.name = "libraries", .is_required = true};
  finding.cost = "programs load the machine's own libraries, or do not start";
  finding.mend = "install rdmaemu again (rdmaemu install), or build //shim/verbs and //shim/rdmacm";
  const std::string binary = BinaryPath();
  std::vector<std::string> paths;
  for (const auto& [package, name] :
       {std::pair("verbs", "libibverbs.so.1"), std::pair("rdmacm", "librdmacm.so.1")}) {
    const auto path = LibraryPath(binary, std::string("shim/") + package, name);
    if (!path) {
      finding.wrong = path.error();
      return finding;
    }
    finding.found += (finding.found.empty() ? "" : ", ") + *path;
    paths.push_back(*path);
  }
  // In this order, because librdmacm needs our libibverbs.
  const int failed = InChild([&] {
    for (size_t i = 0; i < paths.size(); i++) {
      if (dlopen(paths[i].c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr)
        return static_cast<int>(i) + 1;
    }
    return 0;
  });
  if (failed != 0) {
    const std::string& path =
        paths[std::min<size_t>(static_cast<size_t>(failed), paths.size()) - 1];
    finding.wrong = path + " cannot be loaded; `ldd " + path + "` says why";
  }
  return finding;
}

// Reads a byte of a child, as a host reads the memory of a program.
int ReadChild(const std::function<bool(pid_t, const char*)>& read) {
  static const char byte = 'x';
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) return errno;
  const pid_t child = fork();
  if (child == 0) {
    close(gate[1]);
    char end = 0;
    _exit(::read(gate[0], &end, 1) < 0 ? 1 : 0);
  }
  const int error = child < 0 ? errno : read(child, &byte) ? 0 : errno;
  close(gate[0]);
  close(gate[1]);
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return error;
}

int TryProcessVm() {
  return ReadChild([](pid_t child, const char* byte) {
    char to = 0;
    const iovec local{&to, 1}, remote{const_cast<char*>(byte), 1};
    return process_vm_readv(child, &local, 1, &remote, 1, 0) == 1;
  });
}

int TryMemoryFile() {
  return ReadChild([](pid_t child, const char* byte) {
    const std::string path = "/proc/" + std::to_string(child) + "/mem";
    const runtime::UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
    char to = 0;
    return file &&
           pread(file.get(), &to, 1, static_cast<off_t>(reinterpret_cast<intptr_t>(byte))) == 1;
  });
}

void CheckMemory(std::vector<Finding>& findings) {
  const int by_call = TryProcessVm(), by_file = TryMemoryFile();
  const char* const mend =
      "in a container, add --cap-add SYS_PTRACE or a seccomp profile that allows process_vm_readv";
  findings.push_back({"process_vm", by_file != 0, by_call == 0 ? "" : ErrorText(by_call),
                      "process_vm_readv reads another process",
                      by_file == 0 ? "hosts use /proc/PID/mem, which is slower"
                                   : "hosts cannot reach the memory of programs, and do not start",
                      mend});
  findings.push_back({"proc_mem", by_call != 0, by_file == 0 ? "" : ErrorText(by_file),
                      "/proc/PID/mem opens for reading and writing",
                      by_call == 0 ? "none while process_vm works"
                                   : "hosts cannot reach the memory of programs, and do not start",
                      mend});
  const long scope = Sysctl("kernel/yama/ptrace_scope").value_or(0);
  const bool is_refused = scope >= 3 || (scope == 2 && geteuid() != 0);
  findings.push_back({"ptrace_scope", true, is_refused ? "it is " + std::to_string(scope) : "",
                      "kernel.yama.ptrace_scope is " + std::to_string(scope),
                      "hosts cannot reach the memory of programs",
                      "as root: sysctl kernel.yama.ptrace_scope=1"});
}

void CheckNamespaces(std::vector<Finding>& findings) {
  const int user = geteuid() == 0 ? 0 : CLONE_NEWUSER;
  const auto add = [&](const char* name, int flags, const char* cost) {
    const int error = InChild([&] { return unshare(flags) == 0 ? 0 : errno; });
    findings.push_back({name, false, error == 0 ? "" : "unshare: " + ErrorText(error),
                        "the kernel allows one", cost,
                        "as root: sysctl kernel.unprivileged_userns_clone=1"
                        " kernel.apparmor_restrict_unprivileged_userns=0, and check"
                        " user.max_user_namespaces; in a container, allow unshare"});
  };
  add("user_namespace", CLONE_NEWUSER, "an ordinary user gets no namespace of the two kinds below");
  add("mount_namespace", CLONE_NEWNS | user,
      "run shows devices under /sys by the preload library, which static programs do not load");
  add("network_namespace", CLONE_NEWNET | user,
      "run --private shares the machine's addresses and ports with other jobs");
}

void CheckLimits(std::vector<Finding>& findings) {
  const auto text = [](rlim_t limit) {
    return limit == RLIM_INFINITY ? std::string("unlimited") : std::to_string(limit);
  };
  rlimit files{}, locked{};
  getrlimit(RLIMIT_NOFILE, &files);
  getrlimit(RLIMIT_MEMLOCK, &locked);
  const bool few_files = files.rlim_max < kFewFiles, few_bytes = locked.rlim_cur < kFewLockedBytes;
  findings.push_back(
      {"open_files", false, few_files ? "the limit is " + text(files.rlim_max) : "",
       text(files.rlim_cur) + " of at most " + text(files.rlim_max),
       "a host with many programs, channels and queues gets EMFILE",
       "raise the hard limit of open files (ulimit -Hn, /etc/security/limits.conf)"});
  findings.push_back({"locked_memory", false,
                      few_bytes ? "the limit is " + text(locked.rlim_cur) : "",
                      text(locked.rlim_cur) + " bytes",
                      "none on an emulated host; with --backend system ibv_reg_mr gets ENOMEM",
                      "raise the limit of locked memory (ulimit -l)"});
  const long buffer = Sysctl("net/core/rmem_max").value_or(0);
  findings.push_back({"rmem_max", false,
                      buffer < kSmallReceiveBuffer ? "it is " + std::to_string(buffer) : "",
                      "net.core.rmem_max is " + std::to_string(buffer) + " bytes",
                      "hosts lose packets under load and retransmit them, which is slower",
                      "as root: sysctl net.core.rmem_max=4194304"});
}

void CheckNetwork(std::vector<Finding>& findings) {
  const runtime::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  const bool is_up =
      fd && ioctl(fd.get(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0;
  findings.push_back({"loopback", true, is_up ? "" : "the interface lo is down", "lo is up",
                      "hosts cannot use 127.0.0.0/8, which is the default",
                      "ip link set lo up; or rdmaemu run --private, which does it"});
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kRocePort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_free = !is_up || (fd && bind(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                                             sizeof(address)) == 0);
  findings.push_back({"port_4791", false, is_free ? "" : ErrorText(errno),
                      "UDP port 4791 of 127.0.0.1 is free",
                      "no host of another directory can have the address 127.0.0.1",
                      "`rdmaemu hosts` and `ss -ulpn` show its owner; or use --address 127.0.1.1"});
}

bool IsAnyFile(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (access(path.c_str(), F_OK) == 0) return true;
  }
  return false;
}

void CheckDevices(std::vector<Finding>& findings) {
  const bool has_device = access("/dev/fuse", R_OK | W_OK) == 0;
  const bool has_tool = IsAnyFile({"/usr/bin/fusermount3", "/bin/fusermount3"});
  std::string wrong = has_device ? "" : "/dev/fuse: " + ErrorText(errno);
  if (has_device && !has_tool && geteuid() != 0) wrong = "there is no fusermount3";
  findings.push_back({"fuse", false, wrong, "/dev/fuse opens",
                      "rdmaemu mount does not work, and run shows devices under /sys by the preload"
                      " library",
                      "apt-get install fuse3, modprobe fuse; in a container: docker run --device"
                      " /dev/fuse --cap-add SYS_ADMIN"});
  utsname system{};
  uname(&system);
  const std::string module = std::string("/lib/modules/") + system.release +
                             "/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko";
  const bool has_rxe =
      IsAnyFile({"/sys/module/rdma_rxe", module, module + ".xz", module + ".zst", module + ".gz"});
  findings.push_back({"soft_roce", false, has_rxe ? "" : "the kernel has no rdma_rxe",
                      "the kernel has rdma_rxe",
                      "--backend system and rdmaemu ab need another RDMA device",
                      "tools/softroce runs a machine with soft-RoCE; or install the kernel's extra"
                      " modules"});
}

void PrintFindings(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    const bool is_ok = finding.wrong.empty();
    printf("%-7s %-18s %s\n",
           is_ok                 ? "ok"
           : finding.is_required ? "FAIL"
                                 : "missing",
           finding.name.c_str(), is_ok ? finding.found.c_str() : finding.wrong.c_str());
    if (is_ok) continue;
    printf("        costs: %s\n        mend:  %s\n", finding.cost.c_str(), finding.mend.c_str());
  }
}

void PrintFindingsJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"name", finding.name},
                    {"ok", finding.wrong.empty()},
                    {"required", finding.is_required},
                    {"found", finding.wrong.empty() ? finding.found : finding.wrong}});
    if (finding.wrong.empty()) continue;
    list.back()["costs"] = finding.cost;
    list.back()["mend"] = finding.mend;
  }
  printf("%s\n", list.dump(2).c_str());
}

}  // namespace

int Doctor(bool json) {
  std::vector<Finding> findings = {CheckLibraries()};
  CheckMemory(findings);
  CheckNamespaces(findings);
  CheckLimits(findings);
  CheckNetwork(findings);
  CheckDevices(findings);
  if (json) {
    PrintFindingsJson(findings);
  } else {
    PrintFindings(findings);
  }
  for (const Finding& finding : findings) {
    if (finding.is_required && !finding.wrong.empty()) return kFailed;
  }
  return 0;
}

}  // namespace rdmaemu::cli
