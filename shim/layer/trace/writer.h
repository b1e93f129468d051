// The visitor that writes arguments into a record (describe.h). With kNumbers, it writes after each
// object the numbers that the device chose for it (ObjectNumbers). The visitor reads the numbers
// from the object. Use kNumbers only for objects that a library has just returned.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

#include "shim/layer/trace/arguments.h"
#include "shim/layer/trace/recorder.h"

namespace rdmaemu::layer::trace {

template <bool kNumbers>
class Writer {
 public:
  using Name = std::string_view;
  explicit Writer(Record& record) : record_(record) {}

  template <class T>
  void Field(Name, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      record_.Put(static_cast<int16_t>(value));
    } else {
      record_.Put(value);
    }
  }
  template <class T>
  void Flags(Name, const T& value, FlagSet) {
    record_.Put(value);
  }
  template <class T>
  void Big(Name, const T& value) {
    record_.Put(value);
  }
  template <class T>
  void Number(Name, NumberOf, const T& value) {
    record_.Put(value);
  }
  template <class T>
  void Object(Name, T* const& object) {
    record_.Put(reinterpret_cast<uint64_t>(object));
    if constexpr (kNumbers) record_.Put(NumbersOf(object));
  }
  template <class T>
  void Memory(Name, const T& pointer) {
    record_.Put(static_cast<uint8_t>(pointer != T{}));
  }
  void Text(Name, const char* text) {
    if (text == nullptr) return Raw(text, 0, true);
    const size_t length = strnlen(text, kMaxTextBytes + 1);
    const bool is_cut = length > kMaxTextBytes;
    const auto bytes = static_cast<uint16_t>(is_cut ? kMaxTextBytes : length);
    record_.Put(static_cast<uint16_t>(bytes | (is_cut ? kTextIsCut : 0)));
    record_.PutBytes(text, bytes);
  }
  template <class P, class N>
  void Bytes(Name, P const& bytes, const N& count) {
    const auto length = static_cast<size_t>(count);
    record_.Put(static_cast<uint32_t>(length));
    Raw(bytes, length < kMaxTextBytes ? length : kMaxTextBytes, bytes == nullptr);
  }
  void Gid(Name, const ibv_gid& gid) { record_.Put(gid); }
  void GidAt(Name, const ibv_gid* gid) {
    record_.Put(static_cast<uint8_t>(gid != nullptr));
    if (gid != nullptr) record_.Put(*gid);
  }
  void Address(Name, const sockaddr* address) {
    size_t length = 0;
    if (address != nullptr && address->sa_family == AF_INET) length = sizeof(sockaddr_in);
    if (address != nullptr && address->sa_family == AF_INET6) length = sizeof(sockaddr_in6);
    // AF_IB and others: write the family alone.
    if (address != nullptr && length == 0) length = sizeof(sa_family_t);
    Raw(address, length, address == nullptr);
  }
  void Payload() {}
  void Device(Name name, const ibv_device* device) {
    Text(name, device == nullptr ? nullptr : device->name);
  }
  template <class S>
  void Struct(Name, S& value) {
    Describe(*this, const_cast<std::remove_const_t<S>&>(value));
  }
  template <class S>
  void Pointer(Name name, S* const& value) {
    record_.Put(static_cast<uint8_t>(value != nullptr));
    if (value != nullptr) Struct(name, *value);
  }
  template <class S, class N>
  void Array(Name name, S* const& elements, const N& count) {
    const auto total = static_cast<uint32_t>(elements == nullptr ? N{} : count);
    uint16_t written = 0;
    char* const place = record_.at();
    record_.Put(written);
    for (; written < total && record_.HasRoom(); written++) {
      if (!is_failed_) {
        Struct(name, elements[written]);
        continue;
      }
      std::remove_const_t<S> copy;
      if (!CopyFromProgram(&elements[written], &copy, sizeof copy)) break;
      Struct(name, copy);
    }
    const auto head = static_cast<uint16_t>(written | (written < total ? kArrayIsCut : 0));
    memcpy(place, &head, sizeof head);
  }
  // Writes a list of work requests, with a byte 1 before each. Ends with a byte 0, or with a byte 2
  // when the list was cut.
  template <class S, class Each>
  void Chain(S* head, Each&& each) {
    for (; head != nullptr && record_.HasRoom(); head = head->next) {
      record_.Put(uint8_t{1});
      each(*head);
      // The library has not read the requests after the refused one. They may be invalid.
      if (is_failed_ && head == last_) head = nullptr;
      if (head == nullptr) break;
    }
    record_.Put(static_cast<uint8_t>(head == nullptr ? 0 : 2));
  }
  void Sends(Name, ibv_send_wr* head) {
    record_.Put(static_cast<uint8_t>(is_datagram_));
    Chain(head, [&](ibv_send_wr& wr) { DescribeSend(*this, wr, is_datagram_); });
  }
  void Receives(Name, ibv_recv_wr* head) {
    Chain(head, [&](ibv_recv_wr& wr) { Describe(*this, wr); });
  }
  template <class T, class N>
  void Counted(const ArgumentSpec& spec, T* const& value, const N& count) {
    if constexpr (kIsBytes<T*>) {
      Bytes(spec.name, value, count);
    } else if constexpr (Described<std::remove_const_t<T>>) {
      Array(spec.name, const_cast<std::remove_const_t<T>* const&>(value), count);
    }
  }
  template <class T, class... A>
  void Filled(const ArgumentSpec& spec, T* const& value, std::tuple<A...>& arguments) {
    record_.Put(static_cast<uint8_t>(value != nullptr));
    if (value == nullptr) return;
    if constexpr (kIs<T, ibv_qp_attr>) {
      int mask = QpAttrMask(arguments);
      record_.Put(mask);
      DescribeQpAttr(*this, *value, mask);
    } else if constexpr (!std::is_void_v<T> && !kIs<T, struct _compat_ibv_port_attr>) {
      trace::Filled(*this, spec, const_cast<std::remove_const_t<T>&>(*value));
    } else if constexpr (kIs<T, struct _compat_ibv_port_attr>) {
      Describe(*this, *reinterpret_cast<ibv_port_attr*>(value));
    }
  }
  template <class T>
  void Changed(const ArgumentSpec& spec, T* const& value) {
    if constexpr (kIs<T, rdma_cm_id>) {
      // librdmacm keeps the event of an operation in the id if it has waited for the event.
      const bool is_done = value != nullptr && (!spec.is_started || value->event != nullptr);
      record_.Put(static_cast<uint8_t>(is_done));
      if (is_done) DescribeAfter(*this, *value);
    } else if constexpr (kIs<T, rdma_cm_id*>) {
      rdma_cm_id* const made = value == nullptr ? nullptr : *value;
      Object(spec.name, made);
      Changed(spec, made);
    } else if constexpr (kIsObject<T>) {
      Object(spec.name, value);
    }
  }
  template <class... A>
  void QpAttr(const ArgumentSpec&, ibv_qp_attr* const& value, std::tuple<A...>& arguments) {
    int mask = value == nullptr ? 0 : QpAttrMask(arguments);
    record_.Put(mask);
    if (value != nullptr) DescribeQpAttr(*this, *value, mask);
  }
  void AckedEvent(rdma_cm_event* event) {
    record_.Put(reinterpret_cast<uint64_t>(event == nullptr ? nullptr : event->id));
    record_.Put(event == nullptr ? rdma_cm_event_type{} : event->event);
  }
  void Event(rdma_cm_event* event) {
    record_.Put(static_cast<uint8_t>(event != nullptr));
    if (event == nullptr) return;
    const rdma_cm_id* const id = event->id != nullptr ? event->id : event->listen_id;
    const bool is_datagram = id != nullptr && (id->ps == RDMA_PS_UDP || id->ps == RDMA_PS_IPOIB);
    record_.Put(static_cast<uint8_t>(is_datagram));
    record_.Put(event->event);
    Object("id", event->id);
    DescribeEvent(*this, *event, is_datagram);
    Changed({}, event->id);
  }
  void Async(const ibv_async_event* event) {
    record_.Put(static_cast<uint8_t>(event != nullptr));
    if (event == nullptr) return;
    record_.Put(event->event_type);
    record_.Put(reinterpret_cast<uint64_t>(event->element.cq));
  }
  void Devices(Name name, ibv_device** const& list) {
    for (ibv_device** each = list; each != nullptr && *each != nullptr && record_.HasRoom();
         each++) {
      record_.Put(uint8_t{1});
      Device(name, *each);
    }
    record_.Put(static_cast<uint8_t>(list == nullptr ? 2 : 0));
  }
  void Contexts(Name name, ibv_context** const& list) {
    for (ibv_context** each = list; each != nullptr && *each != nullptr && record_.HasRoom();
         each++) {
      record_.Put(uint8_t{1});
      Object(name, *each);
    }
    record_.Put(static_cast<uint8_t>(list == nullptr ? 2 : 0));
  }
  // Marks the call as failed. Its counts may be wrong, so arrays are read without a fault. `last`
  // is the work request that the call refused, or nullptr.
  void SetFailed(const void* last) {
    is_failed_ = true;
    last_ = last;
  }
  // Sets whether the queue pair of the following send requests is UD.
  void SetDatagram(bool is_datagram) { is_datagram_ = is_datagram; }

 private:
  void Raw(const void* bytes, size_t count, bool is_null) {
    record_.Put(static_cast<uint16_t>(is_null ? UINT16_MAX : count));
    if (!is_null) record_.PutBytes(bytes, count);
  }

  // Copies memory of the program. Returns false when the memory is not mapped.
  static bool CopyFromProgram(const void* from, void* to, size_t bytes) {
    const iovec local{to, bytes}, remote{const_cast<void*>(from), bytes};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
  }

  Record& record_;
  bool is_datagram_ = false, is_failed_ = false;
  const void* last_ = nullptr;
};

}  // namespace rdmaemu::layer::trace
