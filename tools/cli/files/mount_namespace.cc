#include "tools/cli/files/mount_namespace.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "tools/cli/files/fuse_door.h"
#include "tools/cli/files/host_files.h"
#include "tools/cli/files/keep_only.h"
#include "tools/cli/files/system_tree.h"

namespace rdmaemu::cli {
namespace {

using runtime::UniqueFd;

bool WriteText(const char* path, const std::string& text) {
  const UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Maps one id to itself, as the program keeps its user and group.
std::string SameId(uint64_t id) { return std::to_string(id) + " " + std::to_string(id) + " 1"; }

bool SendDescriptor(int socket, int fd) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

// Returns an empty descriptor when the sender ended without sending one.
UniqueFd ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (recvmsg(socket, &message, 0) != 1) return {};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return {};
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

// Runs in the server's process.
[[noreturn]] void Serve(int socket, const std::string& socket_path) {
  const int kept = BecomeServer("rdmaemu-files", socket);
  UniqueFd fuse = ReceiveDescriptor(kept);
  if (!fuse) _exit(1);
  close(kept);
  HostFiles files(socket_path);
  _exit(ServeFuse(fuse.Release(), files) ? 0 : 1);
}

struct Server {
  pid_t process;
  UniqueFd socket;  // receives /dev/fuse; empty: the server was not started
};

// Starts the server in a child process.
Server StartServer(const std::string& socket_path) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {};
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t server = fork();
  if (server == 0) {
    ours.Reset();
    Serve(theirs.get(), socket_path);
  }
  return {server, server > 0 ? std::move(ours) : UniqueFd()};
}

// Enters new namespaces. Returns what failed, or nothing.
std::string Unshare() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS | (user == 0 ? 0 : CLONE_NEWUSER)) != 0) {
    return std::string("unshare: ") + std::strerror(errno);
  }
  if (user == 0) return {};
  if (!WriteText("/proc/self/setgroups", "deny") ||
      !WriteText("/proc/self/uid_map", SameId(user)) ||
      !WriteText("/proc/self/gid_map", SameId(group))) {
    return std::string("/proc/self/uid_map: ") + std::strerror(errno);
  }
  return {};
}

// Runs in the process that makes the namespace. Returns what failed, or nothing.
std::string Build(int server, const std::string& scratch) {
  if (const std::string why = Unshare(); !why.empty()) return why;
  SystemTree tree(scratch);
  const UniqueFd fuse(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!fuse) return std::string("/dev/fuse: ") + std::strerror(errno);
  if (const std::string why = tree.MountFuse(fuse.get()); !why.empty()) return why;
  if (!SendDescriptor(server, fuse.get())) return "the files' server has ended";
  return tree.Show();
}

// Finds a directory that may be covered while the tree is made. No shown directory may be in it.
std::string ScratchDirectory() {
  for (const char* const path : {"/tmp", "/var/tmp", "/mnt"}) {
    if (access(path, F_OK) == 0) return path;
  }
  return "/";
}

std::string NamespacePath(pid_t process, const char* kind) {
  return "/proc/" + std::to_string(process) + "/ns/" + kind;
}

}  // namespace

runtime::OrMessage<MountNamespace> MountNamespace::Make(const std::string& socket_path) {
  Server server = StartServer(socket_path);
  int ends[2];
  if (!server.socket || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return tl::unexpected(std::string("cannot start a process: ") + std::strerror(errno));
  }
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const std::string scratch = ScratchDirectory();
  const pid_t builder = fork();
  if (builder < 0) return tl::unexpected(std::string("fork: ") + std::strerror(errno));
  if (builder == 0) {
    ours.Reset();
    const std::string why = Build(server.socket.get(), scratch);
    // An empty message would look like the end of the connection.
    const std::string answer = why.empty() ? "ready" : why;
    (void)send(theirs.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    char byte;
    (void)recv(theirs.get(), &byte, 1,
               0);  // the namespace must live until the caller has entered it
    _exit(0);
  }
  theirs.Reset();
  std::array<char, 512> answer;
  const ssize_t got = recv(ours.get(), answer.data(), answer.size(), 0);
  std::string why(answer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
  UniqueFd user, mount;
  if (why == "ready") {
    if (geteuid() != 0) user = UniqueFd(open(NamespacePath(builder, "user").c_str(), O_CLOEXEC));
    mount = UniqueFd(open(NamespacePath(builder, "mnt").c_str(), O_CLOEXEC));
    if (!mount || (geteuid() != 0 && !user)) why = std::string("/proc: ") + std::strerror(errno);
  }
  ours.Reset();
  while (waitpid(builder, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (why.empty()) why = "the process that mounts the files has ended";
  server.socket.Reset();
  MountNamespace made(std::move(user), std::move(mount), server.process);
  if (!made.mount_) return tl::unexpected(why);
  return made;
}

MountNamespace::~MountNamespace() {
  if (server_ <= 0) return;
  user_.Reset();
  mount_.Reset();
  const UniqueFd server(static_cast<int>(syscall(SYS_pidfd_open, server_, 0)));
  pollfd end{server.get(), POLLIN, 0};
  if (server) (void)poll(&end, 1, kServerEndMs);
  (void)waitpid(server_, nullptr, WNOHANG);
}

int MountNamespace::Join() const {
  std::array<char, PATH_MAX> directory;
  const bool is_known = getcwd(directory.data(), directory.size()) != nullptr;
  if (user_ && setns(user_.get(), CLONE_NEWUSER) != 0) return errno;
  if (setns(mount_.get(), CLONE_NEWNS) != 0) return errno;
  if (is_known && chdir(directory.data()) != 0) return errno;
  return 0;
}

}  // namespace rdmaemu::cli
