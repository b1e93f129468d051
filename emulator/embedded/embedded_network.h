// The network between the hosts inside a process. A datagram is delivered at once, in order and
// whole, to the host that has its address. A multicast datagram is delivered to the group's
// members. A datagram to an unused address is lost, as on a wire. Fault rules of the hosts add
// loss, delay and partitions.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emulator/host/host.h"

namespace rdmaemu::embedded {

class EmbeddedNetwork {
 public:
  // Limit of datagrams in flight. A host queues further datagrams until some are delivered.
  static constexpr size_t kMaxInFlight = 4096;

  // One host's access to the network.
  class Port final : public Network {
   public:
    Port(EmbeddedNetwork& network, uint32_t host) : network_(network), host_(host) {}
    ~Port() override { network_.Disconnect(host_); }
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                  size_t bytes) override;
    void Commit() override;
    // Fails with EADDRINUSE if another host has the address.
    Status Open(const HostAddress& address) override;
    void Close(const NetAddress& address) override;
    Status JoinGroup(const NetAddress& local, const NetAddress& group) override;
    void LeaveGroup(const NetAddress& local, const NetAddress& group) override;

   private:
    EmbeddedNetwork& network_;
    const uint32_t host_;
    wire::UdpFlow flow_{};  // of the last allocation
    std::vector<std::byte> pending_;
    bool is_lost_ = false;
  };

  // Gives host `number` a datagram that arrived at its own address `at`.
  using Receiver = std::function<void(uint32_t number, const wire::UdpFlow& flow,
                                      std::span<const std::byte> bytes, const NetAddress& at)>;
  // Delivers the datagrams that are in flight now. Returns true if there were any.
  bool Deliver(const Receiver& receive);
  // The number of datagrams to addresses that no host has.
  uint64_t lost() const { return lost_; }
  // Returns the host that has the address.
  std::optional<uint32_t> OwnerOf(const NetAddress& address) const;

 private:
  struct Datagram {
    uint32_t from;
    wire::UdpFlow flow;
    std::vector<std::byte> bytes;
  };
  struct Member {
    uint32_t host;
    NetAddress local;
    auto operator<=>(const Member&) const = default;
  };
  bool ReachesAnybody(uint32_t from, const NetAddress& destination) const;
  void Arrive(const Datagram& datagram, const Receiver& receive) const;
  void Disconnect(uint32_t host);

  std::map<NetAddress, uint32_t> owners_;
  std::map<NetAddress, std::set<Member>> groups_;
  std::deque<Datagram> in_flight_;
  uint64_t lost_ = 0;
};

}  // namespace rdmaemu::embedded
