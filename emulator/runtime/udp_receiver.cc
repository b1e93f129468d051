#include "emulator/runtime/udp_receiver.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "emulator/runtime/queue_credit.h"
#include "emulator/runtime/socket_options.h"
#include "emulator/wire/packet.h"

namespace rdmaemu::runtime {

struct UdpReceiver::Buffers {
  struct Slot {
    std::array<std::byte, 65536> bytes;
    sockaddr_storage source;
    alignas(cmsghdr) std::array<std::byte, 64> control;
    iovec vector;
  };
  std::array<Slot, kBatch> slots;
  std::array<mmsghdr, kBatch> messages;
  std::vector<std::span<const std::byte>> payloads;
};

// Unwritten memory costs nothing until datagrams arrive.
UdpReceiver::UdpReceiver() : buffers_(std::make_unique_for_overwrite<Buffers>()) {}
UdpReceiver::~UdpReceiver() = default;
UdpReceiver::UdpReceiver(UdpReceiver&&) noexcept = default;
UdpReceiver& UdpReceiver::operator=(UdpReceiver&&) noexcept = default;

bool UdpReceiver::Receive(int fd, const NetAddress& destination, const Handler& handler) {
  Buffers& buffers = *buffers_;
  for (size_t i = 0; i < kBatch; i++) {
    Buffers::Slot& slot = buffers.slots[i];
    slot.vector = {slot.bytes.data(), slot.bytes.size()};
    msghdr& header = buffers.messages[i].msg_hdr;
    header = {};
    header.msg_name = &slot.source;
    header.msg_namelen = sizeof slot.source;
    header.msg_iov = &slot.vector;
    header.msg_iovlen = 1;
    header.msg_control = slot.control.data();
    header.msg_controllen = slot.control.size();
  }
  charge_ = 0;
  const auto take = [&] {
    return recvmmsg(fd, buffers.messages.data(), kBatch, MSG_DONTWAIT, nullptr);
  };
  int count = take();
  // The socket reports an error of an earlier send once (UdpPort::ReportRefusals). The receive
  // queue may still hold datagrams.
  if (count < 0 && errno != EAGAIN) count = take();
  wire::UdpFlow flow{};
  flow.destination = destination;
  flow.destination_port = wire::kRoceUdpPort;
  std::vector<std::span<const std::byte>>& payloads = buffers.payloads;
  const auto hand_over = [&] {
    if (!payloads.empty()) handler(flow, payloads);
    payloads.clear();
  };
  for (int i = 0; i < count; i++) {
    const Buffers::Slot& slot = buffers.slots[static_cast<size_t>(i)];
    const mmsghdr& message = buffers.messages[static_cast<size_t>(i)];
    const size_t total = message.msg_len;
    size_t segment = total;
    for (cmsghdr* control = CMSG_FIRSTHDR(&message.msg_hdr); control != nullptr;
         control = CMSG_NXTHDR(const_cast<msghdr*>(&message.msg_hdr), control)) {
      int value = 0;
      if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
      std::memcpy(&value, CMSG_DATA(control), sizeof value);
      if (value > 0) segment = static_cast<size_t>(value);
    }
    received_bytes_ += total;
    charge_ += QueueCharge(total, segment == 0 ? 1 : (total + segment - 1) / segment);
    wire::UdpFlow from{};
    from.source = AddressFrom(slot.source, from.source_port);
    if (from.source != flow.source || from.source_port != flow.source_port) {
      hand_over();
      flow.source = from.source;
      flow.source_port = from.source_port;
    }
    for (size_t offset = 0; offset < total; offset += segment) {
      payloads.push_back(std::span(slot.bytes).subspan(offset, std::min(segment, total - offset)));
    }
  }
  hand_over();
  return count > 0;
}

}  // namespace rdmaemu::runtime
