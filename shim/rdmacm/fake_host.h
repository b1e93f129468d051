// A host for the library's tests. The host answers with events that a test scripted, and records
// the commands. It replaces the client that libibverbs.so.1 exports.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "emulator/base/nothing_queued.h"
#include "shim/rdmacm/internal.h"

namespace rdmaemu::rdmacm::testing {

class FakeHost {
 public:
  static FakeHost& Get() {
    static FakeHost host;
    return host;
  }

  void Reset() {
    std::lock_guard lock(mutex);
    events.clear();
    errors.clear();
    commands.clear();
    events_reported = 0;
    forked = gone = false;
    announced.clear();
    made.clear();
  }

  // Queues an event for the next GET_EVENT. nullopt: the counter shows an event that no longer
  // exists.
  void Push(std::optional<rdma_ucm_event_resp> event) {
    std::lock_guard lock(mutex);
    events.push_back(event);
    const uint64_t one = 1;
    if (write(counter, &one, sizeof(one)) != sizeof(one)) abort();
  }

  int Answer(uint32_t command, const void* in, uint32_t in_size, void* out, uint32_t out_size) {
    std::lock_guard lock(mutex);
    commands.push_back(command);
    made.push_back({static_cast<uint32_t>(CallOp::kCmCommand) + command, BytesOf(in, in_size)});
    if (const auto error = errors.find(command); error != errors.end()) return error->second;
    switch (command) {
      case RDMA_USER_CM_CMD_CREATE_ID: {
        last_uid = static_cast<const CmCall<rdma_ucm_create_id>*>(in)->command.uid;
        return Put(rdma_ucm_create_id_resp{++last_id}, out, out_size);
      }
      case RDMA_USER_CM_CMD_DESTROY_ID:
        return Put(rdma_ucm_destroy_id_resp{events_reported}, out, out_size);
      case RDMA_USER_CM_CMD_MIGRATE_ID:
        return Put(rdma_ucm_migrate_resp{events_reported}, out, out_size);
      case RDMA_USER_CM_CMD_GET_EVENT: {
        if (events.empty()) return kNothingQueued;
        const std::optional<rdma_ucm_event_resp> event = events.front();
        events.pop_front();
        if (!event.has_value()) return kNothingQueued;
        ++events_reported;
        return Put(*event, out, out_size);
      }
      default:
        return 0;
    }
  }

  template <class T>
  static int Put(const T& value, void* out, uint32_t out_size) {
    if (out_size < sizeof(value)) return EINVAL;
    std::memcpy(out, &value, sizeof(value));
    return 0;
  }

  // Records the latest announcement. The host never executes announced calls.
  void Announce(const rdmaemu_announcement& from) {
    announced_first = from.first_op;
    announced.clear();
    const std::byte* step = from.in + client::kFirstStepRoom;
    for (uint32_t i = 0; i < from.steps; i++) {
      StepHeader header;
      std::memcpy(&header, step, sizeof(header));
      const std::byte* const in = step + sizeof(header);
      if (header.op == static_cast<uint32_t>(CallOp::kModifyQp)) {
        ModifyQpIn modify;
        std::memcpy(&modify, in, sizeof(modify));
        announced.push_back(Transition(modify.attr.qp_state));
      } else {
        announced.push_back({header.op, BytesOf(in, header.size)});
      }
      step = in + PaddedStep(header.size);
    }
  }

  struct Call {
    uint32_t op;
    std::vector<std::byte> in;
    bool operator==(const Call&) const = default;
  };
  // A transition of a QP, without the attributes that the host adds to an announced one.
  static Call Transition(ibv_qp_state state) {
    return {static_cast<uint32_t>(CallOp::kModifyQp), BytesOf(&state, sizeof(state))};
  }
  static std::vector<std::byte> BytesOf(const void* from, size_t size) {
    const auto* const begin = static_cast<const std::byte*>(from);
    return {begin, begin + size};
  }

  std::mutex mutex;
  std::deque<std::optional<rdma_ucm_event_resp>> events;
  std::map<uint32_t, int> errors;  // by command
  std::vector<uint32_t> commands;
  uint32_t last_id = 0;
  uint64_t last_uid = 0;
  uint32_t events_reported = 0;
  bool forked = false, gone = false;
  int counter = -1;
  uint32_t announced_first = 0;  // the call that sends the announced ones
  std::vector<Call> announced, made;
};

}  // namespace rdmaemu::rdmacm::testing

extern "C" {

int rdmaemu_client_call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                        uint32_t*, int* descriptors, uint32_t descriptor_count) {
  using namespace rdmaemu;
  auto& host = rdmacm::testing::FakeHost::Get();
  constexpr auto kCommand = static_cast<uint32_t>(CallOp::kCmCommand);
  if (op >= kCommand) return host.Answer(op - kCommand, in, in_size, out, out_size);
  if (op == static_cast<uint32_t>(CallOp::kCmCreateChannel) && descriptor_count == 1) {
    host.counter = descriptors[0] = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK);
    return rdmacm::testing::FakeHost::Put(CmChannelOut{1, 0}, out, out_size);
  }
  return 0;
}

int rdmaemu_client_wait(int counter_fd) {
  uint64_t one = 0;
  return read(counter_fd, &one, sizeof(one)) == sizeof(one) ? 0 : errno;
}

void rdmaemu_client_announce(rdmaemu_announcement* announced) {
  rdmaemu::rdmacm::testing::FakeHost::Get().Announce(*announced);
}
void rdmaemu_client_end_announcement(rdmaemu_announcement*) {}

int rdmaemu_client_host_is_gone() { return rdmaemu::rdmacm::testing::FakeHost::Get().gone ? 1 : 0; }

void rdmaemu_client_put_back(int) {}

void rdmaemu_client_close_counter(int counter_fd) { close(counter_fd); }

uint32_t rdmaemu_client_host_generation() { return 0; }

ibv_device** rdmaemu_client_devices_beside(uint32_t, int* count) {
  return ibv_get_device_list(count);
}

int rdmaemu_client_is_forked_from(uint32_t) {
  return rdmaemu::rdmacm::testing::FakeHost::Get().forked ? 1 : 0;
}

}  // extern "C"
