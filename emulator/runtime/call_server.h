// Serves the host's Unix socket. One SOCK_SEQPACKET connection belongs to one process
// (emulator/abi/calls.h). A client that misbehaves, reads slowly or dies loses only its own
// connection.
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
  // A program has one connection, and briefly a second one while its host is about to end.
  static constexpr uint32_t kMaxConnectionsPerProcess = 8;
  static constexpr int kMaxAcceptsPerTurn = 64;
  // A program needs longer than this to reap an ended process, because the kernel must first wake
  // up the program.
  static constexpr Duration kLongestUnheard = std::chrono::microseconds(3);
  // Limit of the time from SIGKILL to the end of the process.
  static constexpr std::chrono::milliseconds kLongestKill{1000};
  static constexpr int kMaxCallsPerTurn = 16;  // of one connection, before others are served
  // Holds at least two of the largest replies. A client whose buffer is full is dropped.
  static constexpr int kSendBufferBytes = 512 << 10;

  struct Parts {
    Host& host;
    ProcessMemory& memory;
    MemfdSegments& segments;
    EventfdCounters& counters;
    std::function<Result<ClockOut>(const ClockIn&)> clock;
    std::function<void(Reply&)> complete_status;  // adds to the reply of kHostStatus
    // Gets a process that a fault rule should have ended, and the errno.
    std::function<void(ProcessId, int)> cannot_end;
  };
  CallServer(int epoll_fd, Parts parts);

  // Listens on the path. The path must be free: the caller holds the host's lock and has removed a
  // dead host's socket. Fails with the errors of bind(2) and listen(2).
  Status Listen(const std::string& path);
  // Unlinks the socket, then accepts the connections in its queue. Returns true if there are none,
  // because no client can connect any more. Otherwise listens again.
  bool Retire(Time now);

  void Accept(Time now);
  // Serves the calls that the client of one connection has sent.
  void Serve(Time now, uint32_t connection);
  // ServePage serves the calls on the pages of a connection whose doorbell rang. ServePages serves
  // the calls that FindAskedPages found.
  void ServePage(Time now, uint32_t connection);
  CallPages::Served ServePages(Time now);
  // Looks for calls on the watched pages. Returns true if there is one.
  bool FindAskedPages() { return pages_.FindAsked(); }
  // Sends the replies that are due now (Reply::is_late).
  void SendLate(Time now);
  // Call this before the host sleeps. From then on callers ring the doorbell. Returns true if a
  // call was made before its caller could see this.
  bool StopWatchingPages() { return pages_.StopWatching(); }
  // Readable when a process has ended and HearEnds has not yet handled this end.
  int ends_fd() const { return ends_.get(); }
  // Handles the ends of all processes that have ended. Returns true if there was one.
  //
  // A program may reap a killed process and then post a request to it, which must fail. HearEnds
  // detects that end if it runs after the host took the request. The host therefore calls HearEnds
  // after it took work, calls or datagrams, and before it executes them. HearEnds makes its system
  // call only if this is kLongestUnheard or longer after the last one.
  bool HearEnds(Time now);
  // A poll of the caller that began at this time, in the machine's time, did not find ends_fd().
  void NoteNoEnds(Time real) { ends_heard_at_ = std::max(ends_heard_at_, real); }
  // Acts as HearEnds, and makes the system call in any case.
  bool HandleEnds(Time now);
  // Ends the processes that fault rules end (Host::TakeEnding), and handles their ends. Call this
  // after each entry into the host. Returns true if a process has ended.
  bool EndPrograms(Time now);
  // Drops one connection because its process has ended or misbehaved.
  void Drop(Time now, uint32_t connection);
  void DropAll(Time now);

  // The number of connections that sent a Hello. Connections that only query the status do not keep
  // the host alive.
  size_t clients() const { return clients_; }
  // The number of connections that the host waits for before it ends. A connection whose last call
  // read a file does not count: its reply was sent, and the client only keeps it open for the next
  // file.
  size_t connections() const { return connections_.size() - readers_; }
  bool ever_had_client() const { return ever_had_client_; }

 private:
  // The callers of a process: its socket, and page N as kFirstPage + N.
  static constexpr uint32_t kSocket = 0, kFirstPage = 1;

  struct Connection {
    UniqueFd socket;
    UniqueFd process_fd;  // readable when the process has ended, even if a fork keeps the socket
    UniqueFd doorbell;
    ProcessId process = ProcessId::kNone;
    pid_t pid = 0;
    bool is_client = false;
    bool reads_files = false;  // its last call was kReadFile
    bool ended = false;        // its process has ended; a forked child holds the socket
    std::optional<SegmentId> buffers = {};  // the arena of kShareBuffers
  };

  void Add(Time now, UniqueFd socket);
  // Sends SIGKILL to the processes that fault rules end, and waits until they have ended. Keeps
  // their connections, which the caller may be using. Returns true if `connection` belongs to one
  // of these processes. The process then gets no reply.
  bool KillPrograms(uint32_t connection = 0);
  // Returns an errno if the process has not ended.
  static int Kill(const Connection& connection);
  // Makes ends_ report the end of the connection's process.
  void WatchEnd(uint32_t number, const Connection& connection);
  // Handles the end of the connection's process. Also drops the connection, unless a forked child
  // of the process holds its socket.
  void ProcessEnded(Time now, uint32_t connection);
  // `caller` is that of Host::Call: kSocket, or one of a page.
  Reply Answer(Time now, uint32_t number, Connection& connection,
               std::span<const std::byte> message, uint32_t caller);
  Reply AskClock(std::span<const std::byte> body);
  Reply SharePage(uint32_t number, const Connection& connection);
  Reply ShareBuffers(Connection& connection, std::span<const std::byte> body);
  // Ends the sharing. The process keeps its memory.
  void ForgetBuffers(Connection& connection);
  bool SendLateReply(uint32_t number, Connection& connection, const LateReply& late);
  std::optional<Reply> AnswerPage(Time now, uint32_t number, uint32_t page,
                                  std::span<const std::byte> message);
  void DropBroken(Time now);
  void CountOut(pid_t pid);  // in per_process_
  bool SendReply(uint32_t number, Connection& connection, const Reply& reply);
  // Returns -1 if the descriptor named in the reply does not exist.
  int DescriptorFor(uint32_t number, Connection& connection, const ReplyDescriptor& what);

  int epoll_fd_;
  UniqueFd ends_;         // an epoll descriptor that reports kClientExit events
  Time ends_heard_at_{};  // when HearEnds last made its system call, in the machine's time
  Parts parts_;
  std::string path_;
  UniqueFd listener_;
  UniqueFd spare_;  // closed when descriptors run out, to accept and then close a connection
  std::map<uint32_t, Connection> connections_;
  std::map<pid_t, uint32_t> per_process_;
  uint32_t last_connection_ = 0;
  size_t clients_ = 0;
  size_t readers_ = 0;  // connections with reads_files
  bool ever_had_client_ = false;
  std::vector<std::byte> buffer_;
  CallPages pages_;
  std::vector<uint32_t> killed_;  // connections whose processes KillPrograms has ended
  std::vector<uint32_t> broken_;  // connections whose call on a page needs a reply with descriptors
};

// Returns the name of the program that a process runs (comm of proc(5)). Returns an empty string if
// the process has ended.
std::string ProgramName(pid_t pid);

}  // namespace rdmaemu::runtime
