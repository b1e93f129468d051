// A host in the middle of its work, for a fuzzer to disturb: programs with every kind of queue pair
// and queue, connected to a peer that is the fuzzer itself and to each other, with sends, receives
// and READs in progress. Made anew for every input, so that an input alone repeats what it did.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "emulator/host/testing/world.h"
#include "emulator/wire/packet.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"

namespace rdmaemu::fuzz {

// What all programs have as their memory; everything else is out of reach. It lies at one address
// in every run, because inputs hold addresses.
inline constexpr uint64_t kMemoryAt = uint64_t{1} << 45;
inline constexpr uint32_t kMemoryBytes = 64 * 1024;

inline constexpr const char* kOwnAddress = "10.0.0.1";
inline constexpr const char* kPeerAddress = "10.0.0.2";
inline constexpr const char* kGroupAddress = "224.1.2.3";
inline constexpr uint32_t kPeerQpn = 0x55;
inline constexpr uint32_t kQkey = 0x11;

wire::TransportClass ClassOf(ibv_qp_type type);
// A packet without its ICRC: headers, payload of one value, padding.
std::vector<std::byte> Build(wire::PacketHeaders headers, uint32_t payload_bytes, uint8_t fill);

// A host with programs, and the fuzzer as everything that surrounds it.
class Scene {
 public:
  Scene();
  // Everybody leaves; nothing may be left of them.
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  testing::Client& AddClient();
  // Steps until nothing is ready, which must come.
  void Rest();
  // Time goes on: by a little, or to the next deadline.
  void Pass(Input& in);
  // The bytes as a datagram from `source` to `destination`, its ICRC made right when `sealed`.
  void Receive(const char* source, const char* destination, std::vector<std::byte> datagram,
               bool sealed);
  // What Receive gets until Deliver comes in one burst, as one read of a socket brings it.
  void Hold() { holding_ = true; }
  void Deliver();
  // The writers of all trace formats over what was recorded; nothing when the scene keeps none.
  void WriteTrace();

  testing::World world;
  Host& host;
  std::vector<std::unique_ptr<testing::Client>> clients;
  std::deque<testing::World::Datagram> sent;  // to the peer: the last few

 private:
  bool holding_ = false;
  std::vector<testing::World::Datagram> held_;
};

// One queue pair as its program and its peer see it.
struct ScenePair {
  testing::Verb::Qp qp;
  ibv_qp_type type;
  uint32_t next_psn = 0;  // of the peer's next request
};

// A program that moves data.
class DataScene : public Scene {
 public:
  DataScene();

  // The program does something that it may do. Payloads that wait beside completions are left
  // there: nothing that the shared memory says is taken for true here.
  void PostSend(Input& in);
  void PostReceive(Input& in);
  void PollAll();
  // Its polling thread takes the copies that the host offers it, and says of them what it likes.
  void TakeJobs(Input& in);
  // The peer, or the other end on this host, sends something small that is in order.
  void ReceiveSend(size_t pair, uint8_t bytes);
  // It changes or destroys an object, or makes one.
  void Change(Input& in);

  testing::Client& client;
  testing::Verb verb;
  std::vector<ScenePair> pairs;
  SrqOut srq{};
  Ring srq_ring;
  std::vector<Ring> cq_rings;
  JobPage& jobs;
  std::vector<MrOut> regions;
  std::vector<MwOut> windows;
  std::vector<uint32_t> address_handles;
  // The queues' places in shared memory.
  std::vector<SharedSpan> spans;

 private:
  void MakeQueues();
  ScenePair MakePair(ibv_qp_type type, uint32_t srq_handle);
  void Connect(const ScenePair& pair, const char* destination, uint32_t qpn);
  void ReadyUd(const ScenePair& pair);
  void JoinGroup(const ScenePair& pair);
  void MakeAddressHandle(const char* destination);
  void StartWork();
  void Post(size_t pair, ibv_wr_opcode opcode, uint32_t offset, uint32_t bytes);
};

}  // namespace rdmaemu::fuzz
