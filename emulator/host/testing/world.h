// Hosts and their clients in one process. The network delivers in order under virtual time. Clients
// use calls.h and write rings, as the shim does. World is an example of a driver of Host.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emulator/abi/ring.h"
#include "emulator/host/host.h"
#include "emulator/verbs/testing/fakes.h"
#include "emulator/verbs/testing/plain_send.h"

namespace rdmaemu::testing {

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// Returns the wr_ids of completions, in the order of the completions.
inline std::vector<uint64_t> IdsOf(const std::vector<ib_uverbs_wc>& completions) {
  std::vector<uint64_t> ids;
  for (const ib_uverbs_wc& wc : completions) ids.push_back(wc.wr_id);
  return ids;
}

class World {
 public:
  struct Datagram {
    wire::UdpFlow flow;
    std::vector<std::byte> bytes;
  };
  // Returns false to drop a datagram. The default passes all datagrams.
  using Filter = std::function<bool(const Datagram&)>;

  World();
  ~World();
  // Adds a host with one device rxe0 at the address. Without a seed, the host's number is the seed.
  Host& AddHost(const std::string& name, const std::string& address,
                const Profile& profile = *BuiltInProfile("rxe"), uint64_t seed = 0);
  // Adds a host with that configuration.
  Host& AddHost(HostConfig config);
  // Runs one round: every host polls its doorbells and works once, and datagrams in flight arrive.
  // Returns true when any of these had work. Time does not advance.
  bool Step();
  // Runs rounds until no work is ready.
  void Settle() {
    while (Step()) {
    }
  }
  // Settles, then advances time to the next deadline, repeatedly. Ends when no deadline is left
  // within `limit`, or `done` returns true. Returns true when `done` did.
  bool RunUntil(const std::function<bool()>& done, Duration limit);
  void SetFilter(Filter filter) { filter_ = std::move(filter); }

  // Limit of the datagrams that the network accepts until its next delivery.
  size_t network_room = SIZE_MAX;
  // Addresses that a running host cannot open.
  std::set<NetAddress> taken_addresses;
  // Called after a host has closed an address.
  std::function<void(const NetAddress&)> on_close;
  // The multicast groups of hosts, each with the address that joined.
  std::multiset<std::pair<NetAddress, NetAddress>> joined_groups;
  Time now{};
  FakeMemory memory;
  FakeSharedMemory segments;
  FakeCounters counters;
  FakeTrace trace;

 private:
  class Port;
  struct Node;
  Filter filter_;
  std::deque<Datagram> in_flight_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

// One process of a host.
class Client {
 public:
  Client(World& world, Host& host, const std::string& program = "test");
  // Acts as fork: returns a new connection with this one's token.
  std::unique_ptr<Client> Fork();
  // The two halves of Fork: the process forks, and that fork's child connects.
  uint32_t CountFork();
  std::unique_ptr<Client> Forked(uint32_t fork);
  // Ends the process. A child that has not connected holds the process's connection.
  void End();
  // Ends the connection, as SIGKILL does.
  void Kill();

  // Makes one call. Returns its errno, and fills Out on 0.
  template <class In, class Out>
  int Call(CallOp op, const In& in, Out& out) {
    Reply reply = CallBytes(static_cast<uint32_t>(op), &in, sizeof in);
    if (reply.error == 0 && reply.body.size() == sizeof out) {
      std::memcpy(&out, reply.body.data(), sizeof out);
    }
    descriptors = std::move(reply.descriptors);
    return reply.error;
  }
  template <class In>
  int Call(CallOp op, const In& in) {
    Reply reply = CallBytes(static_cast<uint32_t>(op), &in, sizeof in);
    descriptors = std::move(reply.descriptors);
    return reply.error;
  }
  // `caller` is that of Host::Call.
  Reply CallBytes(uint32_t op, const void* in, size_t bytes, uint32_t caller = 0);
  std::byte* At(const SharedSpan& span);
  CounterId Counter() const { return std::get<CounterId>(descriptors.at(0)); }

  World& world;
  Host& host;
  ProcessId process;
  HelloOut hello{};
  std::vector<ReplyDescriptor> descriptors;  // of the last call

 private:
  Client(World& world, Host& host, const HelloIn& hello_in);
  void SayHello(const HelloIn& in);
};

// An open device with a PD, one CQ and queue pairs, as in a small verbs program.
class Verb {
 public:
  explicit Verb(Client& client, uint32_t cq_entries = 64, uint32_t device_index = 0);

  struct Qp {
    CreateQpOut made;
    Ring send, recv;
  };
  Qp CreateQp(ibv_qp_type type, uint32_t depth = 16, uint32_t sges = 2);
  int Modify(const Qp& qp, int mask, const ibv_qp_attr& attr);
  // Moves the QP to INIT, RTR and RTS, towards the peer's QP at the address.
  void ConnectRc(const Qp& qp, const std::string& peer_address, uint32_t peer_qpn);
  MrOut Register(void* address, size_t bytes, int access);
  void PostRecv(Qp& qp, uint64_t wr_id, void* address, uint32_t bytes, uint32_t lkey);
  // Fills the WQE's header by `fill`, adds one SGE and rings the doorbell.
  void PostSend(Qp& qp, uint64_t wr_id, ibv_wr_opcode opcode, void* address, uint32_t bytes,
                uint32_t lkey, const std::function<void(PlainSend&)>& fill = {});
  // Takes the next completion. Returns false when there is none.
  bool Poll(ib_uverbs_wc& wc);

  Client& client;
  uint32_t context = 0, pd = 0;
  CqOut cq{};

 private:
  void PlacePayload(uint32_t index);
  Ring cq_ring_;
};

}  // namespace rdmaemu::testing
