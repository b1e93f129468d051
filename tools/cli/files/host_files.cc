#include "tools/cli/files/host_files.h"

#include <cerrno>

#include "tools/cli/files/tree/file_reply.h"

namespace rdmaemu::cli {

Result<runtime::HostClient> HostFiles::Take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      runtime::HostClient client = std::move(idle_.back());
      idle_.pop_back();
      return client;
    }
  }
  return runtime::HostClient::Connect(socket_path_);
}

Result<HostFile> HostFiles::At(std::string_view path) const {
  auto client = Take();
  if (!client) return Fail(EIO);
  const Result<std::string> answer = client->ReadFile(path);
  const int error = answer ? 0 : answer.error().code;
  const bool is_answer = error == 0 || error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG;
  if (!is_answer) return Fail(EIO);
  {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(*client));
  }
  if (!answer) return Fail(error);
  return ParseFileReply(*answer);
}

}  // namespace rdmaemu::cli
