// A peer that sends any message at any time to a real client or server. Tests use this peer to send
// messages that no correct host sends, and each message in every state.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "emulator/cm/ib_cm.h"
#include "emulator/cm/network_for_test.h"

namespace rdmaemu::cm {

class WireTest : public CmTest {
 protected:
  static constexpr uint32_t kPeersId = 5, kPeersQpn = 200;
  static constexpr uint64_t kPeersGuid = 99, kTransaction = 7;
  struct Sent {
    Time when;
    std::string name;
    wire::CmMessage message;
  };

  WireTest() {
    net.filter = [this](const wire::CmMessage& message) {
      said.push_back({net.now, wire::CmName(message.body), message});
      return Net::Fate{.lost = true};
    };
  }
  wire::CmReq PeersReq() {
    wire::CmReq req;
    req.local_comm_id = kPeersId;
    req.local_ca_guid = kPeersGuid;
    req.local_qpn = kPeersQpn;
    req.service_id = 0x01060000 + 7000;
    req.path_mtu = IBV_MTU_1024;
    req.remote_cm_response_timeout = req.local_cm_response_timeout = 20;
    req.max_cm_retries = 15;
    req.primary.local_gid = peer;
    req.primary.remote_gid = *NetAddress::Parse("10.0.0.2");
    req.primary.local_ack_timeout = 17;
    wire::RdmaCmHeader header;
    header.source_port = 1234;
    header.source = req.primary.local_gid;
    header.destination = req.primary.remote_gid;
    wire::EmitRdmaCmHeader(header, req.private_data);
    return req;
  }
  wire::CmRep PeersRep() const {
    wire::CmRep rep;
    rep.local_comm_id = kPeersId;
    rep.remote_comm_id = our_id;
    rep.local_ca_guid = kPeersGuid;
    rep.local_qpn = kPeersQpn;
    rep.target_ack_delay = 15;
    return rep;
  }
  wire::CmRej PeersRej(uint16_t reason, wire::CmMessageType message) const {
    wire::CmRej rej;
    rej.local_comm_id = kPeersId;
    rej.remote_comm_id = our_id;
    rej.reason = reason;
    rej.message = message;
    return rej;
  }
  wire::CmMra PeersMra(wire::CmMessageType message, uint8_t service_timeout) const {
    return {kPeersId, our_id, message, service_timeout, {}};
  }
  wire::CmRtu PeersRtu() const { return {kPeersId, our_id, {}}; }
  wire::CmDreq PeersDreq(uint32_t our_qpn) const { return {kPeersId, our_id, our_qpn, {}}; }
  wire::CmDrep PeersDrep() const { return {kPeersId, our_id, {}}; }

  // ToServer and ToClient deliver a message of the peer.
  void ToServer(wire::CmBody body, uint64_t transaction = kTransaction) {
    Deliver(server_node, "10.0.0.2", std::move(body), transaction);
  }
  void ToClient(wire::CmBody body, uint64_t transaction = kTransaction) {
    Deliver(client_node, "10.0.0.1", std::move(body), transaction);
  }
  // Sends the peer's request, and does not answer. The peer gets `our_id` only from an answer.
  void RequestFromPeer() {
    ToServer(PeersReq());
    passive = server.Expect(EventType::kConnectRequest).id;
  }
  void ReplyToPeer() {
    Accept();
    our_id = Last<wire::CmRep>().local_comm_id;
  }
  // Makes the client send a request to the peer.
  void RequestToPeer() {
    active = client.Resolved("10.0.0.9", 7000);
    ASSERT_EQ(client.Connect(active, Program::Parameters(kClientQpn)), 0);
    our_id = Last<wire::CmReq>().local_comm_id;
  }
  void EstablishToPeer() {
    RequestToPeer();
    ToClient(PeersRep());
    client.Expect(EventType::kConnectResponse);
    ASSERT_EQ(client.Establish(active), 0);
  }

  template <class Message>
  const Message& Last() const {
    for (auto it = said.rbegin(); it != said.rend(); ++it) {
      if (const auto* message = std::get_if<Message>(&it->message.body)) return *message;
    }
    throw std::runtime_error("nothing of this kind was sent");
  }
  // Returns when messages of the kind were sent, in ms since the first of them.
  std::vector<int64_t> TimesOf(const std::string& name) const {
    std::vector<int64_t> times;
    std::optional<Time> first;
    for (const Sent& one : said) {
      if (one.name != name) continue;
      if (!first) first = one.when;
      times.push_back(
          std::chrono::duration_cast<std::chrono::milliseconds>(one.when - *first).count());
    }
    return times;
  }
  // Returns the names of the messages sent since the last call.
  std::vector<std::string> TakeSaid() {
    std::vector<std::string> names;
    for (; taken < said.size(); taken++) names.push_back(said[taken].name);
    return names;
  }

  const NetAddress peer = *NetAddress::Parse("10.0.0.9");
  std::vector<Sent> said;
  size_t taken = 0;
  uint32_t our_id = 0;

 private:
  void Deliver(Node& node, const char* to, wire::CmBody body, uint64_t transaction) {
    node.cm.Receive(net.now, {peer, *NetAddress::Parse(to)}, {transaction, 0, std::move(body)});
  }
};

}  // namespace rdmaemu::cm
