// The network between the hosts inside a process: a datagram goes at once, in order and whole to
// the host that has its address, one to a multicast group to its members; what nobody has is lost,
// as on a wire with nobody at its other end. Loss, delay and partition are the hosts' fault rules.
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
  // Datagrams on their way; a host keeps what is more until some have arrived.
  static constexpr size_t kMaxInFlight = 4096;

  // One host's way into the network.
  class Port final : public Network {
   public:
    Port(EmbeddedNetwork& network, uint32_t host) : network_(network), host_(host) {}
    ~Port() override { network_.Disconnect(host_); }
    Port(const Port&) = delete;
    Port& operator=(const Port&) = delete;

    std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                  size_t bytes) override;
    void Commit() override;
    // EADDRINUSE: it is another host's.
    Status Open(const HostAddress& address) override;
    void Close(const NetAddress& address) override;
    Status JoinGroup(const NetAddress& local, const NetAddress& group) override;
    void LeaveGroup(const NetAddress& local, const NetAddress& group) override;

   private:
    EmbeddedNetwork& network_;
    const uint32_t host_;
    wire::UdpFlow flow_{};  // of what was allocated last
    std::vector<std::byte> pending_;
    bool is_lost_ = false;
  };

  // Gives host `number` what arrives, by its own address `at`.
  using Receiver = std::function<void(uint32_t number, const wire::UdpFlow& flow,
                                      std::span<const std::byte> bytes, const NetAddress& at)>;
  // Hands on what is on its way now; true when anything was.
  bool Deliver(const Receiver& receive);
  // Datagrams to addresses that no host has.
  uint64_t lost() const { return lost_; }
  // The host that has the address.
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
