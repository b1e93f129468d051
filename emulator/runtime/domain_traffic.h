// Wraps a host's network and counts its unicast datagrams and
// forms of trains for a shared time (time_domain.h).
#pragma once

#include "emulator/host/host.h"
#include "emulator/runtime/time_domain.h"

namespace rdmaemu::runtime {

class DomainTraffic final : public Network {
 public:
  DomainTraffic(Network& network, TimeDomain& domain) : network_(network), domain_(domain) {}

  std::span<std::byte> Allocate(const wire::UdpFlow& flow, uint8_t traffic_class,
                                size_t bytes) override {
    const std::span<std::byte> room = network_.Allocate(flow, traffic_class, bytes);
    Allocated(flow, room.empty() ? 0 : 1);
    return room;
  }
  size_t AllocateRun(const wire::UdpFlow& flow, uint8_t traffic_class,
                     std::span<const size_t> bytes,
                     std::span<std::span<std::byte>> rooms) override {
    const size_t count = network_.AllocateRun(flow, traffic_class, bytes, rooms);
    Allocated(flow, count);
    return count;
  }
  std::optional<std::span<std::byte>> AllocateForm(const wire::UdpFlow& flow, uint8_t traffic_class,
                                                   size_t bytes, bool may_wait) override {
    const auto room = network_.AllocateForm(flow, traffic_class, bytes, may_wait);
    Allocated(flow, !room || room->empty() ? 0 : 1);
    return room;
  }
  void Commit() override {
    domain_.NoteSent(destination_, allocated_);
    allocated_ = 0;
    network_.Commit();
  }
  std::unique_ptr<UnfilledForm> CommitUnfilled(size_t payload_bytes) override {
    domain_.NoteSent(destination_, allocated_);
    allocated_ = 0;
    return network_.CommitUnfilled(payload_bytes);
  }
  bool takes_unfilled() const override { return network_.takes_unfilled(); }
  void BeforeWaiting(std::function<void()> before) override {
    network_.BeforeWaiting(std::move(before));
  }
  Status JoinGroup(const NetAddress& local, const NetAddress& group) override {
    return network_.JoinGroup(local, group);
  }
  void LeaveGroup(const NetAddress& local, const NetAddress& group) override {
    network_.LeaveGroup(local, group);
  }
  void ReportRefusals() override { network_.ReportRefusals(); }
  Status Open(const HostAddress& address) override {
    const Status opened = network_.Open(address);
    if (opened) domain_.AddAddress(address.address);
    return opened;
  }
  void Close(const NetAddress& address) override {
    network_.Close(address);
    domain_.RemoveAddress(address);
  }

 private:
  void Allocated(const wire::UdpFlow& flow, size_t datagrams) {
    destination_ = flow.destination;
    allocated_ = datagrams;
  }

  Network& network_;
  TimeDomain& domain_;
  NetAddress destination_;
  size_t allocated_ = 0;
};

}  // namespace rdmaemu::runtime
