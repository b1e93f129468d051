#include "emulator/embedded/call_host.h"

#include <cstdlib>
#include <memory>

#include "emulator/embedded/last_error.h"
#include "emulator/embedded/process_host.h"
#include "emulator/embedded/verbs_library.h"
#include "emulator/runtime/registry.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::embedded {

namespace {

// The socket of the process that decides about rules on the system backend (shim/layer/faults).
const char* SystemRules() { return std::getenv("RDMAEMU_LAYER_FAULTS_SOCKET"); }

}  // namespace

tl::expected<runtime::HostClient, int> ConnectAside() {
  const char* const name = std::getenv("RDMAEMU_HOST");
  if (ProcessHost::Get().IsOpen()) return tl::unexpected(ENOENT);
  if (const char* const rules = SystemRules()) {
    auto client = runtime::HostClient::Connect(rules);
    if (!client) return tl::unexpected(client.error().code);
    return std::move(*client);
  }
  if (name == nullptr) return tl::unexpected(ENOENT);
  const auto registry = runtime::Registry::Open();
  if (!registry) return tl::unexpected(ENOENT);
  auto client = runtime::HostClient::Connect(registry->SocketPath(name));
  if (!client) return tl::unexpected(client.error().code);
  return std::move(*client);
}

int CallHost(CallOp op, const void* in, size_t in_bytes, std::string* out) {
  if (auto aside = ConnectAside()) {
    const Result<std::string> reply =
        aside->Call(op, {static_cast<const std::byte*>(in), in_bytes});
    if (reply && out != nullptr) *out = *reply;
    return reply ? 0 : -reply.error().code;
  }
  // Only a program started by `rdmaemu run` has a host process. For other programs libibverbs would
  // start one, which would make a later rdmaemu_open fail.
  if (!ProcessHost::Get().IsOpen() && std::getenv("RDMAEMU_HOST") == nullptr) {
    return RefuseWithoutHost();
  }
  auto* const call = FindInLibrary<decltype(rdmaemu_client_call)>("rdmaemu_client_call");
  if (call == nullptr) {
    return Refuse(ENOTSUP,
                  "this process does not use rdmaemu's libibverbs.so.1, so it has no host of "
                  "rdmaemu; link with the flags of `pkg-config --libs rdmaemu`, or start it with "
                  "`rdmaemu run`");
  }
  const size_t room = out == nullptr ? 0 : kMaxReplyBytes;
  const auto reply = std::make_unique_for_overwrite<char[]>(room);
  uint32_t filled = 0;
  const int error = call(static_cast<uint32_t>(op), in, static_cast<uint32_t>(in_bytes),
                         reply.get(), static_cast<uint32_t>(room), &filled, nullptr, 0);
  if (error == 0 && out != nullptr) out->assign(reply.get(), filled);
  if (error == EIO || error == ENODEV) {
    return Refuse(error,
                  "this process has no host: it was closed, has ended, or none could be "
                  "reached; open one with rdmaemu_open");
  }
  return -error;
}

}  // namespace rdmaemu::embedded
