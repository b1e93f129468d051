// Extended polling: ibv_start_poll, ibv_next_poll and the reader functions. As in rxe, the lock is
// held from start to end.

#include <string.h>
#include <time.h>

#include <atomic>

#include "shim/verbs/lanes.h"
#include "shim/verbs/objects.h"
#include "shim/verbs/payloads.h"
#include "shim/verbs/watched.h"

namespace rdmaemu::shim {
namespace {

bool TakeFromRing(CompletionQueue& cq) {
  const uint32_t consumer = cq.ring.Consumer();
  if (consumer == cq.ring.Producer()) return false;
  client::AcquireFromDevice();
  memcpy(&cq.current, cq.ring.Slot(consumer), sizeof cq.current);
  if (cq.current.payload == kPayloadWaits) {
    cq.memory.Begin();
    FetchPayload(cq, consumer);
  }
  cq.ring.SetConsumer(cq.ring.Next(consumer));
  RenewLane(cq, cq.current.wc.qp_num);
  return true;
}

bool TakeFromLane(CompletionQueue& cq) {
  ibv_wc wc;
  if (cq.lanes == nullptr || TakeFromLanes(cq, &wc, 1) == 0) return false;
  memcpy(&cq.current.wc, &wc, sizeof wc);
  return true;
}

bool TakeCurrent(CompletionQueue& cq) {
  if (!cq.ring.IsConsumersStill()) return false;
  if (cq.control->TakeExecuted(cq.current)) {
    client::AcquireFromDevice();
  } else {
    const auto take = [&cq] { return TakeFromRing(cq) || TakeFromLane(cq); };
    if (!take()) {
      if (cq.lanes == nullptr) return false;
      AwaitMovedMessages(cq);
      if (!take()) return false;
    }
  }
  cq.extended.status = static_cast<ibv_wc_status>(cq.current.wc.status);
  cq.extended.wr_id = cq.current.wc.wr_id;
  return true;
}

int StartPollNow(CompletionQueue& cq) {
  if (client::HostIsGone(cq.base.handle)) return EIO;
  if (!cq.single_threaded) cq.lock.Lock();
  if (TakeCurrent(cq)) return 0;
  if (!cq.single_threaded) cq.lock.Unlock();
  AfterEmptyPoll();
  return ENOENT;
}
int StartPoll(ibv_cq_ex* base, ibv_poll_cq_attr* attr) {
  CompletionQueue& cq = *Of(base);
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  bool started = false;
  return Watched(
      CallOp::kPollCq, cq.base.handle,
      [&] {
        const int error = StartPollNow(cq);
        started = error == 0;
        return error;
      },
      [&](int error) {
        if (started && !cq.single_threaded)
          cq.lock.Unlock();  // ibv_end_poll is not called after a failed start
        return error;
      });
}
int NextPoll(ibv_cq_ex* base) { return TakeCurrent(*Of(base)) ? 0 : ENOENT; }
void EndPoll(ibv_cq_ex* base) {
  if (!Of(base)->single_threaded) Of(base)->lock.Unlock();
}

ibv_wc_opcode ReadOpcode(ibv_cq_ex* cq) {
  return static_cast<ibv_wc_opcode>(Of(cq)->current.wc.opcode);
}
uint32_t ReadVendorErr(ibv_cq_ex* cq) { return Of(cq)->current.wc.vendor_err; }
uint32_t ReadByteLen(ibv_cq_ex* cq) { return Of(cq)->current.wc.byte_len; }
__be32 ReadImmData(ibv_cq_ex* cq) { return Of(cq)->current.wc.ex.imm_data; }
uint32_t ReadQpNum(ibv_cq_ex* cq) { return Of(cq)->current.wc.qp_num; }
uint32_t ReadSrcQp(ibv_cq_ex* cq) { return Of(cq)->current.wc.src_qp; }
unsigned ReadWcFlags(ibv_cq_ex* cq) { return Of(cq)->current.wc.wc_flags; }
uint32_t ReadSlid(ibv_cq_ex* cq) { return Of(cq)->current.wc.slid; }
uint8_t ReadSl(ibv_cq_ex* cq) { return Of(cq)->current.wc.sl; }
uint8_t ReadDlidPathBits(ibv_cq_ex* cq) { return Of(cq)->current.wc.dlid_path_bits; }

// Converts a host's time to ticks of the device's clock. The two terms are exact, and neither
// overflows.
uint64_t TicksOf(const Context& context, uint64_t time_ns) {
  constexpr uint64_t kNsPerMs = 1000000;  // a tick rate in kHz is ticks per ms
  const uint64_t ticks =
      time_ns / kNsPerMs * context.clock_khz + time_ns % kNsPerMs * context.clock_khz / kNsPerMs;
  return ticks & context.clock_mask;
}
uint64_t ReadCompletionTs(ibv_cq_ex* cq) {
  return TicksOf(*Of(cq->context), Of(cq)->current.timestamp_ns);
}

// Returns the difference between CLOCK_REALTIME and CLOCK_MONOTONIC, in which hosts count their
// time. The difference is computed once, because a device's clock is not set while the program
// runs.
uint64_t NsToWallclock() {
  static std::atomic<uint64_t> known = 0;
  uint64_t offset = known.load(std::memory_order_relaxed);
  if (offset != 0) return offset;
  timespec real{}, monotonic{};
  clock_gettime(CLOCK_MONOTONIC, &monotonic);
  clock_gettime(CLOCK_REALTIME, &real);
  constexpr uint64_t kNsPerSecond = 1'000'000'000;
  offset = static_cast<uint64_t>(real.tv_sec - monotonic.tv_sec) * kNsPerSecond +
           static_cast<uint64_t>(real.tv_nsec - monotonic.tv_nsec);
  uint64_t unknown = 0;
  return known.compare_exchange_strong(unknown, offset) ? offset : unknown;
}
uint64_t ReadCompletionWallclockNs(ibv_cq_ex* cq) {
  return Of(cq)->current.timestamp_ns + NsToWallclock();
}

}  // namespace

// Follows mlx5_query_rt_values of libmlx5: tv_nsec gets the ticks, whatever their number. As on
// rxe, a device without a clock fails with EOPNOTSUPP for any argument.
int QueryRtValues(ibv_context* context, ibv_values_ex* values) {
  if (Of(context)->clock_khz == 0) return EOPNOTSUPP;
  if ((values->comp_mask & ~uint32_t{IBV_VALUES_MASK_RAW_CLOCK}) != 0) return EINVAL;
  if (values->comp_mask == 0) return 0;
  QueryClockOut reply{};
  const int error = CallOnHandle(CallOp::kQueryClock, context, HandleOf(context), reply);
  if (error != 0) {
    values->comp_mask = 0;
    return error;
  }
  values->raw_clock.tv_sec = 0;
  values->raw_clock.tv_nsec = static_cast<long>(TicksOf(*Of(context), reply.now_ns));
  return 0;
}

void SetReaders(CompletionQueue& cq, uint64_t wc_flags) {
  ibv_cq_ex& ex = cq.extended;
  cq.has_timestamps = (wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0;
  ex.start_poll = StartPoll;
  ex.next_poll = NextPoll;
  ex.end_poll = EndPoll;
  ex.read_opcode = ReadOpcode;
  ex.read_vendor_err = ReadVendorErr;
  ex.read_wc_flags = ReadWcFlags;
  if ((wc_flags & IBV_WC_EX_WITH_BYTE_LEN) != 0) ex.read_byte_len = ReadByteLen;
  if ((wc_flags & IBV_WC_EX_WITH_IMM) != 0) ex.read_imm_data = ReadImmData;
  if ((wc_flags & IBV_WC_EX_WITH_QP_NUM) != 0) ex.read_qp_num = ReadQpNum;
  if ((wc_flags & IBV_WC_EX_WITH_SRC_QP) != 0) ex.read_src_qp = ReadSrcQp;
  if ((wc_flags & IBV_WC_EX_WITH_SLID) != 0) ex.read_slid = ReadSlid;
  if ((wc_flags & IBV_WC_EX_WITH_SL) != 0) ex.read_sl = ReadSl;
  if ((wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS) != 0) ex.read_dlid_path_bits = ReadDlidPathBits;
  if ((wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0) {
    ex.read_completion_ts = ReadCompletionTs;
  }
  if ((wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0) {
    ex.read_completion_wallclock_ns = ReadCompletionWallclockNs;
  }
}

// Follows ibv_create_cq_ex(3). Supports the standard fields, and timestamps if the device has a
// clock. rxe has none.
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  constexpr uint32_t kFlags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if ((Of(context)->missing & kMissingExtendedCalls) != 0) return NullWith(EOPNOTSUPP);
  uint64_t fields = IBV_WC_STANDARD_FLAGS;
  if (Of(context)->clock_khz != 0) {
    fields |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  }
  const bool has_flags = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  if ((attr->comp_mask & ~uint32_t{IBV_CQ_INIT_ATTR_MASK_FLAGS}) != 0 ||
      (attr->wc_flags & ~fields) != 0 || (has_flags && (attr->flags & ~kFlags) != 0)) {
    return NullWith(EOPNOTSUPP);
  }
  if (attr->cqe == 0 || attr->cqe > INT32_MAX) return NullWith(EINVAL);
  CompletionQueue* cq =
      CreateCompletionQueue(context, attr->cqe, attr->cq_context, attr->channel, attr->comp_vector);
  if (cq == nullptr) return nullptr;
  cq->single_threaded = has_flags && (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  SetReaders(*cq, attr->wc_flags);
  return &cq->extended;
}

}  // namespace rdmaemu::shim
