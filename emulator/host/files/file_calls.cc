#include "emulator/host/files/file_calls.h"

#include <cstring>

#include "emulator/abi/calls.h"

namespace rdmaemu::files {
namespace {

FileKind KindOf(const Node& node) {
  static constexpr FileKind kKinds[] = {FileKind::kDirectory, FileKind::kText, FileKind::kLink,
                                        FileKind::kCharacterDevice, FileKind::kText};
  static_assert(std::size(kKinds) == std::variant_size_v<Node>);
  return kKinds[node.index()];
}

struct Description {
  ReadFileOut head{};
  std::string rest;
};

void Describe(const LazyDirectory& directory, Description& out) {
  out.head.mode = 0755;
  for (const Directory::Entry& entry : directory().entries) {
    out.rest += static_cast<char>(KindOf(entry.node));
    out.rest += entry.name;
    out.rest += '\0';
  }
}
void Describe(const TextFile& file, Description& out) {
  out.head.mode = file.is_writable ? 0644 : 0444;
  out.head.read_error = static_cast<uint32_t>(file.read_error);
  out.rest = file.text;
}
void Describe(const LazyText& text, Description& out) {
  out.head.mode = 0444;
  out.rest = text();
}
void Describe(const Link& link, Description& out) {
  out.head.mode = 0777;
  out.rest = link.target;
}
void Describe(const CharacterDevice& device, Description& out) {
  out.head.mode = device.mode;
  out.head.major = device.major;
  out.head.minor = device.minor;
}

}  // namespace

Reply ReadFile(const LazyDirectory& root, std::span<const std::byte> path) {
  Reply reply;
  const Result<Node> node = Find(root, {reinterpret_cast<const char*>(path.data()), path.size()});
  if (!node) {
    reply.error = node.error().code;
    return reply;
  }
  Description out;
  out.head.kind = static_cast<uint32_t>(KindOf(*node));
  std::visit([&](const auto& what) { Describe(what, out); }, *node);
  reply.body.resize(sizeof out.head + out.rest.size());
  std::memcpy(reply.body.data(), &out.head, sizeof out.head);
  std::memcpy(reply.body.data() + sizeof out.head, out.rest.data(), out.rest.size());
  return reply;
}

}  // namespace rdmaemu::files
