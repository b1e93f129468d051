// The parts that client and server share: messages, a queue pair with its resources, CM events and
// asynchronous events.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loop.h"
#include "rdma.h"

namespace shout {

// The first bytes of the private data of a connection request.
inline constexpr std::string_view kHello = "shout-1";

// The most unanswered requests of a client. Each side posts as many receives, so that a message
// always finds one.
inline constexpr size_t kDepth = 16;

// A request, or an answer, which has the sequence number of its request. Both machines are
// little-endian.
struct Message {
  static constexpr size_t kMaxText = 244, kHeader = 12;
  uint64_t sequence;
  uint32_t bytes;
  char text[kMaxText];
};

// A copy of a CM event that has been acknowledged: its id can be destroyed.
struct CmEvent {
  rdma_cm_event_type type;
  rdma_cm_id* id;
  int status;
  std::string private_data;  // of CONNECT_REQUEST and REJECTED
};

// A non-blocking event channel that a loop watches. The loop throws RdmaError when the channel
// fails, because the program cannot continue without its channel.
class CmChannel {
 public:
  CmChannel(Loop& loop, std::function<void(const CmEvent&)> on_event);
  Id CreateId() const;

 private:
  void TakeEvent(const std::function<void(const CmEvent&)>& on_event) const;

  Owned<rdma_event_channel, rdma_destroy_event_channel> channel_;
  std::optional<Watch> watch_;
};

class Connection;

// Reads the asynchronous events of each device that has connections. librdmacm opens a device
// once for all ids of a process, so all connections of a device must share one AsyncEvents object.
class AsyncEvents {
 public:
  explicit AsyncEvents(Loop& loop) : loop_(loop) {}
  void Add(Connection* connection);
  void Remove(Connection* connection);

 private:
  struct Device {
    std::set<Connection*> connections;
    std::optional<Watch> watch;
  };
  void TakeEvent(ibv_context* context);

  Loop& loop_;
  std::map<ibv_context*, Device> devices_;
};

// The loop that clients and servers run in.
struct Context {
  Loop loop;
  AsyncEvents async{loop};
};

class Connection {
 public:
  class Owner {
   public:
    virtual void OnMessage(Connection& connection, const Message& message) = 0;
    // The connection calls this last, after completions or a failure. OnProgress may destroy the
    // connection; OnMessage may not.
    virtual void OnProgress(Connection& connection) = 0;

   protected:
    ~Owner() = default;
  };

  // Creates the id's queue pair and posts the receives. `id` must outlive the object. Throws
  // std::runtime_error.
  Connection(Context& context, rdma_cm_id* id, Owner& owner);
  ~Connection();

  rdma_cm_id* id() const { return id_; }
  // Why the connection failed; empty while it has not.
  const std::string& error() const { return error_; }
  bool HasSentAll() const { return waiting_.empty() && free_sends_.size() == kDepth; }

  // Sends the message, or queues it until another send completes.
  void Send(uint64_t sequence, std::string_view text);
  // Handles all completions without calling OnProgress.
  void TakeCompletions();
  // Call this after rdma_connect or rdma_accept has succeeded. Only then there is a connection to
  // end.
  void HasBegun() { has_begun_ = true; }
  // Sends a DREQ. This side gets DISCONNECTED when the peer has answered.
  void Disconnect() {
    if (has_begun_) rdma_disconnect(id_);
  }
  // Marks the connection as failed. error() keeps the first reason: later errors are its
  // consequences.
  void Fail(const std::string& why);
  void NotifyOwner() { owner_.OnProgress(*this); }

 private:
  void Complete(const ibv_wc& completion);
  void PostReceive(uint64_t slot);
  void PostSends();

  Context& context_;
  rdma_cm_id* const id_;
  bool has_begun_ = false;
  Owner& owner_;
  std::string error_;
  std::array<Message, 2 * kDepth> messages_;  // receives, then sends; wr_id is the index
  std::deque<Message> waiting_;
  std::vector<uint64_t> free_sends_;
  Owned<ibv_comp_channel, ibv_destroy_comp_channel> channel_;
  Owned<ibv_cq, ibv_destroy_cq> queue_;
  Owned<ibv_mr, ibv_dereg_mr> memory_;
  QueuePair queue_pair_;
  std::optional<Watch> watch_;
};

}  // namespace shout
