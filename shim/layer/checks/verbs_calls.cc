// Checks of devices, protection domains, memory regions, address handles and asynchronous events.
#include <infiniband/verbs.h>

#include "shim/layer/checks/hook.h"
#include "shim/layer/checks/install.h"

// verbs.h has macros of these names.
#undef ibv_get_device_list
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace rdmaemu::layer::checks {
namespace {

struct GetDeviceList : Check {
  static constexpr const char* kCall = "ibv_get_device_list";
  void After(ibv_device** list, int*) { Made<DeviceList>(*this, kCall, list); }
};
struct FreeDeviceList : DestroyCheck<DeviceList> {
  static constexpr const char* kCall = "ibv_free_device_list";
  bool Before(ibv_device** list) {
    const Section section;
    if (!section) return true;
    object = All<DeviceList>().FindAlive(list);
    if (object != nullptr) object->life = Life::kEnded;
    return true;
  }
};

struct OpenDevice : Check {
  static constexpr const char* kCall = "ibv_open_device";
  void After(ibv_context* context, ibv_device*) {
    Adopt(context);
    Made<Context>(*this, kCall, context);
  }
};
struct ImportDevice : Check {
  static constexpr const char* kCall = "ibv_import_device";
  void After(ibv_context* context, int) {
    Adopt(context);
    Made<Context>(*this, kCall, context);
  }
};
struct CloseDevice : DestroyCheck<Context> {
  static constexpr const char* kCall = "ibv_close_device";
  bool Before(ibv_context* context) {
    const Section section;
    if (!section) return true;
    object = All<Context>().FindAlive(context);
    if (object == nullptr) return true;
    serial = object->serial;
    object->life = Life::kEnding;
    const int waiting = object->generation == Generation() ? object->waiting.Count() : 0;
    if (is_programs && waiting > 0) {
      Report(Rule::kTHREAD_003, kCall, object, nullptr, nullptr,
             "threads in ibv_get_async_event: %d", waiting);
    }
    return true;
  }
  void After(int error, ibv_context* context) {
    const Section section;
    if (!section || !End(error == 0)) return;
    MrsOf(context).clear();
    QpsOf(context).clear();
  }
};

struct AllocPd : Check {
  static constexpr const char* kCall = "ibv_alloc_pd";
  void After(ibv_pd* pd, ibv_context*) { Made<Pd>(*this, kCall, pd); }
};

// Returns the first object that uses a protection domain.
const Object* UserOf(const ibv_pd* pd) {
  const Object* user = nullptr;
  const auto take = [&](const auto& each) {
    if (each.pd == pd && each.generation == Generation()) user = &each;
  };
  All<Ah>().ForEachAlive(take);
  All<Srq>().ForEachAlive(take);
  All<Mr>().ForEachAlive(take);
  All<Qp>().ForEachAlive(take);
  return user;
}

struct DeallocPd : DestroyCheck<Pd> {
  static constexpr const char* kCall = "ibv_dealloc_pd";
  bool Before(ibv_pd* pd) {
    const Section section;
    return !section || Begin(Rule::kMR_013, kCall, pd);
  }
  void After(int error, ibv_pd* pd) {
    const Section section;
    if (!section) return;
    End(error == 0);
    const Object* const user = error == EBUSY && is_programs ? UserOf(pd) : nullptr;
    if (user == nullptr) return;
    Report(Rule::kMR_011, kCall, object, user, nullptr, "the call fails, because %s uses it",
           NameOf(*user).c_str());
  }
};

constexpr unsigned kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

// Creates the object of a region. `begin` is its first address in SGEs, nullptr if it is unknown.
// `memory` is the program's memory.
void MadeMr(const Check& check, const char* call, ibv_mr* mr, const ibv_pd* pd,
            const uint64_t* begin, const void* memory, uint64_t length, unsigned access) {
  if (mr == nullptr) return;
  Made<Mr>(check, call, mr, [&](Mr& made) {
    made.pd = pd;
    made.context = mr->context;
    made.lkey = mr->lkey;
    made.is_plain = begin != nullptr && length != SIZE_MAX && (access & IBV_ACCESS_ZERO_BASED) == 0;
    made.begin = begin == nullptr ? 0 : *begin;
    made.is_direct = made.is_plain && made.begin == reinterpret_cast<uint64_t>(memory);
    made.length = length;
    made.access = access;
    MrsOf(mr->context)[mr->lkey] = &made;
  });
}

void CheckAccess(const Check& check, const char* call, const void* result, unsigned access) {
  if (!check.is_programs || result != nullptr || errno != EINVAL) return;
  if ((access & kNeedsLocalWrite) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0) return;
  const Section section;
  if (!section) return;
  Report(Rule::kMR_006, call, nullptr, nullptr, nullptr,
         "the call fails: access 0x%x has no IBV_ACCESS_LOCAL_WRITE", access);
}

struct RegMr : Check {
  static constexpr const char* kCall = "ibv_reg_mr";
  void After(ibv_mr* mr, ibv_pd* pd, void* begin, size_t length, int access) {
    CheckAccess(*this, kCall, mr, static_cast<unsigned>(access));
    const auto at = reinterpret_cast<uint64_t>(begin);
    MadeMr(*this, kCall, mr, pd, &at, begin, length, static_cast<unsigned>(access));
  }
};
struct RegMrIova : Check {
  static constexpr const char* kCall = "ibv_reg_mr_iova";
  void After(ibv_mr* mr, ibv_pd* pd, void* memory, size_t length, uint64_t iova, int access) {
    CheckAccess(*this, kCall, mr, static_cast<unsigned>(access));
    MadeMr(*this, kCall, mr, pd, &iova, memory, length, static_cast<unsigned>(access));
  }
};
struct RegMrIova2 : Check {
  static constexpr const char* kCall = "ibv_reg_mr_iova2";
  void After(ibv_mr* mr, ibv_pd* pd, void* memory, size_t length, uint64_t iova, unsigned access) {
    CheckAccess(*this, kCall, mr, access);
    MadeMr(*this, kCall, mr, pd, &iova, memory, length, access);
  }
};
struct RegDmabufMr : Check {
  static constexpr const char* kCall = "ibv_reg_dmabuf_mr";
  void After(ibv_mr* mr, ibv_pd* pd, uint64_t, size_t, uint64_t, int, int) {
    MadeMr(*this, kCall, mr, pd, nullptr, nullptr, 0, 0);
  }
};
struct ImportMr : Check {
  static constexpr const char* kCall = "ibv_import_mr";
  void After(ibv_mr* mr, ibv_pd* pd, uint32_t) {
    MadeMr(*this, kCall, mr, pd, nullptr, nullptr, 0, 0);
  }
};
struct UnimportMr : DestroyCheck<Mr> {
  static constexpr const char* kCall = "ibv_unimport_mr";
  bool Before(ibv_mr* mr) {
    const Section section;
    Mr* const found = section ? All<Mr>().FindAlive(mr) : nullptr;
    if (found != nullptr) found->life = Life::kEnded;
    return true;
  }
};
struct ReregMr : Check {
  static constexpr const char* kCall = "ibv_rereg_mr";
  void After(int, ibv_mr* mr, int, ibv_pd*, void*, size_t, int) {
    const Section section;
    Mr* const found = section ? All<Mr>().FindAlive(mr) : nullptr;
    if (found == nullptr) return;
    MrsOf(found->context).erase(found->lkey);
    found->is_plain = found->is_direct = false;
    found->pd = mr->pd;
    found->lkey = mr->lkey;
    MrsOf(found->context)[found->lkey] = found;
  }
};

// Returns the live queue pair whose posted work uses a region.
const Qp* QpInFlight(const Mr& mr) {
  const Qp* user = nullptr;
  const auto uses = [&](WorkRing& ring) {
    for (size_t i = 0; i < ring.count(); i++) {
      for (int k = 0; k < ring[i].count; k++) {
        if (ring[i].uses[k].mr == &mr && ring[i].uses[k].serial == mr.serial) return true;
      }
    }
    return false;
  };
  All<Qp>().ForEachAlive([&](Qp& qp) {
    if (!qp.is_tracked || qp.generation != Generation()) return;
    const ibv_qp_state state = static_cast<const ibv_qp*>(qp.address)->state;
    if (state == IBV_QPS_RTS && (uses(qp.sends) || uses(qp.receives))) user = &qp;
  });
  return user;
}

struct DeregMr : DestroyCheck<Mr> {
  static constexpr const char* kCall = "ibv_dereg_mr";
  bool Before(ibv_mr* mr) {
    const Section section;
    if (!section) return true;
    if (!Begin(Rule::kMR_012, kCall, mr)) return false;
    if (object == nullptr || !is_programs || object->in_flight == 0) return true;
    const Qp* const qp = QpInFlight(*object);
    if (qp != nullptr) {
      Report(Rule::kMR_005, kCall, object, qp, nullptr,
             "posted work of %s uses %s, and its completion was not polled", NameOf(*qp).c_str(),
             NameOf(*object).c_str());
    }
    return true;
  }
  void After(int error, ibv_mr*) {
    const Section section;
    if (section) End(error == 0);
  }
};

struct CreateAh : Check {
  static constexpr const char* kCall = "ibv_create_ah";
  void After(ibv_ah* ah, ibv_pd* pd, ibv_ah_attr*) {
    Made<Ah>(*this, kCall, ah, [&](Ah& made) { made.pd = pd; });
  }
};
struct CreateAhFromWc : Check {
  static constexpr const char* kCall = "ibv_create_ah_from_wc";
  void After(ibv_ah* ah, ibv_pd* pd, ibv_wc*, ibv_grh*, uint8_t) {
    Made<Ah>(*this, kCall, ah, [&](Ah& made) { made.pd = pd; });
  }
};
struct DestroyAh : DestroyCheck<Ah> {
  static constexpr const char* kCall = "ibv_destroy_ah";
  bool Before(ibv_ah* ah) {
    const Section section;
    return !section || Begin(Rule::kQP_033, kCall, ah);
  }
  void After(int error, ibv_ah*) {
    const Section section;
    if (section) End(error == 0);
  }
};

struct GetAsyncEvent : Check {
  static constexpr const char* kCall = "ibv_get_async_event";
  bool Before(ibv_context* context, ibv_async_event*) {
    const Section section;
    Context* const object = section ? All<Context>().FindAlive(context) : nullptr;
    if (object != nullptr) object->waiting.Add();
    return true;
  }
  void After(int, ibv_context* context, ibv_async_event*) {
    const Section section;
    Context* const object = section ? All<Context>().Find(context) : nullptr;
    if (object != nullptr) object->waiting.Remove();
  }
};

}  // namespace

void InstallVerbsCalls(SlotOfName slot_of) {
  Install<GetDeviceList, decltype(::ibv_get_device_list)>(slot_of);
  Install<FreeDeviceList, decltype(::ibv_free_device_list)>(slot_of);
  Install<OpenDevice, decltype(::ibv_open_device)>(slot_of);
  Install<ImportDevice, decltype(::ibv_import_device)>(slot_of);
  Install<CloseDevice, decltype(::ibv_close_device)>(slot_of);
  Install<AllocPd, decltype(::ibv_alloc_pd)>(slot_of);
  Install<DeallocPd, decltype(::ibv_dealloc_pd)>(slot_of);
  Install<RegMr, decltype(::ibv_reg_mr)>(slot_of);
  Install<RegMrIova, decltype(::ibv_reg_mr_iova)>(slot_of);
  Install<RegMrIova2, decltype(::ibv_reg_mr_iova2)>(slot_of);
  Install<RegDmabufMr, decltype(::ibv_reg_dmabuf_mr)>(slot_of);
  Install<ImportMr, decltype(::ibv_import_mr)>(slot_of);
  Install<UnimportMr, decltype(::ibv_unimport_mr)>(slot_of);
  Install<ReregMr, decltype(::ibv_rereg_mr)>(slot_of);
  Install<DeregMr, decltype(::ibv_dereg_mr)>(slot_of);
  Install<CreateAh, decltype(::ibv_create_ah)>(slot_of);
  Install<CreateAhFromWc, decltype(::ibv_create_ah_from_wc)>(slot_of);
  Install<DestroyAh, decltype(::ibv_destroy_ah)>(slot_of);
  Install<GetAsyncEvent, decltype(::ibv_get_async_event)>(slot_of);
}

}  // namespace rdmaemu::layer::checks
