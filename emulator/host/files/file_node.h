// Files that a host shows to programs, and a lazy tree of them. A directory lists its entries only
// when somebody looks into it, so that a look costs what is on its path.
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
// Makes the directory that its name stands for.
using LazyDirectory = std::function<Directory()>;
// Makes the text of a read-only file. A directory of many objects lists them without their texts.
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
