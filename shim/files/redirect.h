// Finds the copy of a host's file for a path that a program names.
#pragma once

#include <limits.h>

#include "shim/files/protocol.h"

namespace rdmaemu::files {

enum class Found {
  kElsewhere,  // the path is the machine's; use it unchanged
  kMachines,   // the path is the machine's, relative to a directory of the tree; use Place::path
  kHere,       // Place::path is the path of the copy
  kFailed,     // errno has the reason
};

struct Place {
  char path[PATH_MAX];  // absolute
  FilesReply file;      // `error` is 0, ENOENT or ENOTDIR
};

// Finds the copy of the path and updates it. If `directory` is a directory of the tree, a relative
// path counts from it. Preserves errno unless it fails. Allocates no memory. Any thread and any
// signal handler may call it.
Found Find(int directory, const char* path, Place& place);

// Call NoteChdir after the current directory has changed to the place that Find found. Call
// NoteFchdir after it has changed to an open directory.
void NoteChdir(Found found);
void NoteFchdir();
// Call this when the program opens a directory of the tree. Before the first such call, the library
// does not read the paths of directory descriptors.
void NoteOpenDirectory();
bool HasDirectories();  // it was called, or the current directory was one of the tree
// Returns true when the current directory is one of the tree.
bool IsInTree();

// Replaces a path of the tree by the path that the program knows, in place. Does not change other
// paths.
void ShowAsSystem(char* path);
// Does the same with `length` bytes without a NUL. Returns the new length.
long ShowAsSystem(char* path, long length);

}  // namespace rdmaemu::files
