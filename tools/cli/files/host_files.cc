#include "tools/cli/files/host_files.h"

#include <cerrno>

#include "emulator/runtime/host_client.h"
#include "tools/cli/files/tree/file_reply.h"

namespace rdmaemu::cli {

Result<HostFile> HostFiles::At(std::string_view path) const {
  auto client = runtime::HostClient::Connect(socket_path_);
  if (!client) return Fail(EIO);
  const Result<std::string> answer = client->ReadFile(path);
  if (answer) return ParseFileReply(*answer);
  const int error = answer.error().code;
  const bool is_answer = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG;
  return Fail(is_answer ? error : EIO);
}

}  // namespace rdmaemu::cli
