// Files that a host shows to programs, as a lazy tree. A directory creates its entries only when a
// caller looks it up. The cost of a lookup is therefore that of the directories on its path.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "emulator/base/result.h"

namespace rdmaemu::files {

struct Directory;

// A file with text, as sysfs has them.
struct TextFile {
  std::string text;
  bool is_writable = false;  // its mode is 644 instead of 444
  int read_error = 0;        // a positive errno that reading returns instead of the text
};
struct Link {
  std::string target;
};
struct CharacterDevice {
  uint32_t major, minor;
  uint16_t mode;  // permission bits
};
// Makes a directory when a caller looks it up.
using LazyDirectory = std::function<Directory()>;
// Makes the text of a read-only file. A directory of many objects can list them without making
// their texts.
using LazyText = std::function<std::string()>;
using Node = std::variant<LazyDirectory, TextFile, Link, CharacterDevice, LazyText>;

struct Directory {
  struct Entry {
    std::string name;
    Node node;
  };
  std::vector<Entry> entries;

  void Add(std::string name, Node node) { entries.push_back({std::move(name), std::move(node)}); }
  // Adds a file with one line of text.
  void AddLine(std::string name, const std::string& line) {
    Add(std::move(name), TextFile{line + "\n"});
  }
};

inline constexpr size_t kMaxPathBytes = 4096;

// Returns the node at an absolute path. Does not follow links. Returns ENOENT, ENOTDIR (a part of
// the path is no directory) or ENAMETOOLONG.
Result<Node> Find(const LazyDirectory& root, std::string_view path);

}  // namespace rdmaemu::files
