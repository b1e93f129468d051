// CM messages to a host with listeners and with connections in every state. Each message is sent
// valid, changed, repeated and out of order, between the program's own calls.
#include <array>

#include "emulator/host/testing/cm_program.h"
#include "emulator/wire/cm_message.h"
#include "tests/fuzz/calls.h"

namespace rdmaemu::fuzz {
namespace {

constexpr uint16_t kPort = 7000;
constexpr uint64_t kPeerGuid = 0x0200000a00000002;
constexpr size_t kStates = 11;

// The peer's state of one connection.
struct Talk {
  uint32_t ours = 0;    // the host's communication id
  uint32_t theirs = 0;  // the peer's
  uint32_t qpn = 17;    // the host's
};

uint64_t ServiceId(uint16_t port_space) { return (uint64_t{port_space} << 16) + kPort; }

// A program that connects and accepts connections, and the peer of all its connections.
class CmScene : public Scene {
 public:
  CmScene() : program(AddClient()) {
    CmChannelOut second{};
    REQUIRE(program.client.Call(CallOp::kCmCreateChannel, Nothing{}, second) == 0);
    calls.channels = {program.channel, second.channel};
    calls.AddCmCommands();
    for (const uint16_t port_space : {RDMA_PS_TCP, RDMA_PS_UDP}) {
      calls.ids.Add(program.Listen(port_space, kOwnAddress, kPort, 4));
    }
    talks.emplace_back();
  }

  // Brings one connection into that state.
  void Reach(uint32_t state) {
    switch (state) {
      case 0:  // REQ sent
        Connect(RDMA_PS_TCP);
        return;
      case 1:  // REP received
        Reply(Connect(RDMA_PS_TCP));
        return;
      case 2:  // established
        Establish();
        return;
      case 3:  // DREQ sent
        program.Disconnect(Establish());
        return;
      case 4:  // timewait
        program.Disconnect(Establish());
        Send(wire::CmDrep{talks.back().theirs, talks.back().ours, {}});
        return;
      case 5:  // REQ received, event not fetched
        Request();
        return;
      case 6:  // REP sent
        Accept();
        return;
      case 7:  // established, passive
        Accept();
        Send(wire::CmRtu{talks.back().theirs, talks.back().ours, {}});
        return;
      case 8:  // DREQ received
        Establish();
        Send(wire::CmDreq{talks.back().theirs, talks.back().ours, talks.back().qpn, {}});
        return;
      case 9:  // SIDR_REQ sent
        Connect(RDMA_PS_UDP);
        return;
      default:  // SIDR_REQ received
        RequestSidr();
        return;
    }
  }

  // Sends a message of the peer with some changes.
  void SendChanged(Input& in) {
    const Talk& talk = in.Pick(talks);
    wire::CmMessage message{.transaction_id = talk.ours, .body = Body(in, talk)};
    std::array<std::byte, wire::kMadBytes> mad;
    wire::EmitCm(message, mad);
    for (uint32_t left = in.Below(4); left > 0; --left) {
      // Changes mostly the fields, rarely the MAD's own header or the end of the private data.
      const uint32_t at = in.OneIn(8) ? in.Below(256) : 24 + in.Below(160);
      mad[at] = static_cast<std::byte>(in.U8());
    }
    SendMad(mad, in.OneIn(32) ? "10.7.7.7" : kPeerAddress, !in.OneIn(32));
  }
  void SendRaw(Input& in) {
    std::array<std::byte, wire::kMadBytes> mad{};
    const auto bytes = in.Bytes(in.U8());
    std::copy(bytes.begin(), bytes.end(), mad.begin());
    SendMad(mad, kPeerAddress, true);
  }

  testing::CmProgram program;
  Calls calls;
  std::vector<Talk> talks;

 private:
  // Returns the host's last message. The peer takes its id from it.
  template <class Body>
  Body LastSent() {
    REQUIRE(!sent.empty());
    const auto packet = wire::Parse(sent.back().bytes);
    REQUIRE(packet.has_value());
    const auto message = wire::ParseCm(packet->payload);
    REQUIRE(message.has_value() && std::holds_alternative<Body>(message->body));
    return std::get<Body>(message->body);
  }
  uint32_t Connect(uint16_t port_space) {
    const uint32_t id = program.Connect(port_space, kPeerAddress, kPort);
    calls.ids.Add(id);
    world.Step();
    if (port_space == RDMA_PS_UDP) {
      talks.push_back({LastSent<wire::CmSidrReq>().request_id, NewId(), 0});
    } else {
      talks.push_back({LastSent<wire::CmReq>().local_comm_id, NewId(), 17});
    }
    return id;
  }
  uint32_t Reply(uint32_t id) {
    wire::CmRep rep;
    rep.local_comm_id = talks.back().theirs;
    rep.remote_comm_id = talks.back().ours;
    rep.local_qpn = talks.back().theirs;
    rep.local_ca_guid = kPeerGuid;
    rep.responder_resources = rep.initiator_depth = 1;
    Send(rep);
    return id;
  }
  uint32_t Establish() {
    const uint32_t id = Reply(Connect(RDMA_PS_TCP));
    program.Event();
    program.Establish(id);
    return id;
  }
  wire::CmReq MakeReq(uint32_t theirs, uint16_t port_space) const {
    wire::CmReq req;
    req.local_comm_id = req.local_qpn = theirs;
    req.service_id = ServiceId(port_space);
    req.local_ca_guid = kPeerGuid;
    req.responder_resources = req.initiator_depth = 1;
    req.remote_cm_response_timeout = req.local_cm_response_timeout = 20;
    req.max_cm_retries = 3;
    req.path_mtu = IBV_MTU_1024;
    req.primary.local_gid = *NetAddress::Parse(kPeerAddress);
    req.primary.remote_gid = *NetAddress::Parse(kOwnAddress);
    FillHeader(req.private_data);
    return req;
  }
  void Request() {
    talks.push_back({0, NewId(), 17});
    Send(MakeReq(talks.back().theirs, RDMA_PS_TCP));
  }
  void Accept() {
    Request();
    const uint32_t id = program.Event().id;
    program.Accept(id);
    calls.ids.Add(id);
    world.Step();
    talks.back().ours = LastSent<wire::CmRep>().local_comm_id;
  }
  wire::CmSidrReq MakeSidrReq(uint32_t theirs) const {
    wire::CmSidrReq req;
    req.request_id = theirs;
    req.service_id = ServiceId(RDMA_PS_UDP);
    FillHeader(req.private_data);
    return req;
  }
  void RequestSidr() {
    talks.push_back({0, NewId(), 0});
    Send(MakeSidrReq(talks.back().theirs));
  }
  static void FillHeader(std::span<uint8_t> private_data) {
    wire::EmitRdmaCmHeader(
        {4, 9000, *NetAddress::Parse(kPeerAddress), *NetAddress::Parse(kOwnAddress)}, private_data);
  }

  wire::CmBody Body(Input& in, const Talk& talk) {
    const auto which = static_cast<wire::CmMessageType>(in.Below(3));
    switch (in.Below(9)) {
      case 0: {
        const bool fresh = in.OneIn(2);
        if (fresh && talks.size() < 64) talks.push_back({0, NewId(), 17});
        return MakeReq(fresh ? talks.back().theirs : talk.theirs, RDMA_PS_TCP);
      }
      case 1:
        return wire::CmMra{talk.theirs, talk.ours, which, static_cast<uint8_t>(in.Below(32)), {}};
      case 2: {
        wire::CmRej rej;
        rej.local_comm_id = talk.theirs;
        rej.remote_comm_id = talk.ours;
        rej.message = which;
        rej.reason = in.U8();
        return rej;
      }
      case 3: {
        wire::CmRep rep;
        rep.local_comm_id = rep.local_qpn = talk.theirs;
        rep.remote_comm_id = talk.ours;
        rep.local_ca_guid = kPeerGuid;
        return rep;
      }
      case 4:
        return wire::CmRtu{talk.theirs, talk.ours, {}};
      case 5:
        return wire::CmDreq{talk.theirs, talk.ours, talk.qpn, {}};
      case 6:
        return wire::CmDrep{talk.theirs, talk.ours, {}};
      case 7:
        return MakeSidrReq(in.OneIn(2) ? talk.theirs : NewId());
      default: {
        wire::CmSidrRep rep;
        rep.request_id = talk.ours;
        rep.service_id = ServiceId(RDMA_PS_UDP);
        rep.status = static_cast<uint8_t>(in.Below(4));
        rep.qpn = 3;
        return rep;
      }
    }
  }
  void Send(wire::CmBody body) {
    std::array<std::byte, wire::kMadBytes> mad;
    wire::EmitCm({.transaction_id = talks.back().ours, .body = std::move(body)}, mad);
    SendMad(mad, kPeerAddress, true);
  }
  void SendMad(std::span<const std::byte, wire::kMadBytes> mad, const char* source, bool sealed) {
    wire::PacketHeaders headers;
    headers.transport = wire::TransportClass::kUd;
    headers.destination_qpn = headers.source_qpn = wire::kGsiQpn;
    headers.qkey = wire::kGsiQkey;
    std::array<std::byte, wire::kMaxHeaderBytes> bytes;
    const size_t header_bytes = wire::EmitHeaders(headers, bytes);
    std::vector<std::byte> datagram(bytes.begin(), bytes.begin() + header_bytes);
    datagram.insert(datagram.end(), mad.begin(), mad.end());
    datagram.resize(datagram.size() + wire::kIcrcBytes);
    Receive(source, kOwnAddress, std::move(datagram), sealed);
    world.Step();
  }
  uint32_t NewId() { return last_id_++; }

  uint32_t last_id_ = 0x1000;
};

void Act(CmScene& scene, Input& in) {
  switch (in.Below(16)) {
    case 0:
      return scene.SendRaw(in);
    case 1:
      return scene.Pass(in);
    case 2:
      // Also returns messages with ids that the host has allocated meanwhile.
      if (!scene.sent.empty()) {
        const auto& last = scene.sent.back();
        scene.Receive(kPeerAddress, kOwnAddress, last.bytes, true);
      }
      return;
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
      scene.calls.Make(in, scene.program.client);
      scene.world.Step();
      return;
    default:
      return scene.SendChanged(in);
  }
}

}  // namespace
}  // namespace rdmaemu::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rdmaemu::fuzz;
  Input in(data, size);
  CmScene scene;
  scene.world.trace.keep_records = in.OneIn(16);
  // Starts only a few connections, because each takes time.
  for (uint32_t left = in.Below(4); left > 0; --left) scene.Reach(in.Below(kStates));
  while (!in.empty()) rdmaemu::fuzz::Act(scene, in);
  scene.Rest();
  return 0;
}
