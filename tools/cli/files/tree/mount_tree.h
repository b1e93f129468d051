// The files of `rdmaemu mount`: one directory for each running host (docs/mount.md). This class
// does no I/O. MountTree calls HostAnswers, and stores nothing between two calls.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/abi/calls.h"
#include "emulator/base/result.h"
#include "tools/cli/files/tree/file_tree.h"

namespace rdmaemu::cli {

// The growing files of a host.
enum class StreamKind { kTrace, kPackets };

// The tree's source of facts about the hosts. Each function returns within a time limit, and
// several threads may call it. Functions fail with ENOENT when the host is not running, with
// ETIMEDOUT when it does not reply, and with EIO when its reply is malformed.
class HostAnswers {
 public:
  virtual ~HostAnswers() = default;
  // Returns the names of the running hosts, sorted.
  virtual std::vector<std::string> Names() = 0;
  virtual bool IsRunning(std::string_view host) = 0;
  // Makes a call that needs no Hello. Also returns the errno of the reply.
  virtual Result<std::string> Call(std::string_view host, CallOp op, std::string_view body) = 0;
  // Advances the host's time by a duration ("250ms"), or until the hosts are idle
  // ("run-until-idle"). Returns when time has reached its target. EINVAL: another text. EOPNOTSUPP:
  // the clock runs by itself. ETIMEDOUT: this takes longer than the limit, and continues.
  virtual Status MoveClock(std::string_view host, std::string_view how) = 0;
  // The text of `faults/error`: the reason why the last write about rules was refused. Empty after
  // a success.
  virtual std::string Refusal(std::string_view host) = 0;
  virtual void SetRefusal(std::string_view host, std::string text) = 0;
  // Returns the length of the stream so far. EOPNOTSUPP: the host has no such stream.
  virtual Result<uint64_t> StreamBytes(std::string_view host, StreamKind kind) = 0;
  virtual Result<std::unique_ptr<Stream>> OpenStream(std::string_view host, StreamKind kind) = 0;
};

class MountTree final : public FileTree {
 public:
  // `hosts` must live as long as the tree.
  explicit MountTree(HostAnswers& hosts) : hosts_(hosts) {}

  Result<HostFile> At(std::string_view path) const override;
  // Adds a rule (faults/new), releases what a rule holds (faults/RULE), or moves time (clock).
  Status Write(std::string_view path, std::string_view text) override;
  // Removes a rule (faults/RULE).
  Status Remove(std::string_view path) override;
  Result<std::unique_ptr<Stream>> OpenStream(std::string_view path) override;

 private:
  Result<HostFile> HostDirectory(std::string_view host) const;
  Result<HostFile> StatusFile(std::string_view host) const;
  Result<HostFile> ClockFile(std::string_view host) const;
  Result<HostFile> CounterFile(std::string_view host, std::string_view rest) const;
  Result<HostFile> FaultFile(std::string_view host, std::string_view name) const;
  Result<HostFile> FileOfHost(std::string_view host, const std::string& path) const;
  Result<HostFile> StreamFile(std::string_view host, StreamKind kind) const;
  // Makes a call about rules. Stores the host's reason for a refusal, and returns EINVAL.
  Status ChangeRules(std::string_view host, CallOp op, std::string_view text);

  HostAnswers& hosts_;
};

// Returns the file name of a rule. The file name has "%2F" and "%25" in place of '/' and '%'. The
// first letter is also replaced by its code when the name would otherwise be "new", "error", "." or
// "..". Returns an empty name for a rule whose name cannot be a file's.
std::string RuleFileName(std::string_view rule);
// Returns the rule's name, the inverse of RuleFileName.
std::string RuleOfFileName(std::string_view name);

}  // namespace rdmaemu::cli
