#include "shim/rdmacm/lookup.h"

#include <netdb.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>

#include "shim/rdmacm/internal.h"
#include "shim/rdmacm/newer_abi.h"

namespace rdmaemu::rdmacm {
namespace {

void Release(Lookup* lookup) {
  {
    MutexLock lock(lookup->mutex);
    if (--lookup->holders != 0) return;
  }
  std::free(lookup->node);
  std::free(lookup->service);
  rdma_freeaddrinfo(lookup->hints);
  rdma_freeaddrinfo(lookup->info);
  Free(lookup);
}

int WriteEvent(const Id& id, uint32_t event, int status, uint64_t argument) {
  CmWriteEvent command = {};
  command.id = id.handle;
  command.event = event;
  command.status = static_cast<uint32_t>(status);
  command.param.arg = argument;
  return Call(ChannelOf(id), kCmCommandWriteEvent, command);
}

void* LookUp(void* argument) {
  auto* lookup = static_cast<Lookup*>(argument);
  rdma_addrinfo* info = nullptr;
  const int result = rdma_getaddrinfo(lookup->node, lookup->service, lookup->hints, &info);
  const int error = result == -1 ? -errno : result;
  {
    MutexLock lock(lookup->mutex);
    lookup->done = true;
    lookup->info = info;
    // An error needs no report here. If the host has ended, the program's own calls fail, too.
    if (lookup->id != nullptr) {
      Uninterrupted([&] { return WriteEvent(*lookup->id, kEventInternal, error, 0); });
    }
  }
  Release(lookup);
  return nullptr;
}

// Blocks all signals in the thread, because the program's own threads handle them.
int StartThread(Lookup* lookup) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, LookUp, lookup);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

int Start(Id& id, const char* node, const char* service, const rdma_addrinfo* hints) {
  auto* lookup = Make<Lookup>();
  if (lookup == nullptr) return ENOMEM;
  lookup->id = &id;
  lookup->holders = 1;
  if (!CopyName(node, &lookup->node) || !CopyName(service, &lookup->service) ||
      (hints != nullptr && (lookup->hints = CopyAddrInfo(*hints)) == nullptr)) {
    Release(lookup);
    return ENOMEM;
  }
  AbandonLookup(id);  // the previous result
  lookup->holders = 2;
  id.lookup = lookup;
  const int error = StartThread(lookup);
  if (error != 0) {
    id.lookup = nullptr;
    lookup->holders = 1;
    Release(lookup);
  }
  return error;
}

bool IsUnderWay(const Id& id) {
  if (id.lookup == nullptr) return false;
  MutexLock lock(id.lookup->mutex);
  return !id.lookup->done;
}

}  // namespace

void AbandonLookup(Id& id) {
  Lookup* lookup = id.lookup;
  if (lookup == nullptr) return;
  {
    MutexLock lock(lookup->mutex);
    lookup->id = nullptr;
  }
  id.lookup = nullptr;
  Release(lookup);
}

}  // namespace rdmaemu::rdmacm

extern "C" {

// Resolves names in a thread. ADDRINFO_ERROR has the error of rdma_getaddrinfo: an EAI_* code, or a
// negative errno. Fails with EINVAL while another lookup of the id runs.
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    return Fail(EINVAL);
  }
  Id& ours = Private(id);
  if (IsForked(ChannelOf(ours))) return Fail(EACCES);
  const int flags = hints != nullptr ? hints->ai_flags : 0;
  if ((flags & kRaiSa) != 0) {
    if ((flags & kRaiDns) != 0 || node != nullptr || id->verbs == nullptr) return Fail(EINVAL);
    return Fail(EOPNOTSUPP);  // a RoCE port has no subnet administrator
  }
  if (IsUnderWay(ours)) return Fail(EINVAL);
  if (const int error = Start(ours, node, service, hints); error != 0) return Fail(error);
  return Complete(ours);
}

int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || info == nullptr) return Fail(EINVAL);
  Lookup* lookup = Private(id).lookup;
  if (lookup == nullptr) return Fail(ENODATA);
  MutexLock lock(lookup->mutex);
  if (lookup->info == nullptr) return Fail(ENODATA);
  *info = CopyAddrInfo(*lookup->info);
  return *info != nullptr ? 0 : Fail(ENOMEM);
}

int rdma_write_cm_event(rdma_cm_id* id, rdma_cm_event_type event, int status, uint64_t arg) {
  using namespace rdmaemu::rdmacm;
  if (id == nullptr || static_cast<uint32_t>(event) != kEventUser) return Fail(EINVAL);
  return ReturnErrno(WriteEvent(Private(id), kEventUser, status, arg));
}

}  // extern "C"
