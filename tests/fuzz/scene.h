// A busy host that a fuzzer disturbs. Its programs have every kind of queue pair and queue, with
// sends, receives and READs in progress. They are connected to each other and to a peer, which is
// the fuzzer. The scene is created for every input, so that an input alone repeats its result.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "emulator/host/testing/world.h"
#include "emulator/wire/packet.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/require.h"

namespace rdmaemu::fuzz {

// The memory of all programs; everything else is unreachable. Its address is the same in every run,
// because inputs contain addresses.
inline constexpr uint64_t kMemoryAt = uint64_t{1} << 45;
inline constexpr uint32_t kMemoryBytes = 64 * 1024;

inline constexpr const char* kOwnAddress = "10.0.0.1";
inline constexpr const char* kPeerAddress = "10.0.0.2";
inline constexpr const char* kGroupAddress = "224.1.2.3";
inline constexpr uint32_t kPeerQpn = 0x55;
inline constexpr uint32_t kQkey = 0x11;

wire::TransportClass ClassOf(ibv_qp_type type);
// Returns a packet without its ICRC: headers, payload of one value, padding.
std::vector<std::byte> Build(wire::PacketHeaders headers, uint32_t payload_bytes, uint8_t fill);

// A host with programs. The fuzzer is the host's whole environment.
class Scene {
 public:
  Scene();
  // All programs end. No object may be left.
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  testing::Client& AddClient();
  // Runs steps until nothing is ready. This must happen.
  void Rest();
  // Moves time by a little, or to the next deadline.
  void Pass(Input& in);
  // Delivers the bytes as a datagram from `source` to `destination`. Corrects the ICRC when
  // `sealed`.
  void Receive(const char* source, const char* destination, std::vector<std::byte> datagram,
               bool sealed);
  // Holds datagrams of Receive until Deliver passes them on in one burst, like one read of a
  // socket.
  void Hold() { holding_ = true; }
  void Deliver();
  // Writes the recorded events in all trace formats. Has no effect when the scene keeps no records.
  void WriteTrace();

  testing::World world;
  Host& host;
  std::vector<std::unique_ptr<testing::Client>> clients;
  std::deque<testing::World::Datagram> sent;  // the last few to the peer

 private:
  bool holding_ = false;
  std::vector<testing::World::Datagram> held_;
};

// One queue pair, as seen by its program and its peer.
struct ScenePair {
  testing::Verb::Qp qp;
  ibv_qp_type type;
  uint32_t next_psn = 0;  // of the peer's next request
};

// A program that moves data.
class DataScene : public Scene {
 public:
  DataScene();

  // The program posts valid work. Payloads beside completions are not read, because the shared
  // memory is not trusted here.
  void PostSend(Input& in);
  void PostReceive(Input& in);
  void PollAll();
  // Its polling thread takes the copies that the host offers, and reports arbitrary results.
  void TakeJobs(Input& in);
  // The peer, or the other end on this host, sends a small message in sequence.
  void ReceiveSend(size_t pair, uint8_t bytes);
  // Changes, destroys or creates an object.
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
  // The queues' positions in shared memory.
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
