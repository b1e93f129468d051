// Copies of a file tree as ordinary files, for the library shim/files/librdmaemu-files.so.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shim/files/protocol.h"
#include "tools/cli/files/tree/file_tree.h"

namespace rdmaemu::cli {

// For one thread. The names and contents of the tree may be anything.
class FileCopies {
 public:
  static constexpr int kMaxLinks = 40;  // as the kernel (MAXSYMLINKS)
  static constexpr size_t kMaxKnownLinks = 1024;
  static constexpr size_t kMaxEntries = 65536;  // of one directory

  // `directory`: an existing, empty directory, which belongs to this class.
  FileCopies(const FileTree& files, std::string directory);

  // Updates the copies on the path, and those in the path's directory. A copy is replaced in one
  // step, so no reader sees a part of a file. Follows links as the kernel does. Errors are in the
  // reply: those of FileTree::At, ELOOP, EIO for a name that no file can have, and those of writing
  // the copy.
  FilesReply Update(std::string_view path);

 private:
  // The position of a walk along a path.
  struct Walk {
    std::string at;                 // resolved, without links; "" is the root
    std::vector<std::string> left;  // parts to walk; the last element is the next part
    int links = 0;
  };

  // Finds the file at a path by links_, without a query for each of its directories. Resolves the
  // path. Returns nothing when the caller must walk the path.
  std::optional<HostFile> Jump(std::string& path);
  // Makes the directories before the path's last part. Returns false when one cannot be made.
  bool MakeParents(const std::string& path);
  // These return 0 or an errno.
  int Step(Walk& walk);                                        // walks one part of the path
  int CopyAll(const std::string& path, const HostFile& file);  // the entries too
  int Copy(const std::string& path, const HostFile& file);
  int CopyEntries(const std::string& path, const HostFile& directory);
  int CopyText(const std::string& copy, const std::string& text, uint32_t mode);
  int CopyLink(const std::string& copy, const std::string& target);

  std::string CopyOf(const std::string& path) const { return directory_ + kFilesTree + path; }

  const FileTree& files_;
  std::string directory_;
  std::map<std::string, std::string> links_;  // targets by path, at most kMaxKnownLinks
};

}  // namespace rdmaemu::cli
