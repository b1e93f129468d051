// `rdmaemu host`: runs a host.
#include <signal.h>

#include <cstdio>

#include "emulator/runtime/daemonize.h"
#include "emulator/runtime/host_process.h"
#include "tools/cli/commands.h"
#include "tools/cli/running_host.h"

namespace rdmaemu::cli {

int Fail(int status, const std::string& message) {
  fprintf(stderr, "error: %s\n", message.c_str());
  return status;
}

int HostMain(const runtime::HostOptions& options, bool daemonize) {
  signal(SIGXFSZ, SIG_IGN);  // a file that grows over RLIMIT_FSIZE fails with EFBIG
  const auto registry = runtime::Registry::Open();
  if (!registry) return Fail(kFailed, registry.error());
  auto decision = FindOrLock(*registry, options);
  if (!decision) return Fail(kFailed, decision.error());
  if (decision->running && daemonize) {
    NoteSharing(options.name, *decision);
    return 0;
  }
  if (decision->running) {
    return Fail(kFailed, "host " + options.name + " runs already; stop it with: rdmaemu stop " +
                             options.name + ", or give this one another --name");
  }
  if (const auto freed = FreeAddresses(*registry, options); !freed) {
    return Fail(kFailed, freed.error());
  }
  runtime::UniqueFd lock = std::move(decision->lock);
  registry->KeepPreviousLog(options.name);
  runtime::ReadyNotice notice;
  if (daemonize) {
    const std::string log = registry->LogPath(options.name);
    const auto say = [&] {
      fprintf(stderr, "note: host %s has started, and is not ready yet; see %s\n",
              options.name.c_str(), log.c_str());
    };
    runtime::DaemonizeResult result = runtime::Daemonize(log, std::move(lock), {say});
    if (!result.in_daemon) {
      return result.outcome ? 0 : Fail(kFailed, result.outcome.error());
    }
    notice = std::move(result.notice);
    lock = std::move(result.kept);
  }
  auto process = runtime::HostProcess::Start(*registry, options, std::move(lock), daemonize);
  if (!process) {
    notice.Failed(process.error());
    return Fail(kFailed, process.error());
  }
  notice.Ready();
  (*process)->Run();
  return 0;
}

}  // namespace rdmaemu::cli
