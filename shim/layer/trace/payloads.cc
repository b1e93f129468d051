#include "shim/layer/trace/payloads.h"

#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "shim/layer/originals.h"
#include "shim/layer/state_lock.h"
#include "shim/layer/trace/crc32c.h"
#include "shim/layer/trace/recorder.h"

namespace rdmaemu::layer::trace {

bool g_hashes_payloads;

namespace {

struct State;
using Lock = StateLock<State>;
using Memory = EntryMemory<State>;

// A work request with more SGEs has no hash.
constexpr size_t kMaxSges = 62;
// The most work requests of one queue that wait for their completions. The oldest ones are dropped
// beyond this number. Unsignalled READs never have a completion.
constexpr size_t kMaxWork = 65536;
// The most requests of one post with hashes. The rest have no hash.
constexpr size_t kMaxRequests = 4096;
// Hashes in one record.
constexpr size_t kHashesPerRecord = 32;
// The bytes before the payload in a UD receive.
constexpr uint64_t kGrhBytes = 40;
// The buffer is small, because a program's thread may have a small stack.
constexpr size_t kChunkBytes = 4096;

// Copies memory of the program. Returns false when the memory is not mapped.
bool CopyFromProgram(const void* from, void* to, size_t bytes) {
  const int error = errno;
  const iovec local{to, bytes}, remote{const_cast<void*>(from), bytes};
  const bool is_whole =
      process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  errno = error;
  return is_whole;
}

// The SGEs of one work request.
struct Sges {
  HashState state = HashState::kHashed;  // kHashed, or the reason why there are no SGEs
  size_t count = 0;
  ibv_sge list[kMaxSges];

  uint64_t Bytes() const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += list[i].length;
    return bytes;
  }
};

// Copies SGEs without a fault, because the library may refuse the request and its invalid list.
void CopySges(const ibv_sge* from, int count, Sges& to) {
  if (count < 0 || static_cast<size_t>(count) > kMaxSges) {
    to.state = HashState::kTooManySges;
    return;
  }
  to.count = static_cast<size_t>(count);
  if (count > 0 && !CopyFromProgram(from, to.list, to.count * sizeof *to.list)) {
    to.state = HashState::kUnreadable;
    to.count = 0;
  }
}

// ---- state, all under Lock

// A posted receive or READ. Its SGEs follow it in memory.
struct Work {
  Work* next;
  uint64_t wr_id, serial;
  uint32_t count;
  HashState state;
  uint8_t size_class;
  ibv_sge* sges() { return reinterpret_cast<ibv_sge*>(this + 1); }
};
static_assert(sizeof(Work) == 32);

// Sizes of 64, 128, 256, 512 and 1024 bytes.
constexpr size_t kSizeClasses = 5;
constexpr size_t BytesOf(size_t size_class) { return size_t{64} << size_class; }
static_assert(BytesOf(kSizeClasses - 1) == sizeof(Work) + kMaxSges * sizeof(ibv_sge));
Work* g_free[kSizeClasses];

Work* NewWork(uint64_t wr_id, const Sges& sges) {
  const size_t bytes = sizeof(Work) + sges.count * sizeof(ibv_sge);
  uint8_t size_class = 0;
  while (BytesOf(size_class) < bytes) size_class++;
  Work* work = g_free[size_class];
  if (work != nullptr) {
    g_free[size_class] = work->next;
  } else {
    work = static_cast<Work*>(Memory::Allocate(BytesOf(size_class)));
    if (work == nullptr) return nullptr;
  }
  *work = {nullptr, wr_id, 0, static_cast<uint32_t>(sges.count), sges.state, size_class};
  if (sges.count > 0) memcpy(work->sges(), sges.list, sges.count * sizeof(ibv_sge));
  return work;
}

void Free(Work* work) {
  work->next = g_free[work->size_class];
  g_free[work->size_class] = work;
}

void Give(Work& work, Sges& to) {
  to.state = work.state;
  to.count = work.count;
  if (work.count > 0) memcpy(to.list, work.sges(), work.count * sizeof(ibv_sge));
}

bool HasSameSges(Work& a, Work& b) {
  return a.count == b.count &&
         (a.count == 0 || memcmp(a.sges(), b.sges(), a.count * sizeof(ibv_sge)) == 0);
}

// Posted work in the order of the posts.
class WorkQueue {
 public:
  // Returns the serial number of the work.
  uint64_t Push(uint64_t wr_id, const Sges& sges) {
    const uint64_t serial = next_serial_++;
    Work* const work = NewWork(wr_id, sges);
    if (work == nullptr) return serial;
    work->serial = serial;
    *end_ = work;
    end_ = &work->next;
    if (++length_ > kMaxWork) Drop(&first_);
    return serial;
  }
  // Takes the oldest work with this wr_id, and drops the work before it, which has no completion
  // any more. Returns false when there is none.
  bool TakeInOrder(uint64_t wr_id, Sges& to) {
    Work* const found = Find(wr_id);
    if (found == nullptr) return false;
    Give(*found, to);
    while (first_ != found) Drop(&first_);
    Drop(&first_);
    return true;
  }
  // Takes a work with this wr_id. In a shared receive queue, completions have another order than
  // posts. Several works with one wr_id therefore cannot be distinguished.
  bool TakeInAnyOrder(uint64_t wr_id, Sges& to) {
    Work** at = &first_;
    while (*at != nullptr && (*at)->wr_id != wr_id) at = &(*at)->next;
    if (*at == nullptr) return false;
    Give(**at, to);
    for (Work* other = (*at)->next; other != nullptr; other = other->next) {
      if (other->wr_id == wr_id && !HasSameSges(**at, *other)) to.state = HashState::kAmbiguous;
    }
    Drop(at);
    return true;
  }
  // Drops the works with serial numbers from `begin` to before `end`.
  void DropRange(uint64_t begin, uint64_t end) {
    for (Work** at = &first_; *at != nullptr;) {
      if ((*at)->serial >= begin && (*at)->serial < end) {
        Drop(at);
      } else {
        at = &(*at)->next;
      }
    }
  }
  void Clear() {
    while (first_ != nullptr) Drop(&first_);
  }
  uint64_t next_serial() const { return next_serial_; }

 private:
  Work* Find(uint64_t wr_id) {
    Work* work = first_;
    while (work != nullptr && work->wr_id != wr_id) work = work->next;
    return work;
  }
  void Drop(Work** at) {
    Work* const work = *at;
    *at = work->next;
    if (end_ == &work->next) end_ = at;
    Free(work);
    length_--;
  }

  Work* first_ = nullptr;
  Work** end_ = &first_;
  size_t length_ = 0;
  uint64_t next_serial_ = 1;
};

// Objects of one kind by a pointer and a number. Removed objects are reused.
template <class T>
class Table {
 public:
  T* Find(const void* owner, uint32_t number) {
    for (T* each = Bucket(owner, number); each != nullptr; each = each->next) {
      if (each->owner == owner && each->number == number) return each;
    }
    return nullptr;
  }
  // Returns nullptr when there is no memory.
  T* FindOrMake(const void* owner, uint32_t number) {
    if (T* const found = Find(owner, number)) return found;
    T* made = free_;
    if (made != nullptr) {
      free_ = made->next;
    } else {
      void* const memory = Memory::Allocate(sizeof(T));
      if (memory == nullptr) return nullptr;
      made = new (memory) T;
    }
    T*& bucket = Bucket(owner, number);
    made->owner = owner;
    made->number = number;
    made->next = bucket;
    bucket = made;
    return made;
  }
  void Remove(T* object) {
    T** at = &Bucket(object->owner, object->number);
    while (*at != object) at = &(*at)->next;
    *at = object->next;
    object->next = free_;
    free_ = object;
  }

 private:
  static constexpr size_t kBuckets = 1024;
  T*& Bucket(const void* owner, uint32_t number) {
    return buckets_[(reinterpret_cast<uintptr_t>(owner) >> 4 ^ number) % kBuckets];
  }
  T* buckets_[kBuckets] = {};
  T* free_ = nullptr;
};

struct Qp {
  const void* owner = nullptr;  // ibv_context
  uint32_t number = 0;
  Qp* next = nullptr;
  const ibv_srq* srq = nullptr;
  bool is_datagram = false;
  WorkQueue receives, reads;
  // The state of the builder. One thread at a time makes its calls.
  Builds builds = Builds::kOther;
  uint64_t build_begin = 0;
};
struct Srq {
  const void* owner = nullptr;  // ibv_srq
  uint32_t number = 0;
  Srq* next = nullptr;
  WorkQueue receives;
};
// A region whose SGEs have no hash.
struct SpecialMr {
  const void* owner = nullptr;  // ibv_context
  uint32_t number = 0;          // lkey
  SpecialMr* next = nullptr;
  HashState state = HashState::kHashed;
};
Table<Qp> g_qps;
Table<Srq> g_srqs;
Table<SpecialMr> g_mrs;

Qp* QpOf(const ibv_qp* qp) {
  const bool is_new = g_qps.Find(qp->context, qp->qp_num) == nullptr;
  Qp* const made = g_qps.FindOrMake(qp->context, qp->qp_num);
  if (made != nullptr && is_new) {
    made->srq = qp->srq;
    made->is_datagram = qp->qp_type == IBV_QPT_UD;
  }
  return made;
}

WorkQueue* ReceivesOf(const ibv_qp* qp) {
  Qp* const known = QpOf(qp);
  return known == nullptr ? nullptr : &known->receives;
}
WorkQueue* ReceivesOf(const ibv_srq* srq) {
  Srq* const known = g_srqs.FindOrMake(srq, 0);
  return known == nullptr ? nullptr : &known->receives;
}

// ---- hashes

HashState StateOfRegions(const void* context, const Sges& sges) {
  const Lock lock;
  if (!lock) return HashState::kHandler;
  for (size_t i = 0; i < sges.count; i++) {
    if (const SpecialMr* const mr = g_mrs.Find(context, sges.list[i].lkey)) return mr->state;
  }
  return HashState::kHashed;
}

// Adds `bytes` of the program's memory to the CRC. Returns false when they cannot be read.
bool AddBytes(uint64_t address, uint64_t bytes, uint32_t& crc) {
  char chunk[kChunkBytes];
  while (bytes > 0) {
    const size_t count = std::min<uint64_t>(bytes, sizeof chunk);
    if (!CopyFromProgram(reinterpret_cast<const void*>(address), chunk, count)) return false;
    crc = Crc32c(crc, chunk, count);
    address += count;
    bytes -= count;
  }
  return true;
}

// Returns the hash of `length` bytes after `skip` bytes of the SGEs.
PayloadHash HashOf(const Sges& sges, uint64_t skip, uint64_t length) {
  if (sges.state != HashState::kHashed) return {sges.state, 0};
  PayloadHash hash{HashState::kHashed, 0};
  uint32_t crc = 0;
  for (size_t i = 0; i < sges.count && length > 0; i++) {
    const ibv_sge& sge = sges.list[i];
    const uint64_t skipped = std::min<uint64_t>(skip, sge.length);
    skip -= skipped;
    const uint64_t bytes = std::min<uint64_t>(sge.length - skipped, length);
    if (!AddBytes(sge.addr + skipped, bytes, crc)) return {HashState::kUnreadable, 0};
    length -= bytes;
  }
  if (length > 0) return {HashState::kUnreadable, 0};
  hash.crc = crc;
  return hash;
}

PayloadHash HashOfRegions(const void* context, const Sges& sges, uint64_t skip, uint64_t length) {
  const HashState state = StateOfRegions(context, sges);
  if (state != HashState::kHashed) return {state, 0};
  return HashOf(sges, skip, length);
}

bool SendsBytes(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return true;
    default:
      return false;
  }
}

// Collects the hashes of a call and writes them into records.
class HashRecords {
 public:
  explicit HashRecords(CallId id) : id_(id) {}
  ~HashRecords() { Write(); }
  HashRecords(const HashRecords&) = delete;
  HashRecords& operator=(const HashRecords&) = delete;

  void Add(PayloadHash hash) {
    hashes_[count_++] = hash;
    if (count_ == kHashesPerRecord) Write();
  }

 private:
  void Write() {
    if (count_ == 0) return;
    const int error = errno;
    Record record(RecordKind::kPayloads, static_cast<uint16_t>(id_));
    if (record) {
      record.Put(static_cast<uint16_t>(count_));
      record.PutBytes(hashes_, count_ * sizeof *hashes_);
    }
    count_ = 0;
    errno = error;
  }

  const CallId id_;
  PayloadHash hashes_[kHashesPerRecord];
  size_t count_ = 0;
};

bool RemembersRead(const ibv_send_wr& wr) { return wr.opcode == IBV_WR_RDMA_READ; }

void RememberRead(const ibv_qp* qp, uint64_t wr_id, const Sges& sges, PostTicket& ticket) {
  const Lock lock;
  Qp* const known = lock ? QpOf(qp) : nullptr;
  if (known == nullptr) return;
  const uint64_t serial = known->reads.Push(wr_id, sges);
  if (ticket.count++ == 0) ticket.first = serial;
}

template <class Queue>
PostTicket BeforeReceives(const Queue* queue, const ibv_recv_wr* wr) {
  PostTicket ticket;
  for (size_t i = 0; wr != nullptr && i < kMaxRequests; i++) {
    ibv_recv_wr copy;
    if (!CopyFromProgram(wr, &copy, sizeof copy)) break;
    Sges sges;
    CopySges(copy.sg_list, copy.num_sge, sges);
    const Lock lock;
    WorkQueue* const receives = lock ? ReceivesOf(queue) : nullptr;
    if (receives == nullptr) break;
    const uint64_t serial = receives->Push(copy.wr_id, sges);
    if (ticket.count++ == 0) ticket.first = serial;
    wr = copy.next;
  }
  return ticket;
}

template <class Queue>
void AfterFailedReceives(PostTicket ticket, const Queue* queue, const ibv_recv_wr* wr,
                         const ibv_recv_wr* bad) {
  if (ticket.count == 0) return;
  uint32_t posted = 0;
  for (; wr != nullptr && wr != bad && posted < ticket.count; wr = wr->next) posted++;
  const Lock lock;
  WorkQueue* const receives = lock ? ReceivesOf(queue) : nullptr;
  if (receives != nullptr) receives->DropRange(ticket.first + posted, ticket.first + ticket.count);
}

// Returns the state of the completion's work, and its SGEs.
HashState TakeWork(const ibv_context* context, const ibv_wc& wc, Sges& sges, uint64_t& skip) {
  const Lock lock;
  if (!lock) return HashState::kHandler;
  Qp* const qp = g_qps.Find(context, wc.qp_num);
  if (qp == nullptr) return HashState::kUnknownWork;
  bool is_found = false;
  if ((wc.opcode & IBV_WC_RECV) == 0) {
    is_found = qp->reads.TakeInOrder(wc.wr_id, sges);
  } else if (qp->srq == nullptr) {
    is_found = qp->receives.TakeInOrder(wc.wr_id, sges);
  } else if (Srq* const srq = g_srqs.Find(qp->srq, 0)) {
    is_found = srq->receives.TakeInAnyOrder(wc.wr_id, sges);
  }
  if (qp->is_datagram) skip = kGrhBytes;
  return is_found ? sges.state : HashState::kUnknownWork;
}

}  // namespace

void OpenPayloads() { g_hashes_payloads = Lock::Open(); }

void NoteQp(const ibv_qp* qp) {
  ForgetQp(qp);
  const Lock lock;
  if (lock) QpOf(qp);
}

void ForgetQp(const ibv_qp* qp) {
  const Lock lock;
  Qp* const known = lock ? g_qps.Find(qp->context, qp->qp_num) : nullptr;
  if (known == nullptr) return;
  known->receives.Clear();
  known->reads.Clear();
  g_qps.Remove(known);
}

void ClearQp(const ibv_qp* qp) {
  const Lock lock;
  Qp* const known = lock ? g_qps.Find(qp->context, qp->qp_num) : nullptr;
  if (known == nullptr) return;
  known->receives.Clear();
  known->reads.Clear();
}

void ForgetSrq(const ibv_srq* srq) {
  const Lock lock;
  Srq* const known = lock ? g_srqs.Find(srq, 0) : nullptr;
  if (known == nullptr) return;
  known->receives.Clear();
  g_srqs.Remove(known);
}

void NoteMr(const ibv_mr* mr, HashState state) {
  ForgetMr(mr);
  if (state == HashState::kHashed) return;
  const Lock lock;
  SpecialMr* const made = lock ? g_mrs.FindOrMake(mr->context, mr->lkey) : nullptr;
  if (made != nullptr) made->state = state;
}

void ForgetMr(const ibv_mr* mr) {
  const Lock lock;
  SpecialMr* const known = lock ? g_mrs.Find(mr->context, mr->lkey) : nullptr;
  if (known != nullptr) g_mrs.Remove(known);
}

PostTicket BeforePost(CallId id, const ibv_qp* qp, const ibv_send_wr* wr) {
  PostTicket ticket;
  HashRecords records(id);
  for (size_t i = 0; wr != nullptr && i < kMaxRequests; i++) {
    ibv_send_wr copy;
    if (!CopyFromProgram(wr, &copy, sizeof copy)) break;
    Sges sges;
    CopySges(copy.sg_list, copy.num_sge, sges);
    PayloadHash hash;
    if (RemembersRead(copy)) {
      RememberRead(qp, copy.wr_id, sges, ticket);
    } else if (SendsBytes(copy.opcode)) {
      const bool is_inline = (copy.send_flags & IBV_SEND_INLINE) != 0;
      hash = is_inline ? HashOf(sges, 0, sges.Bytes())
                       : HashOfRegions(qp->context, sges, 0, sges.Bytes());
    }
    records.Add(hash);
    wr = copy.next;
  }
  return ticket;
}

PostTicket BeforePost(CallId, const ibv_qp* qp, const ibv_recv_wr* wr) {
  return BeforeReceives(qp, wr);
}
PostTicket BeforePost(CallId, const ibv_srq* srq, const ibv_recv_wr* wr) {
  return BeforeReceives(srq, wr);
}

void AfterFailedPost(PostTicket ticket, const ibv_qp* qp, const ibv_send_wr* wr,
                     const ibv_send_wr* bad) {
  if (ticket.count == 0) return;
  uint32_t posted = 0;
  for (; wr != nullptr && wr != bad && posted < ticket.count; wr = wr->next) {
    if (RemembersRead(*wr)) posted++;
  }
  const Lock lock;
  Qp* const known = lock ? g_qps.Find(qp->context, qp->qp_num) : nullptr;
  if (known == nullptr) return;
  known->reads.DropRange(ticket.first + posted, ticket.first + ticket.count);
}
void AfterFailedPost(PostTicket ticket, const ibv_qp* qp, const ibv_recv_wr* wr,
                     const ibv_recv_wr* bad) {
  AfterFailedReceives(ticket, qp, wr, bad);
}
void AfterFailedPost(PostTicket ticket, const ibv_srq* srq, const ibv_recv_wr* wr,
                     const ibv_recv_wr* bad) {
  AfterFailedReceives(ticket, srq, wr, bad);
}

void BuildStart(const ibv_qp_ex* qp) {
  const Lock lock;
  Qp* const known = lock ? QpOf(&qp->qp_base) : nullptr;
  if (known != nullptr) known->build_begin = known->reads.next_serial();
}

void Build(const ibv_qp_ex* qp, Builds what) {
  const Lock lock;
  Qp* const known = lock ? QpOf(&qp->qp_base) : nullptr;
  if (known != nullptr) known->builds = what;
}

void BuildSges(CallId id, const ibv_qp_ex* qp, const ibv_sge* list, size_t count) {
  Sges sges;
  CopySges(list, count > kMaxSges ? -1 : static_cast<int>(count), sges);
  Builds builds;
  {
    const Lock lock;
    Qp* const known = lock ? QpOf(&qp->qp_base) : nullptr;
    if (known == nullptr) return;
    builds = known->builds;
    if (builds == Builds::kRead) known->reads.Push(qp->wr_id, sges);
  }
  if (builds != Builds::kSend) return;
  HashRecords(id).Add(HashOfRegions(qp->qp_base.context, sges, 0, sges.Bytes()));
}

void BuildInline(CallId id, const ibv_qp_ex*, const ibv_data_buf* buffers, size_t count) {
  Sges sges;
  if (count > kMaxSges) sges.state = HashState::kTooManySges;
  ibv_data_buf copies[kMaxSges];
  if (count <= kMaxSges) {
    if (CopyFromProgram(buffers, copies, count * sizeof *copies)) {
      sges.count = count;
    } else {
      sges.state = HashState::kUnreadable;
    }
  }
  // An inline buffer may be longer than an SGE can describe. The library then refuses it.
  for (size_t i = 0; i < sges.count; i++) {
    if (copies[i].length > UINT32_MAX) sges.state = HashState::kUnreadable;
    sges.list[i] = {reinterpret_cast<uint64_t>(copies[i].addr),
                    static_cast<uint32_t>(copies[i].length), 0};
  }
  HashRecords(id).Add(HashOf(sges, 0, sges.Bytes()));
}

void BuildDropped(const ibv_qp_ex* qp) {
  const Lock lock;
  Qp* const known = lock ? QpOf(&qp->qp_base) : nullptr;
  if (known != nullptr) known->reads.DropRange(known->build_begin, UINT64_MAX);
}

PayloadHash HashOfCompletion(const ibv_context* context, const ibv_wc& wc, bool knows_qp) {
  const bool is_read = wc.opcode == IBV_WC_RDMA_READ;
  const bool is_receive = (wc.opcode & IBV_WC_RECV) != 0;
  if (wc.status != IBV_WC_SUCCESS || (!is_read && !is_receive)) return {};
  if (!knows_qp) return {HashState::kNoFields, 0};
  Sges sges;
  uint64_t skip = 0;
  const HashState state = TakeWork(context, wc, sges, skip);
  // The bytes of a WRITE with immediate are not in the receive's buffer.
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) return {};
  if (state != HashState::kHashed) return {state, 0};
  if (is_read) return HashOfRegions(context, sges, 0, sges.Bytes());
  const uint64_t length = wc.byte_len < skip ? 0 : wc.byte_len - skip;
  return HashOfRegions(context, sges, skip, length);
}

}  // namespace rdmaemu::layer::trace
