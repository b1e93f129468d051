#include "tools/cli/files/preload_door.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "shim/files/protocol.h"
#include "tools/cli/files/file_copies.h"
#include "tools/cli/files/host_files.h"
#include "tools/cli/files/keep_only.h"

namespace rdmaemu::cli {
namespace {

using runtime::UniqueFd;

// The most programs that have connected and not yet sent a path. More programs wait until one of
// them is answered.
constexpr size_t kMaxWaiting = 256;
constexpr int kBacklog = 256;
constexpr char kReady = 1;

UniqueFd Listen(const std::string& directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = directory + kFilesSocket;
  if (path.size() >= sizeof address.sun_path) return {};
  std::strcpy(address.sun_path, path.c_str());
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // The program may have changed its user. Every user who has the directory's name may therefore
  // send paths.
  if (!listener ||
      bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0666) != 0 || listen(listener.get(), kBacklog) != 0) {
    return {};
  }
  return listener;
}

// Answers the one path that a program has sent.
void Answer(int program, FileCopies& copies) {
  std::array<char, PATH_MAX> path;
  const ssize_t got = recv(program, path.data(), path.size(), MSG_DONTWAIT);
  if (got <= 0) return;
  const FilesReply reply = copies.Update({path.data(), static_cast<size_t>(got)});
  (void)send(program, &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Serves until the other end of `life` is closed.
void ServeCopies(int life, int listener, FileCopies& copies) {
  std::vector<UniqueFd> waiting;
  for (;;) {
    std::vector<pollfd> polled = {{life, POLLIN, 0}};
    for (const UniqueFd& program : waiting) polled.push_back({program.get(), POLLIN, 0});
    if (waiting.size() < kMaxWaiting) polled.push_back({listener, POLLIN, 0});
    if (poll(polled.data(), polled.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (polled.front().revents != 0) return;
    for (size_t i = waiting.size(); i > 0; i--) {
      if (polled[i].revents == 0) continue;
      Answer(waiting[i - 1].get(), copies);
      waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(i - 1));
    }
    if (polled.back().fd == listener && polled.back().revents != 0) {
      UniqueFd program(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (program) waiting.push_back(std::move(program));
    }
  }
}

// Runs in the server's process.
[[noreturn]] void Serve(int life, const std::string& directory, const std::string& socket_path) {
  const int kept = BecomeServer("rdmaemu-files", life);
  umask(0);
  {
    const HostFiles files(socket_path);
    FileCopies copies(files, directory);
    const UniqueFd listener = Listen(directory);
    if (listener && send(kept, &kReady, 1, MSG_NOSIGNAL) == 1) {
      ServeCopies(kept, listener.get(), copies);
    }
  }
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  _exit(0);
}

// Makes a directory whose name only the program learns, and whose files every user may read.
std::string MakeBase() {
  const char* const given = std::getenv("TMPDIR");
  for (const std::string& parent : {std::string(given == nullptr ? "" : given), std::string("/tmp"),
                                    std::string("/dev/shm"), std::string("/var/tmp")}) {
    std::string made = parent + "/rdmaemu-files-XXXXXX";
    if (!parent.starts_with('/') ||
        made.size() + sizeof kFilesSocket > sizeof sockaddr_un::sun_path ||
        mkdtemp(made.data()) == nullptr) {
      continue;
    }
    if (chmod(made.c_str(), 0711) == 0) return made;
    rmdir(made.c_str());
  }
  return "";
}

}  // namespace

runtime::OrMessage<PreloadDoor> PreloadDoor::Make(const std::string& socket_path) {
  std::string directory = MakeBase();
  if (directory.empty()) {
    return tl::unexpected(std::string("cannot make a directory in $TMPDIR, /tmp or /dev/shm: ") +
                          std::strerror(errno));
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    const int error = errno;
    rmdir(directory.c_str());
    return tl::unexpected(std::string("socketpair: ") + std::strerror(error));
  }
  UniqueFd ours(ends[0]), theirs(ends[1]);
  const pid_t server = fork();
  if (server == 0) {
    ours.Reset();
    Serve(theirs.get(), directory, socket_path);
  }
  const int error = errno;
  theirs.Reset();
  char ready = 0;
  const bool is_ready = server > 0 && recv(ours.get(), &ready, 1, 0) == 1;
  PreloadDoor door(std::move(directory), std::move(ours), server);
  if (server < 0) return tl::unexpected(std::string("fork: ") + std::strerror(error));
  if (!is_ready)
    return tl::unexpected("the files' server has ended; is " + door.directory_ +
                          " on a full disk?");
  return door;
}

PreloadDoor::~PreloadDoor() {
  if (directory_.empty()) return;
  life_.Reset();
  while (server_ > 0 && waitpid(server_, nullptr, 0) < 0 && errno == EINTR) {
  }
  std::error_code error;
  std::filesystem::remove_all(directory_, error);  // in case the server was killed
}

}  // namespace rdmaemu::cli
