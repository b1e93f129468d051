// Finds the copy of a host's file for a path that a program names.
#pragma once

#include <limits.h>

#include "shim/files/protocol.h"

namespace rdmaemu::files {

enum class Found {
  kElsewhere,  // the path is the machine's; use it as it was given
  kMachines,   // so it is, but counts from a directory of the tree; use Place::path
  kHere,       // Place::path is the copy's
  kFailed,     // errno says why
};

struct Place {
  char path[PATH_MAX];  // absolute
  FilesReply file;      // `error` is 0, ENOENT or ENOTDIR
};

// Finds the copy of the path and brings it up to date. A relative path counts from `directory`,
// where that is a directory of the tree. Keeps errno unless it fails. Allocates nothing. Any
// thread and a signal handler may call it.
Found Find(int directory, const char* path, Place& place);

// Call this after the current directory has changed: to what Find found, or to an open directory.
void NoteChdir(Found found);
void NoteFchdir();
// Call this when the program opens a directory of the tree. Only then the path of a directory's
// descriptor is looked at.
void NoteOpenDirectory();
bool HasDirectories();  // it has done so, or was in one
// Returns true when the current directory is one of the tree.
bool IsInTree();

// Changes a path of the tree to the path that the program knows, in place. Others stay.
void ShowAsSystem(char* path);
// Does the same with `length` bytes without a NUL. Returns the new length.
long ShowAsSystem(char* path, long length);

}  // namespace rdmaemu::files
