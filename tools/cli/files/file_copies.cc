#include "tools/cli/files/file_copies.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

// Appends the parts of a path in reverse order. Omits "" and ".".
void AddParts(std::string_view path, std::vector<std::string>& left) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    if (!part.empty() && part != ".") parts.emplace_back(part);
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  left.insert(left.end(), parts.rbegin(), parts.rend());
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= NAME_MAX && name != "." && name != ".." &&
         name.find('/') == name.npos && name.find('\0') == name.npos;
}

// Removes the file at the path unless it has this type (S_IFREG and others). Returns whether it
// has.
bool KeepIf(const std::string& path, mode_t type) {
  struct stat found;
  if (lstat(path.c_str(), &found) != 0) return false;
  if ((found.st_mode & S_IFMT) == type) return true;
  std::error_code error;
  fs::remove_all(path, error);
  return false;
}

std::string ReadAll(const std::string& path) {
  const runtime::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char part[4096];
  for (ssize_t got; file && (got = read(file.get(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  return text;
}

int MakeDirectory(const std::string& copy) {
  if (KeepIf(copy, S_IFDIR) || mkdir(copy.c_str(), 0755) == 0) return 0;
  return errno;
}

// Returns the path of a link's target. Returns "" when the target has ".." after a name, which may
// be a link itself.
std::string Followed(const std::string& link, std::string_view target) {
  if (target.starts_with('/')) return "";
  std::string at = link.substr(0, link.rfind('/'));
  while (target.starts_with("../") && !at.empty()) {
    target.remove_prefix(3);
    at.resize(at.rfind('/'));
  }
  return target.find("..") == target.npos ? at + "/" + std::string(target) : "";
}

FilesReply Refusal(int error) {
  FilesReply reply{};
  reply.error = error;
  return reply;
}

FilesReply ReplyOf(const HostFile& file) {
  FilesReply reply{};
  reply.read_error = file.read_error;
  reply.is_device = file.kind == FileKind::kCharacterDevice;
  reply.mode = file.mode;
  reply.major = file.major;
  reply.minor = file.minor;
  reply.is_directory = file.kind == FileKind::kDirectory;
  return reply;
}

}  // namespace

FileCopies::FileCopies(const FileTree& files, std::string directory)
    : files_(files), directory_(std::move(directory)) {
  (void)mkdir(CopyOf("").c_str(), 0755);
}

FilesReply FileCopies::Update(std::string_view path) {
  if (path.empty() || path.front() != '/' || path.find('\0') != path.npos) return Refusal(EINVAL);
  if (path.size() >= PATH_MAX) return Refusal(ENAMETOOLONG);
  Walk walk;
  AddParts(path, walk.left);
  std::string plain;
  for (auto part = walk.left.rbegin(); part != walk.left.rend(); ++part) plain += "/" + *part;
  if (const std::optional<HostFile> file = Jump(plain)) {
    const int error = CopyAll(plain, *file);
    return error == 0 ? ReplyOf(*file) : Refusal(error);
  }
  while (!walk.left.empty()) {
    if (const int error = Step(walk); error != 0) return Refusal(error);
  }
  const Result<HostFile> file = files_.At(walk.at.empty() ? "/" : walk.at);
  if (!file) return Refusal(file.error().code);
  const int error = file->kind == FileKind::kDirectory ? CopyEntries(walk.at, *file) : 0;
  return error == 0 ? ReplyOf(*file) : Refusal(error);
}

std::optional<HostFile> FileCopies::Jump(std::string& path) {
  if (path.empty() || path.find("/..") != path.npos) return std::nullopt;
  for (int links = 0; links < kMaxLinks; links++) {
    size_t end = path.size();
    while (end > 0 && !links_.contains(path.substr(0, end))) end = path.rfind('/', end - 1);
    if (end == 0) break;
    const auto known = links_.find(path.substr(0, end));
    const Result<HostFile> link = files_.At(known->first);
    const std::string followed = Followed(known->first, known->second);
    if (!link || link->kind != FileKind::kLink || link->text != known->second || followed.empty() ||
        !MakeParents(known->first) || CopyLink(CopyOf(known->first), known->second) != 0) {
      links_.erase(known);
      return std::nullopt;
    }
    path = followed + path.substr(end);
  }
  Result<HostFile> file = files_.At(path);
  if (!file || file->kind == FileKind::kLink || !MakeParents(path)) return std::nullopt;
  return std::move(*file);
}

bool FileCopies::MakeParents(const std::string& path) {
  for (size_t end = path.find('/', 1); end != path.npos; end = path.find('/', end + 1)) {
    if (MakeDirectory(CopyOf(path.substr(0, end))) != 0) return false;
  }
  return true;
}

int FileCopies::CopyAll(const std::string& path, const HostFile& file) {
  return file.kind == FileKind::kDirectory ? CopyEntries(path, file) : Copy(path, file);
}

int FileCopies::Step(Walk& walk) {
  const std::string part = std::move(walk.left.back());
  walk.left.pop_back();
  const size_t parent_bytes = walk.at.rfind('/');
  if (part == "..") {
    if (!walk.at.empty()) walk.at.resize(parent_bytes);
    return 0;
  }
  if (part.size() > NAME_MAX) return ENAMETOOLONG;
  const std::string parent = walk.at;
  walk.at += "/" + part;
  const Result<HostFile> file = files_.At(walk.at);
  if (!file) {
    std::error_code ignored;
    if (file.error().code == ENOENT) fs::remove_all(CopyOf(walk.at), ignored);
    return file.error().code;
  }
  if (const int error = Copy(walk.at, *file); error != 0) return error;
  if (file->kind == FileKind::kLink) {
    if (++walk.links > kMaxLinks) return ELOOP;
    if (links_.size() >= kMaxKnownLinks) links_.clear();
    links_[walk.at] = file->text;
    walk.at = file->text.starts_with('/') ? "" : parent;
    AddParts(file->text, walk.left);
    return walk.left.size() > PATH_MAX ? ENAMETOOLONG : 0;
  }
  return walk.left.empty() || file->kind == FileKind::kDirectory ? 0 : ENOTDIR;
}

int FileCopies::Copy(const std::string& path, const HostFile& file) {
  const std::string copy = CopyOf(path);
  switch (file.kind) {
    case FileKind::kDirectory:
      return MakeDirectory(copy);
    case FileKind::kLink:
      return CopyLink(copy, file.text);
    case FileKind::kText:
      return CopyText(copy, file.text, file.mode);
    case FileKind::kCharacterDevice:
      return CopyText(copy, "", file.mode);
  }
  return EIO;
}

int FileCopies::CopyEntries(const std::string& path, const HostFile& directory) {
  if (directory.entries.size() > kMaxEntries) return EIO;
  if (const int error = MakeDirectory(CopyOf(path)); error != 0) return error;
  std::set<std::string> names;
  for (const auto& [name, kind] : directory.entries) {
    if (!IsName(name)) return EIO;
    const std::string entry = path + "/" + name, copy = CopyOf(entry);
    int error = 0;
    if (kind == FileKind::kDirectory) {
      error = MakeDirectory(copy);
    } else if (kind == FileKind::kLink) {
      const Result<HostFile> link = files_.At(entry);
      if (!link && link.error().code == ENOENT) continue;  // it was removed in between
      error = link ? Copy(entry, *link) : link.error().code;
    } else if (!KeepIf(copy, S_IFREG)) {
      error = CopyText(copy, "", 0444);  // its text follows when it is opened
    }
    if (error != 0) return error;
    names.insert(name);
  }
  std::error_code error;
  std::vector<fs::path> gone;
  for (const auto& entry : fs::directory_iterator(CopyOf(path), error)) {
    if (!names.contains(entry.path().filename().string())) gone.push_back(entry.path());
  }
  for (const fs::path& each : gone) fs::remove_all(each, error);
  return 0;
}

int FileCopies::CopyText(const std::string& copy, const std::string& text, uint32_t mode) {
  struct stat found;
  if (KeepIf(copy, S_IFREG) && stat(copy.c_str(), &found) == 0 &&
      (found.st_mode & 0777) == (mode & 0777) && ReadAll(copy) == text) {
    return 0;
  }
  const std::string made = directory_ + "/new";
  (void)unlink(made.c_str());
  const runtime::UniqueFd file(open(made.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return errno;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t put = write(file.get(), text.data() + done, text.size() - done);
    if (put < 0 && errno != EINTR) return errno;
    if (put > 0) done += static_cast<size_t>(put);
  }
  if (fchmod(file.get(), mode & 0777) != 0) return errno;
  return rename(made.c_str(), copy.c_str()) == 0 ? 0 : errno;
}

int FileCopies::CopyLink(const std::string& copy, const std::string& target) {
  std::error_code error;
  if (KeepIf(copy, S_IFLNK) && fs::read_symlink(copy, error) == target) return 0;
  const std::string made = directory_ + "/new";
  (void)unlink(made.c_str());
  if (symlink(target.c_str(), made.c_str()) != 0) return errno;
  return rename(made.c_str(), copy.c_str()) == 0 ? 0 : errno;
}

}  // namespace rdmaemu::cli
