#include "tools/cli/files/tree/file_reply.h"

#include <cerrno>
#include <cstring>

namespace rdmaemu::cli {
namespace {

constexpr uint64_t kTextFileBytes = 4096;  // as sysfs shows every file

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

Result<HostFile> ParseFileReply(std::string_view reply) {
  ReadFileOut head;
  if (reply.size() < sizeof head) return Fail(EIO);
  std::memcpy(&head, reply.data(), sizeof head);
  if (!IsKind(head.kind) || head.read_error > 4095) return Fail(EIO);
  HostFile file{.kind = FileKind{static_cast<uint8_t>(head.kind)},
                .mode = head.mode & 0777,
                .major = head.major,
                .minor = head.minor,
                .read_error = static_cast<int>(head.read_error),
                .text = {},
                .entries = {}};
  const std::string_view rest = reply.substr(sizeof head);
  if (file.kind == FileKind::kDirectory) {
    if (!ReadEntries(rest, file)) return Fail(EIO);
  } else {
    file.text = rest;
  }
  if (file.kind == FileKind::kText) file.bytes = kTextFileBytes;
  return file;
}

}  // namespace rdmaemu::cli
