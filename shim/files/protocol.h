// The protocol between the library of the preload door and the server of `rdmaemu run`. The
// variable kFilesVariable names a private directory. The directory contains the server's socket
// (SOCK_SEQPACKET) and a tree of ordinary files. The library sends a path, such as
// "/sys/class/infiniband". The server updates the tree's copy of the path and sends a FilesReply.
#pragma once

#include <cstdint>

namespace rdmaemu {

inline constexpr char kFilesVariable[] = "RDMAEMU_FILES";
inline constexpr char kFilesSocket[] = "/socket";
inline constexpr char kFilesTree[] = "/tree";
inline constexpr int kFilesTimeoutSeconds = 10;

// Describes the file at the path, after all links.
struct FilesReply {
  int32_t error;          // positive errno of finding the file, or 0
  int32_t read_error;     // positive errno of reading a text file, or 0
  uint32_t is_device;     // a character device; the tree has an empty file for it
  uint32_t mode;          // permission bits
  uint32_t major, minor;  // of a character device
  uint32_t is_directory;
  uint32_t reserved;
};

// The paths below which the program sees only the host's files. The program sees none of the
// machine's files there.
inline constexpr const char* kFilesPrefixes[] = {
    "/sys/class/infiniband",
    "/sys/class/infiniband_cm",
    "/sys/class/infiniband_mad",
    "/sys/class/infiniband_verbs",
    "/sys/class/misc/rdma_cm",
    "/sys/devices/virtual/infiniband",
    "/sys/devices/virtual/infiniband_cm",
    "/sys/devices/virtual/infiniband_mad",
    "/sys/devices/virtual/infiniband_verbs",
    "/sys/devices/virtual/misc/rdma_cm",
    "/dev/infiniband",
};

}  // namespace rdmaemu
