#include "emulator/transport/wire_in.h"

#include "emulator/transport/packet_runs.h"
#include "emulator/transport/packets_of.h"
#include "emulator/transport/train_form.h"

namespace rdmaemu::transport {

void WireIn::Receive(Time now, const wire::UdpFlow& flow, std::span<const wire::Packet> packets,
                     const NetAddress* at) {
  core_.counters.packets_received += packets.size();
  const CompletionBatch::Scope batch(core_.env.verbs.completions());
  if (flow.destination.IsMulticast()) return ReceiveMulticast(now, flow, packets, at);
  responder_.CollectAcks(packets.size() > 1);
  ReceiveRuns(now, flow, packets);
  responder_.SendCollectedAcks(now);
}

void WireIn::ReceiveTrains(Time now, const Engine::NextTrain& next, bool are_placed) {
  const CompletionBatch::Scope batch(core_.env.verbs.completions());
  is_placed_ = are_placed;
  responder_.CollectAcks(true);
  while (Train* const train = next()) {
    core_.counters.packets_received += train->packets;
    if (train->is_one_packet()) {
      train->placed = are_placed;
      DeliverOne(now, *train);
      continue;
    }
    packets_.clear();
    AppendPackets(*train, packets_);
    ReceiveRuns(now, FlowOf(*train), packets_);
  }
  responder_.SendCollectedAcks(now);
  is_placed_ = false;
}

void WireIn::ReceiveKept(Time now, const wire::UdpFlow& flow, const wire::Packet& packet) {
  core_.counters.local_packets++;
  LoadOne(flow, packet);
  dispatcher_.Deliver(now, train_, nullptr);
}

void WireIn::Load(const wire::UdpFlow& flow, const wire::Packet& first, const wire::Packet& last) {
  Train& train = train_;
  train.headers = first.headers;
  train.source = flow.source;
  train.destination = flow.destination;
  train.begins = first.headers.info().first || first.headers.info().only;
  train.ends = last.headers.info().last || last.headers.info().only;
  train.packets = 1;
  train.is_bytes = true;
  train.bytes = first.payload;
  train.parts = {};
  train.placed = is_placed_;
}

void WireIn::LoadOne(const wire::UdpFlow& flow, const wire::Packet& packet) {
  Load(flow, packet, packet);
  train_.headers.operation = WholeOperation(packet.headers.operation);
}

// Each receiver accepts or drops a datagram separately, as in rxe_rcv_mcast_pkt.
void WireIn::ReceiveMulticast(Time now, const wire::UdpFlow& flow,
                              std::span<const wire::Packet> packets, const NetAddress* at) {
  // The receivers on this host got their copy when the datagram was sent.
  if (core_.env.verbs.IsLocal(flow.source)) {
    core_.counters.dropped_own_multicast += packets.size();
    return;
  }
  const std::vector<QueuePair*> receivers =
      core_.env.verbs.MulticastReceivers(flow.destination, at);
  for (const wire::Packet& packet : packets) {
    if (packet.headers.destination_qpn != wire::kMulticastQpn) {
      core_.counters.dropped_no_qp++;
    } else if (receivers.empty()) {
      core_.counters.dropped_no_group++;
    } else {
      LoadOne(flow, packet);
      for (QueuePair* qp : receivers) dispatcher_.Dispatch(now, *qp, train_, nullptr);
    }
  }
}

void WireIn::ReceiveRuns(Time now, const wire::UdpFlow& flow,
                         std::span<const wire::Packet> packets) {
  while (!packets.empty()) {
    const size_t run = RunLength(packets);
    if (run == 1 || !ReceiveRun(now, flow, packets.first(run))) {
      for (const wire::Packet& packet : packets.first(run)) {
        LoadOne(flow, packet);
        DeliverOne(now, train_);
      }
    }
    packets = packets.subspan(run);
  }
}

void WireIn::DeliverOne(Time now, Train& train) {
  if (train.headers.destination_qpn == wire::kMulticastQpn) {
    core_.counters.dropped_no_group++;  // the address is not a group's
    return;
  }
  dispatcher_.Deliver(now, train, nullptr);
}

// Handles the packets as one train. Returns false when they must be handled one by one. In that
// case only two things may have changed: memory that the packets will write again, and a taken
// receive.
bool WireIn::ReceiveRun(Time now, const wire::UdpFlow& flow,
                        std::span<const wire::Packet> packets) {
  const wire::Packet& last = packets.back();
  QueuePair* qp = core_.env.verbs.FindQp(flow.destination, last.headers.destination_qpn);
  if (qp == nullptr || qp->type != IBV_QPT_RC) return false;
  QpContext& context = core_.ContextOf(*qp);
  if (packets.front().payload.size() != context.mtu_bytes) return false;
  Load(flow, packets.front(), last);
  Train& train = train_;
  train.headers.operation =
      WholeOperation(train.ends ? last.headers.operation : packets.front().headers.operation);
  train.headers.ack_request = last.headers.ack_request;
  train.headers.solicited = last.headers.solicited;
  train.headers.immediate = last.headers.immediate;
  train.headers.invalidate_rkey = last.headers.invalidate_rkey;
  train.packets = static_cast<uint32_t>(packets.size());
  train.mtu_bytes = context.mtu_bytes;
  if (const auto whole = Joined(packets)) {
    train.bytes = *whole;
  } else {
    parts_.clear();
    for (const wire::Packet& packet : packets) parts_.push_back(packet.payload);
    train.parts = parts_;
  }
  return dispatcher_.DispatchRun(now, *qp, train);
}

}  // namespace rdmaemu::transport
