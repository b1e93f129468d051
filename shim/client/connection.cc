// The connection to the host: how it is used for calls and shared segments, and what follows from
// the host's end.

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <atomic>

#include "emulator/abi/process_page.h"
#include "emulator/abi/ring.h"
#include "emulator/base/id_space.h"
#include "shim/client/announced_calls.h"
#include "shim/client/call_sites.h"
#include "shim/client/cancellation.h"
#include "shim/client/client.h"
#include "shim/client/connection_state.h"
#include "shim/client/counters.h"
#include "shim/client/embedded.h"
#include "shim/client/file_id.h"
#include "shim/client/messages.h"
#include "shim/client/own_doorbells.h"
#include "shim/client/own_pid.h"
#include "shim/client/page_calls.h"
#include "shim/client/race_detector.h"
#include "shim/client/segments.h"
#include "shim/client/system.h"

namespace rdmaemu::client {

std::atomic<uint32_t> g_fork_generation{1};
const char g_device_order = 0;
std::atomic<const rdmaemu_embedded_host*> g_embedded{nullptr};
// Bit N is set when host N inside this process has ended.
std::atomic<uint32_t> g_ended_hosts{0};
static_assert(IdSpace::kMaxParts <= 32);
Connection g_connection;

__thread volatile int t_calls __attribute__((tls_model("initial-exec")));

bool OwnsDescriptors() {
  const Connection& c = g_connection;
  return (c.socket < 0 || FileIdOf(c.socket) == c.socket_id) &&
         FileIdOf(c.doorbell_fd) == c.doorbell_id;
}

void MarkGone() {
  if (g_connection.gone.exchange(true)) return;
  g_connection.is_settled = false;
  if (OwnsDescriptors()) {
    ComplainOfEnd(g_connection.place, g_connection.host_pid);
  } else {
    Complain(
        Complaint::kGone,
        "this program has closed the connection to host '%s' together with other descriptors that "
        "it did not open (closefrom?), so all calls fail with EIO; open devices after closefrom",
        g_connection.place.name);
    DoubtCounters();
  }
  FillCounters();
  g_connection.pages.WakeCallers();
}

bool HasEnded() { return !OwnsDescriptors() || SysHasHungUp(g_connection.socket); }

bool WakeHost() {
  if (!OwnsDescriptors()) {
    MarkGone();
    return false;
  }
  SysAddToEventfd(g_connection.doorbell_fd, 1);
  return true;
}

namespace {

// Returns true for a call that belongs to an earlier post or poll (AskIn).
bool AsksAgain(CallHeader header, const void* in) {
  return IsAsked(CallOp{header.op}) && static_cast<const AskIn*>(in)->again != 0;
}

// A host may return EIO as well. The connection has ended only if its socket is dead.
bool IsBroken(int error) { return error == EIO && HasEnded(); }

int CallByPage(CallHeader header, const void* in, Buffer& out, bool is_nested) {
  Connection& c = g_connection;
  Count(&ProgramPlace::calls);
  t_calls = t_calls + 1;
  const int error = c.pages.Call(header, in, out, {WakeHost, HasEnded, c.gone}, is_nested);
  t_calls = t_calls - 1;
  return error;
}

// Makes a call by the connection, whatever it needs. Holds `mutex` meanwhile, so that recorded
// calls are in the order in which the host gets them. Sets `broken` if the connection has ended.
int CallLocked(CallHeader header, const void* in, Buffer& out, int* descriptors,
               uint32_t descriptor_count, uint32_t site, bool& broken) {
  Connection& c = g_connection;
  int error = EnsureConnected();
  if (error == 0 && HasTrait(header.op, kBringsCounter)) error = EnsureWatched();
  if (error != 0) return error;
  if (site != 0 && !AsksAgain(header, in)) RecordCall(site, c.process, header.op);
  if (c.pages.are_mapped() && FitsPage(header.size, out.size, descriptor_count)) {
    error = CallByPage(header, in, out, /*is_nested=*/false);
  } else {
    error = OwnsDescriptors() ? Exchange(c.socket, header, in, out, descriptors, descriptor_count)
                              : EIO;
  }
  broken = IsBroken(error);
  return error;
}

int CallHostProcess(CallHeader header, const void* in, Buffer& out, int* descriptors,
                    uint32_t descriptor_count) {
  Connection& c = g_connection;
  const uint32_t site = FindCallSite();
  int error;
  bool broken = false;
  if (site == 0 && c.is_settled.load() && c.pages.are_mapped() &&
      FitsPage(header.size, out.size, descriptor_count)) {
    error = CallByPage(header, in, out, /*is_nested=*/!MayCall());
    broken = IsBroken(error);
  } else {
    LockConnection();
    error = CallLocked(header, in, out, descriptors, descriptor_count, site, broken);
    UnlockConnection();
  }
  if (broken) MarkGone();
  return error;
}

}  // namespace

uint32_t SendSequence(const void* in, uint32_t in_size, void* out, uint32_t out_size) {
  DoorbellPage* const page = OwnDoorbells();
  if (Embedded() != nullptr || page == nullptr || FindCallSite() != 0) return 0;
  const uint32_t watched = std::atomic_ref(page->watched_calls).load(std::memory_order_relaxed);
  if ((watched & DoorbellPage::kNoSequences) != 0) return 0;
  Buffer reply{out, out_size, 0};
  const CallHeader header{static_cast<uint32_t>(CallOp::kSequence), in_size};
  return CallHostProcess(header, in, reply, nullptr, 0) == 0 ? reply.filled : 0;
}

uint32_t TakeOfferedEvent(uint32_t channel, uint32_t devices, void* out, uint32_t out_size) {
  ProcessPage* const page = g_connection.process_page;
  if (Embedded() != nullptr || page == nullptr || HostIsGone() || FindCallSite() != 0) return 0;
  return page->offers.Take(channel, devices, out, out_size);
}

bool MayCall() { return t_calls <= 0; }

bool HasToJoin() { return g_connection.must_rejoin.load(std::memory_order_relaxed); }

void JoinIfForked() {
  if (!HasToJoin()) [[likely]]
    return;
  const CancellationHeld held;
  const int saved_errno = errno;
  LockConnection();
  EnsureConnected();
  UnlockConnection();
  errno = saved_errno;
}

std::byte* MapSpan(const SharedSpan& span) {
  Connection& c = g_connection;
  {
    ForkMutexLock lock;
    bool known;
    std::byte* const bytes = c.segments.Find(span, known);
    if (known) return bytes;
  }
  const CancellationHeld held;
  LockConnection();
  const int error = EnsureConnected();
  std::byte* const bytes = error == 0 ? MapSpanLocked(span, c.socket) : nullptr;
  UnlockConnection();
  if (error != 0) errno = error;
  return bytes;
}

bool IsEmbedded() { return Embedded() != nullptr; }

bool DriveEmbedded() {
  const rdmaemu_embedded_host* const embedded = Embedded();
  if (embedded == nullptr) return false;
  embedded->idle();
  return true;
}

bool HostIsGone() { return g_connection.gone.load(std::memory_order_relaxed); }

bool HostIsGone(uint32_t handle) {
  JoinIfForked();
  const uint32_t ended = g_ended_hosts.load(std::memory_order_relaxed);
  return HostIsGone() || HasToJoin() || (ended >> IdSpace::PartOf(handle) & 1) != 0;
}

}  // namespace rdmaemu::client

extern "C" {

int rdmaemu_client_call(uint32_t op, const void* in, uint32_t in_size, void* out, uint32_t out_size,
                        uint32_t* out_filled, int* descriptors, uint32_t descriptor_count) {
  using namespace rdmaemu::client;
  if (in_size > rdmaemu::kMaxCallBytes - sizeof(rdmaemu::CallHeader) ||
      descriptor_count > rdmaemu::kMaxReplyDescriptors) {
    return EINVAL;
  }
  // Connecting opens files and spawns a process, which are cancellation points.
  const CancellationHeld held;
  const int saved_errno = errno;
  Buffer buffer{out, out_size, 0};
  ReleaseToDevice();
  AnnouncedReply known{};
  if (descriptor_count == 0 && TakeAnnounced(op, in, in_size, known)) {
    AcquireFromDevice();
    buffer.filled = known.size < out_size ? known.size : out_size;
    if (known.error == 0 && buffer.filled > 0) memcpy(out, known.bytes, buffer.filled);
    if (out_filled != nullptr) *out_filled = known.error == 0 ? buffer.filled : 0;
    errno = saved_errno;
    return known.error;
  }
  const rdmaemu_embedded_host* const embedded = Embedded();
  const int error = embedded == nullptr
                        ? CallHostProcess({op, in_size}, in, buffer, descriptors, descriptor_count)
                        : embedded->call(op, in, in_size, out, out_size, &buffer.filled,
                                         descriptors, descriptor_count);
  if (error == 0 && rdmaemu::HasTrait(op, rdmaemu::kBringsCounter)) {
    for (uint32_t i = 0; i < descriptor_count; i++) RememberCounter(descriptors[i]);
    // The host may have died before the counter was remembered.
    if (HostIsGone()) FillCounters();
  }
  AcquireFromDevice();
  if (out_filled != nullptr) *out_filled = error == 0 ? buffer.filled : 0;
  errno = saved_errno;
  return error;
}

int rdmaemu_client_embed(const rdmaemu_embedded_host* host) {
  using namespace rdmaemu::client;
  RegisterForkHandlersOnce();
  auto& c = g_connection;
  LockConnection();
  int error = c.socket >= 0 || c.must_rejoin.load() ? EBUSY : 0;
  if (error == 0) {
    ForgetSegments();
    g_ended_hosts = 0;
    g_embedded = host;
    c.generation++;
    c.gone = host == nullptr;
    if (host != nullptr) error = GreetEmbedded(*host, 0);
    if (error != 0) {
      g_embedded = nullptr;
      c.gone = true;
    }
  }
  UnlockConnection();
  if (host == nullptr) FillCounters();  // waiting threads then return
  return error;
}

int rdmaemu_client_join(uint32_t number) {
  using namespace rdmaemu::client;
  const rdmaemu_embedded_host* const embedded = Embedded();
  if (embedded == nullptr || number >= rdmaemu::IdSpace::kMaxParts) return EINVAL;
  LockConnection();
  const int error = GreetEmbedded(*embedded, number);
  UnlockConnection();
  return error;
}

void rdmaemu_client_host_ended(uint32_t number) {
  if (number < rdmaemu::IdSpace::kMaxParts) rdmaemu::client::g_ended_hosts |= 1u << number;
}

uint32_t rdmaemu_client_host_generation() {
  return rdmaemu::client::g_connection.generation.load(std::memory_order_relaxed);
}

int rdmaemu_client_is_forked_from(uint32_t owner_pid) {
  return owner_pid != rdmaemu::client::OwnPid();
}
}
