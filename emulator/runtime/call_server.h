// The host's Unix socket: one SOCK_SEQPACKET connection is one process (emulator/abi/calls.h).
// A client can only lose its own connection, whatever it sends, however slowly it reads, and
// however it ends.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulator/host/host.h"
#include "emulator/runtime/call_pages.h"
#include "emulator/runtime/eventfd_counters.h"
#include "emulator/runtime/memfd_segments.h"
#include "emulator/runtime/process_memory.h"
#include "emulator/runtime/unique_fd.h"

namespace rdmaemu::runtime {

class CallServer {
 public:
  static constexpr size_t kMaxConnections = 4096;
  // A program has one, and another for a moment when its host is about to end.
  static constexpr uint32_t kMaxConnectionsPerProcess = 8;
  static constexpr int kMaxAcceptsPerTurn = 64;
  static constexpr int kMaxCallsPerTurn = 16;  // of one connection, before the others have a turn
  // Holds at least two of the largest replies; a client that lets it run full is dropped.
  static constexpr int kSendBufferBytes = 512 << 10;

  struct Parts {
    Host& host;
    ProcessMemory& memory;
    MemfdSegments& segments;
    EventfdCounters& counters;
    std::function<Result<ClockOut>(const ClockIn&)> clock;
    std::function<void(Reply&)> complete_status;  // of kHostStatus
  };
  CallServer(int epoll_fd, Parts parts);

  // Listens on the path, which must be free (the caller holds the host's lock and has removed a
  // dead host's socket). Errors of bind(2) and listen(2).
  Status Listen(const std::string& path);
  // Takes the socket's name away, then takes in who had connected before. True when nobody had:
  // then no client can come any more. Otherwise listens again.
  bool Retire(Time now);

  void Accept(Time now);
  // Serves what one connection has sent.
  void Serve(Time now, uint32_t connection);
  // The same for calls by a shared page: of one connection that rang, and of all that are watched.
  void ServePage(Time now, uint32_t connection);
  bool ServePages(Time now);
  // Sends the replies whose time has come (Reply::is_late).
  void SendLate(Time now);
  // Before the host sleeps: callers ring from now on. True when one was too early for that.
  bool StopWatchingPages() { return pages_.StopWatching(); }
  // The process of the connection has ended. So does the connection, unless a forked child of the
  // process holds it.
  void ProcessEnded(Time now, uint32_t connection);
  // Ends one connection: the process has gone or misbehaved.
  void Drop(Time now, uint32_t connection);
  void DropAll(Time now);

  // Connections that said Hello. Those that only ask for the host's status do not keep it alive.
  size_t clients() const { return clients_; }
  size_t connections() const { return connections_.size(); }
  bool ever_had_client() const { return ever_had_client_; }

 private:
  struct Connection {
    UniqueFd socket;
    UniqueFd process_fd;  // readable when the process has ended, even if a fork keeps the socket
    UniqueFd doorbell;
    ProcessId process = ProcessId::kNone;
    pid_t pid = 0;
    bool is_client = false;
    bool page_waits = false;  // for the reply to its page's call
    bool ended = false;       // its process; a forked child keeps it open
  };

  void Add(Time now, UniqueFd socket);
  Reply Answer(Time now, uint32_t number, Connection& connection,
               std::span<const std::byte> message);
  Reply AskClock(std::span<const std::byte> body);
  Reply SharePage(uint32_t number, const Connection& connection);
  bool SendLateReply(uint32_t number, Connection& connection, const Reply& reply);
  std::optional<Reply> AnswerPage(Time now, uint32_t number, std::span<const std::byte> message);
  void DropBroken(Time now);
  void CountOut(pid_t pid);  // of per_process_
  bool SendReply(uint32_t number, Connection& connection, const Reply& reply);
  // -1 when the host named something that is not there.
  int DescriptorFor(uint32_t number, Connection& connection, const ReplyDescriptor& what);

  int epoll_fd_;
  Parts parts_;
  std::string path_;
  UniqueFd listener_;
  UniqueFd spare_;  // given up to take and close a connection when descriptors have run out
  std::map<uint32_t, Connection> connections_;
  std::map<pid_t, uint32_t> per_process_;
  uint32_t last_connection_ = 0;
  size_t clients_ = 0;
  bool ever_had_client_ = false;
  std::vector<std::byte> buffer_;
  CallPages pages_;
  std::vector<uint32_t> broken_;  // connections whose page asked for what no page can carry
};

// The name of the program that a process runs, as comm of proc(5); empty when it has gone.
std::string ProgramName(pid_t pid);

}  // namespace rdmaemu::runtime
