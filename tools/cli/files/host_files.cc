#include "tools/cli/files/host_files.h"

#include <cerrno>
#include <cstring>

#include "emulator/runtime/host_client.h"

namespace rdmaemu::cli {
namespace {

bool IsKind(uint32_t kind) {
  return kind >= static_cast<uint32_t>(FileKind::kDirectory) &&
         kind <= static_cast<uint32_t>(FileKind::kCharacterDevice);
}

// Reads the entries of a directory. Returns false for anything else.
bool ReadEntries(std::string_view rest, HostFile& file) {
  while (!rest.empty()) {
    const auto kind = static_cast<uint8_t>(rest[0]);
    const size_t end = rest.find('\0', 1);
    if (!IsKind(kind) || end == rest.npos || end == 1) return false;
    file.entries.emplace_back(rest.substr(1, end - 1), FileKind{kind});
    rest.remove_prefix(end + 1);
  }
  return true;
}

}  // namespace

Result<HostFile> HostFiles::At(std::string_view path) const {
  auto client = runtime::HostClient::Connect(socket_path_);
  if (!client) return Fail(EIO);
  const Result<std::string> answer = client->ReadFile(path);
  if (!answer) {
    const int error = answer.error().code;
    const bool is_answer = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG;
    return Fail(is_answer ? error : EIO);
  }
  ReadFileOut head;
  if (answer->size() < sizeof head) return Fail(EIO);
  std::memcpy(&head, answer->data(), sizeof head);
  if (!IsKind(head.kind) || head.read_error > 4095) return Fail(EIO);
  HostFile file{FileKind{static_cast<uint8_t>(head.kind)},
                head.mode & 0777,
                head.major,
                head.minor,
                static_cast<int>(head.read_error),
                {},
                {}};
  const std::string_view rest = std::string_view(*answer).substr(sizeof head);
  if (file.kind == FileKind::kDirectory) {
    if (!ReadEntries(rest, file)) return Fail(EIO);
  } else {
    file.text = rest;
  }
  return file;
}

}  // namespace rdmaemu::cli
