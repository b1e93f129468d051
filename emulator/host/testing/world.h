// Hosts and their clients in one process: a network that delivers in order under virtual time, and
// clients that speak calls.h and write rings as the shim does. The embedded way to drive a Host.
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

namespace rdmaemu::testing {

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// The wr_ids of completions, in their order.
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
  // What the network does to a datagram; the default lets all pass.
  using Filter = std::function<bool(const Datagram&)>;

  World();
  ~World();
  // A host with one device rxe0 at the address; without a seed it has its number's.
  Host& AddHost(const std::string& name, const std::string& address,
                const Profile& profile = *BuiltInProfile("rxe"), uint64_t seed = 0);
  // A host of that configuration.
  Host& AddHost(HostConfig config);
  // One round: every host looks at its doorbells and works once, and what is in flight arrives.
  // True when there was something to do. Time stands still.
  bool Step();
  // Steps until nothing is ready.
  void Settle() {
    while (Step()) {
    }
  }
  // Settles, then lets time jump to the next deadline, until nothing is due before `limit` has
  // passed or `done` holds. True when `done` held.
  bool RunUntil(const std::function<bool()>& done, Duration limit);
  void SetFilter(Filter filter) { filter_ = std::move(filter); }

  // Datagrams that the network has room for until it next delivers.
  size_t network_room = SIZE_MAX;
  // Addresses that no host can open while it runs.
  std::set<NetAddress> taken_addresses;
  // Called after a host has closed an address.
  std::function<void(const NetAddress&)> on_close;
  // Multicast groups that hosts are members of, each by which of their addresses.
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
  // As after fork: a new connection that shows this one's token.
  std::unique_ptr<Client> Fork();
  // The two halves of it: the process forks, and the child of that fork connects.
  uint32_t CountFork();
  std::unique_ptr<Client> Forked(uint32_t fork);
  // The process has ended, but a child that has not connected holds its connection.
  void End();
  // The connection ends, as after SIGKILL.
  void Kill();

  // One call; the answer's errno, with Out filled on 0.
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
  Reply CallBytes(uint32_t op, const void* in, size_t bytes);
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

// An open device with a PD, one CQ and queue pairs, as a small verbs program has them.
class Verb {
 public:
  explicit Verb(Client& client, uint32_t cq_entries = 64, uint32_t device_index = 0);

  struct Qp {
    CreateQpOut made;
    Ring send, recv;
  };
  Qp CreateQp(ibv_qp_type type, uint32_t depth = 16, uint32_t sges = 2);
  int Modify(const Qp& qp, int mask, const ibv_qp_attr& attr);
  // INIT, RTR and RTS towards the peer's QP at the address.
  void ConnectRc(const Qp& qp, const std::string& peer_address, uint32_t peer_qpn);
  MrOut Register(void* address, size_t bytes, int access);
  void PostRecv(Qp& qp, uint64_t wr_id, void* address, uint32_t bytes, uint32_t lkey);
  // Fills the WQE's header by `fill`, gives it one SGE and rings the doorbell.
  void PostSend(Qp& qp, uint64_t wr_id, ibv_wr_opcode opcode, void* address, uint32_t bytes,
                uint32_t lkey, const std::function<void(rxe_send_wqe&)>& fill = {});
  // The next completion; false when there is none.
  bool Poll(ib_uverbs_wc& wc);

  Client& client;
  uint32_t context = 0, pd = 0;
  CqOut cq{};

 private:
  void PlacePayload(uint32_t index);
  Ring cq_ring_;
};

}  // namespace rdmaemu::testing
