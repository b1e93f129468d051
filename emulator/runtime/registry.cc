#include "emulator/runtime/registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>

namespace rdmaemu::runtime {
namespace {

using Json = nlohmann::ordered_json;

bool IsOurDirectory(const char* path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid();
}

// The limit of what ReadRegular returns. A record has the options of one command line.
constexpr size_t kMostReadBytes = size_t{16} << 20;

// Returns the content of a file that a host has written. Returns "" if there is no such regular
// file, or if it has more bytes than a host writes.
std::string ReadRegular(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(file.get(), buffer, sizeof buffer)) != 0;) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 || text.size() + static_cast<size_t>(got) > kMostReadBytes) return {};
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

std::string ChooseDirectory() {
  if (const char* chosen = std::getenv("RDMAEMU_DIR"); chosen != nullptr && *chosen != '\0') {
    return std::filesystem::absolute(chosen).lexically_normal().string();
  }
  if (const char* run = std::getenv("XDG_RUNTIME_DIR");
      run != nullptr && *run != '\0' && IsOurDirectory(run)) {
    return std::string(run) + "/rdmaemu";
  }
  return "/tmp/rdmaemu-" + std::to_string(geteuid());
}

}  // namespace

OrMessage<Registry> Registry::Open() {
  const std::string directory = ChooseDirectory();
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return tl::unexpected("cannot make the directory " + directory + " for hosts' sockets: " +
                          std::strerror(errno) + "; set RDMAEMU_DIR to a directory of your own");
  }
  struct stat status;
  // lstat rejects a symbolic link that another user may have created in /tmp.
  if (lstat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
      status.st_uid != geteuid() || (status.st_mode & 022) != 0) {
    return tl::unexpected(
        "the directory " + directory +
        " for hosts' sockets must belong to this user alone, with mode 0700; remove it, or"
        " set RDMAEMU_DIR to a directory of your own with mode 0700");
  }
  Registry registry(directory);
  if (registry.SocketPath(std::string(kMaxNameBytes, 'x')).size() >=
      sizeof(sockaddr_un::sun_path)) {
    return tl::unexpected("the path " + directory +
                          " is too long for a Unix socket; set RDMAEMU_DIR to a shorter one");
  }
  return registry;
}

std::string Registry::Path(std::string_view name, std::string_view suffix) const {
  return directory_ + "/" + std::string(name) + std::string(suffix);
}

std::vector<std::string> Registry::Names() const { return NamesWith(".sock"); }

std::vector<std::string> Registry::LockedNames() const { return NamesWith(".lock"); }

std::vector<std::string> Registry::NamesWith(std::string_view extension) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    if (entry.path().extension() == extension) names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool Registry::IsLocked(std::string_view name) const {
  const UniqueFd fd(open(LockPath(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return fd && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Result<UniqueFd> Registry::TryLock(std::string_view name) const {
  const std::string path = LockPath(name);
  for (;;) {
    UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return Fail(errno);
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return Fail(errno);
    struct stat locked, named;
    if (fstat(fd.get(), &locked) != 0) return Fail(errno);
    if (!S_ISREG(locked.st_mode)) return Fail(EEXIST);
    // A host that ends removes its lock file while it holds the lock. The locked file may therefore
    // have no name any more. Such a lock excludes no other process.
    if (stat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
        locked.st_dev == named.st_dev) {
      return fd;
    }
  }
}

void Registry::KeepPreviousLog(std::string_view name) const {
  struct stat log;
  const std::string path = LogPath(name);
  if (stat(path.c_str(), &log) == 0 && log.st_size > 0) {
    rename(path.c_str(), PreviousLogPath(name).c_str());
  }
}

std::optional<HostRecord> ParseRecord(std::string_view name, std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    HostRecord record;
    // The conversion must not truncate a number that is too large for a pid.
    const Json& pid = json.at("pid");
    if (!pid.is_number_integer()) return std::nullopt;
    const auto number = pid.get<int64_t>();
    if (number <= 0 || number > std::numeric_limits<pid_t>::max()) return std::nullopt;
    record.pid = static_cast<pid_t>(number);
    record.options.name = std::string(name);
    record.options.addresses = json.at("address").get<std::vector<std::string>>();
    record.options.devices = json.at("device").get<std::vector<std::string>>();
    record.options.silent_nets = json.value("silent_net", std::vector<std::string>());
    record.options.gateways = json.value("gateway", std::vector<std::string>());
    record.options.pcap_path = json.at("pcap").get<std::string>();
    record.options.trace_path = json.at("trace").get<std::string>();
    record.options.scenario_path = json.value("scenario", std::string());
    record.options.clock = json.value("clock", std::string());
    record.options.seed = json.value("seed", std::string());
    record.options.payload_shortcuts = json.value("payload_shortcuts", std::string());
    record.options.wire = json.value("wire", std::string());
    record.seed = json.value("seed_in_use", std::string());
    record.scenario_mark = json.value("scenario_mark", std::string());
    record.scenario_rules = json.value("scenario_rules", uint64_t{0});
    record.lives_alone = json.value("lives_alone", false);
    return record;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

// The file holds the process id on a line of its own, then the rules.
void Registry::WriteCrash(std::string_view name, std::string_view rules) const {
  std::ofstream(CrashPath(name)) << getpid() << '\n' << rules;
}

std::optional<std::string> Registry::ReadCrash(std::string_view name, pid_t pid) const {
  std::istringstream file(ReadRegular(CrashPath(name)));
  pid_t of = 0;
  std::string rules;
  if (!(file >> of) || of != pid || !std::getline(file.ignore(), rules)) return std::nullopt;
  return rules;
}

std::optional<HostRecord> Registry::ReadRecord(std::string_view name) const {
  return ParseRecord(name, ReadRegular(LockPath(name)));
}

bool Registry::WriteRecord(int lock_fd, const HostRecord& record) {
  const Json json = {{"pid", record.pid},
                     {"address", record.options.addresses},
                     {"device", record.options.devices},
                     {"silent_net", record.options.silent_nets},
                     {"gateway", record.options.gateways},
                     {"pcap", record.options.pcap_path},
                     {"trace", record.options.trace_path},
                     {"scenario", record.options.scenario_path},
                     {"clock", record.options.clock},
                     {"seed", record.options.seed},
                     {"payload_shortcuts", record.options.payload_shortcuts},
                     {"wire", record.options.wire},
                     {"seed_in_use", record.seed},
                     {"scenario_mark", record.scenario_mark},
                     {"scenario_rules", record.scenario_rules},
                     {"lives_alone", record.lives_alone}};
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return ftruncate(lock_fd, 0) == 0 &&
         pwrite(lock_fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
}

std::optional<std::string> CheckHostName(std::string_view name) {
  const bool characters_fit = std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
  if (!name.empty() && characters_fit && name[0] != '.' && name.size() <= Registry::kMaxNameBytes) {
    return std::nullopt;
  }
  return "\"" + std::string(name) + "\" cannot be a host's name: use 1 to " +
         std::to_string(Registry::kMaxNameBytes) +
         " letters, digits, '-', '_' and '.', not beginning with '.'";
}

}  // namespace rdmaemu::runtime
