// Reads arguments from a record and writes them as JSON. `Reader` is the counterpart of
// layer::trace::Writer, method by method. `kNumbers` has the same meaning in both.
#pragma once

#include <arpa/inet.h>
#include <endian.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shim/layer/trace/arguments.h"
#include "shim/layer/trace/payload_hash.h"
#include "shim/layer/trace/record.h"
#include "tools/cli/program_trace/constants.h"
#include "tools/cli/program_trace/json.h"
#include "tools/cli/program_trace/objects.h"

namespace rdmaemu::cli {

// The bytes of one record. Bytes beyond the end of a cut record read as zero.
class RecordBytes {
 public:
  RecordBytes(const char* begin, const char* end) : at_(begin), end_(end) {}
  template <class T>
  T Take() {
    T value{};
    TakeTo(&value, sizeof value);
    return value;
  }
  void TakeTo(void* out, size_t bytes) {
    bytes = std::min(bytes, static_cast<size_t>(end_ - at_));
    std::memcpy(out, at_, bytes);
    at_ += bytes;
  }
  const char* TakeBytes(size_t bytes) {
    if (bytes > static_cast<size_t>(end_ - at_)) bytes = static_cast<size_t>(end_ - at_);
    const char* const begin = at_;
    at_ += bytes;
    return begin;
  }
  bool is_empty() const { return at_ == end_; }

 private:
  const char* at_;
  const char* end_;
};

// A line that follows the line of its call: an event or a completion.
struct ExtraLine {
  const char* kind;
  std::string what, object, arguments;
  std::string injected = {};  // the rule that changed it
};

template <bool kNumbers>
class Reader {
 public:
  using Name = std::string_view;
  using ArgumentSpec = layer::trace::ArgumentSpec;
  using NumberOf = layer::trace::NumberOf;
  using FlagSet = layer::trace::FlagSet;
  Reader(RecordBytes& bytes, ObjectNames& objects, JsonObject& out)
      : bytes_(bytes), objects_(objects), out_(&out) {}

  // Returns the name of the first object that the record mentions. Returns "" when the record
  // mentions none.
  const std::string& main_object() const { return main_object_; }
  std::vector<ExtraLine>& extra() { return extra_; }
  // Sets whether the call created the objects that the record mentions.
  void SetMakes(bool makes) { makes_ = makes; }

  template <class T>
  void Field(Name name, T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(bytes_.Take<int16_t>());
    } else {
      value = bytes_.Take<std::remove_cv_t<T>>();
    }
    PutScalar(name, value);
  }
  template <class T>
  void Flags(Name name, T& value, FlagSet set) {
    value = bytes_.Take<std::remove_cv_t<T>>();
    out_->Raw(name, FlagsText(static_cast<uint64_t>(value), set));
  }
  template <class T>
  void Big(Name name, T& value) {
    value = bytes_.Take<std::remove_cv_t<T>>();
    out_->Number(name, sizeof(T) == 2 ? be16toh(static_cast<uint16_t>(value))
                                      : be32toh(static_cast<uint32_t>(value)));
  }
  template <class T>
  void Number(Name name, NumberOf which, T& value) {
    value = bytes_.Take<std::remove_cv_t<T>>();
    const std::string known = objects_.NumberName(which, static_cast<uint64_t>(value));
    if (known.empty()) {
      out_->Number(name, static_cast<uint64_t>(value));
    } else {
      out_->Text(name, known);
    }
  }
  template <class T>
  void Object(Name name, T*& object) {
    const auto address = bytes_.Take<uint64_t>();
    object = reinterpret_cast<T*>(address);
    if (address != 0 && makes_) objects_.Create(layer::trace::KindOf<T>(), address);
    if constexpr (kNumbers) {
      const auto numbers = bytes_.Take<layer::trace::ObjectNumbers>();
      objects_.Learn(layer::trace::KindOf<T>(), address, numbers);
    }
    if (!members_of_.empty()) {
      const std::string member = members_of_ + "." + std::string(name);
      if (address == 0 || !objects_.IsNews(member_key_ + std::string(name), address)) return;
      out_->Text(member, objects_.Name(layer::trace::KindOf<T>(), address));
      return;
    }
    if (address == 0) {
      out_->Raw(name, "null");
      return;
    }
    const std::string& known = objects_.Name(layer::trace::KindOf<T>(), address);
    if (main_object_.empty()) main_object_ = known;
    out_->Text(name, known);
  }
  template <class T>
  void Memory(Name name, T& value) {
    const bool is_there = bytes_.Take<uint8_t>() != 0;
    if constexpr (std::is_pointer_v<T>) {
      is_there ? out_->Text(name, "memory") : out_->Raw(name, "null");
    } else {
      value = static_cast<T>(is_there);
      is_there ? out_->Text(name, "memory") : out_->Raw(name, "0");
    }
  }
  template <class P>
  void Text(Name name, P&) {
    std::string_view text;
    bool is_cut = false;
    if (!TakeText(text, is_cut)) return out_->Raw(name, "null");
    out_->Text(name, text);
    // No call returns a text that is long enough to be cut.
    if (is_cut && name != "result") out_->Raw(std::string(name) + "_cut", "true");
  }
  template <class P, class N>
  void Bytes(Name name, P& bytes, N& count) {
    const auto length = bytes_.Take<uint32_t>();
    count = static_cast<std::remove_cv_t<N>>(length);
    bytes = nullptr;
    std::string_view taken;
    if (!TakeRaw(taken)) {
      out_->Raw(name, "null");
      return;
    }
    std::string hex;
    for (const char byte : taken) {
      constexpr char kDigits[] = "0123456789abcdef";
      hex += kDigits[static_cast<uint8_t>(byte) >> 4];
      hex += kDigits[byte & 15];
    }
    out_->Text(name, hex);
    if (taken.size() < length) out_->Number(std::string(name) + "_bytes", length);
  }
  void Gid(Name name, ibv_gid& gid) {
    gid = bytes_.Take<ibv_gid>();
    char text[INET6_ADDRSTRLEN];
    out_->Text(name, inet_ntop(AF_INET6, gid.raw, text, sizeof text));
  }
  template <class P>
  void GidAt(Name name, P&) {
    ibv_gid gid;
    if (bytes_.Take<uint8_t>() != 0) Gid(name, gid);
  }
  template <class P>
  void Address(Name name, P&) {
    std::string_view raw;
    if (!TakeRaw(raw)) {
      out_->Raw(name, "null");
      return;
    }
    sockaddr_in6 address{};
    std::memcpy(&address, raw.data(), std::min(raw.size(), sizeof address));
    out_->Text(name, AddressText(address));
  }
  void Payload() {
    if (payload_at_ < payloads_.size()) PutPayload(payloads_[payload_at_++]);
  }
  template <class P>
  void Device(Name name, P&) {
    std::string_view text;
    bool is_cut = false;
    if (!TakeText(text, is_cut)) return out_->Raw(name, "null");
    if (main_object_.empty()) main_object_ = "device " + std::string(text);
    out_->Text(name, "device " + std::string(text));
  }
  template <class S>
  void Struct(Name name, S& value) {
    JsonObject inner;
    JsonObject* const outer = std::exchange(out_, &inner);
    layer::trace::Describe(*this, value);
    out_ = outer;
    out_->Raw(name, inner.text());
  }
  template <class S>
  void Pointer(Name name, S*&) {
    if (bytes_.Take<uint8_t>() == 0) {
      out_->Raw(name, "null");
      return;
    }
    std::remove_cv_t<S> value{};
    Struct(name, value);
  }
  template <class S, class N>
  void Array(Name name, S*&, N& count) {
    const auto head = bytes_.Take<uint16_t>();
    const auto written = static_cast<uint16_t>(head & ~layer::trace::kArrayIsCut);
    count = static_cast<std::remove_cv_t<N>>(written);
    std::string list = "[";
    for (uint16_t i = 0; i < written && !bytes_.is_empty(); i++) {
      std::remove_cv_t<S> value{};
      list += (i == 0 ? "" : ",") + ObjectText([&] { layer::trace::Describe(*this, value); });
    }
    out_->Raw(name, list + "]");
    if (head != written) out_->Raw(std::string(name) + "_cut", "true");
  }
  template <class P>
  void Sends(Name name, P&) {
    const bool is_datagram = bytes_.Take<uint8_t>() != 0;
    Chain<ibv_send_wr>(
        name, [&](ibv_send_wr& wr) { layer::trace::DescribeSend(*this, wr, is_datagram); });
  }
  template <class P>
  void Receives(Name name, P&) {
    Chain<ibv_recv_wr>(name, [&](ibv_recv_wr& wr) { layer::trace::Describe(*this, wr); });
  }
  template <class T, class N>
  void Counted(const ArgumentSpec& spec, T*& value, N& count) {
    if constexpr (layer::trace::kIsBytes<T*>) {
      Bytes(spec.name, value, count);
    } else if constexpr (layer::trace::Described<std::remove_const_t<T>>) {
      Array(spec.name, value, count);
    }
  }
  template <class T, class... A>
  void Filled(const ArgumentSpec& spec, T*&, std::tuple<A...>&) {
    if (bytes_.Take<uint8_t>() == 0) return;
    if constexpr (layer::trace::kIs<T, ibv_qp_attr>) {
      PutQpAttr(spec.name);
    } else if constexpr (layer::trace::kIs<T, struct _compat_ibv_port_attr>) {
      ibv_port_attr attr{};
      Struct(spec.name, attr);
    } else if constexpr (requires {
                           sizeof(T);
                         }) {  // not void, not a type that only newer headers have
      const bool made = std::exchange(makes_, layer::trace::kIs<T, rdma_cm_id*>);
      std::remove_cv_t<T> value{};
      layer::trace::Filled(*this, spec, value);
      makes_ = made;
    }
  }
  template <class T>
  void Changed(const ArgumentSpec& spec, T*&) {
    if constexpr (layer::trace::kIs<T, rdma_cm_id>) {
      PutMembers(std::string(spec.name), changed_);
    } else if constexpr (layer::trace::kIs<T, rdma_cm_id*>) {
      makes_ = true;
      rdma_cm_id* id = nullptr;
      Object(spec.name, id);
      makes_ = false;
      PutMembers(std::string(spec.name), reinterpret_cast<uint64_t>(id));
    } else if constexpr (layer::trace::kIsObject<T>) {
      JsonObject unused;
      JsonObject* const outer = std::exchange(out_, &unused);
      T* object = nullptr;
      Object(spec.name, object);
      out_ = outer;
    }
  }
  template <class... A>
  void QpAttr(const ArgumentSpec& spec, ibv_qp_attr*&, std::tuple<A...>&) {
    PutQpAttr(spec.name);
  }
  template <class P>
  void AckedEvent(P&) {
    const auto id = bytes_.Take<uint64_t>();
    auto type = bytes_.Take<rdma_cm_event_type>();
    PutScalar("event", type);
    if (id == 0) return;
    main_object_ = objects_.Name("id", id);
    out_->Text("id", main_object_);
  }
  template <class P>
  void Event(P&) {
    if (bytes_.Take<uint8_t>() == 0) return;
    const bool is_datagram = bytes_.Take<uint8_t>() != 0;
    auto type = bytes_.Take<rdma_cm_event_type>();
    PutScalar("event", type);
    JsonObject inner;
    JsonObject* const outer = std::exchange(out_, &inner);
    rdma_cm_id* id = nullptr;
    makes_ = type == RDMA_CM_EVENT_CONNECT_REQUEST;
    {
      JsonObject unused;
      out_ = &unused;
      Object("id", id);
      out_ = &inner;
    }
    makes_ = false;
    rdma_cm_event event{};
    event.event = type;
    layer::trace::DescribeEvent(*this, event, is_datagram);
    PutMembers("id", reinterpret_cast<uint64_t>(id));
    out_ = outer;
    extra_.push_back({"event", ScalarText(type),
                      id == nullptr ? "" : objects_.Name("id", reinterpret_cast<uint64_t>(id)),
                      inner.text()});
  }
  template <class P>
  void Async(P&) {
    if (bytes_.Take<uint8_t>() == 0) return;
    auto type = bytes_.Take<ibv_event_type>();
    const auto element = bytes_.Take<uint64_t>();
    PutScalar("event_type", type);
    std::string object;
    JsonObject fields;
    if (const char* const kind = ElementKind(type)) {
      object = objects_.Name(kind, element);
      out_->Text("element", object);
      if (main_object_.empty()) main_object_ = object;
    } else {
      out_->Number("port_num", static_cast<uint32_t>(element));
      fields.Number("port_num", static_cast<uint32_t>(element));
    }
    extra_.push_back({"async", ScalarText(type), object, fields.text()});
  }
  template <class P>
  void Devices(Name name, P&) {
    ListOf(name, [&] {
      std::string_view text;
      bool is_cut = false;
      TakeText(text, is_cut);
      return Quoted("device " + std::string(text));
    });
  }
  template <class P>
  void Contexts(Name name, P&) {
    ListOf(name, [&] {
      const auto address = bytes_.Take<uint64_t>();
      if constexpr (kNumbers) bytes_.Take<layer::trace::ObjectNumbers>();
      return Quoted(objects_.Name("context", address));
    });
  }
  // Sets the hashes of the work requests that the record mentions.
  void SetPayloads(std::span<const layer::trace::PayloadHash> payloads) { payloads_ = payloads; }
  // Writes a hash, unless there is no payload.
  void PutPayload(layer::trace::PayloadHash hash) {
    if (hash.state == layer::trace::HashState::kNothing) return;
    char text[24];
    snprintf(text, sizeof text, "crc32c:%08x", hash.crc);
    out_->Text("payload_hash", hash.state == layer::trace::HashState::kHashed
                                   ? text
                                   : layer::trace::HashStateText(hash.state));
  }
  bool has_put_payloads() const { return payload_at_ > 0; }
  // Sets the id whose members a call may have changed.
  void SetChanged(uint64_t id) { changed_ = id; }

 private:
  template <class T>
  std::string ScalarText(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      const auto name = NameIn(ConstantsOf(value), static_cast<uint64_t>(value));
      return name.empty() ? std::to_string(static_cast<int64_t>(value)) : std::string(name);
    } else {
      return std::to_string(value);
    }
  }
  template <class T>
  void PutScalar(Name name, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      if (!NameIn(ConstantsOf(value), static_cast<uint64_t>(value)).empty()) {
        out_->Text(name, ScalarText(value));
        return;
      }
    }
    out_->Raw(
        name,
        std::to_string(
            static_cast<std::conditional_t<std::is_unsigned_v<T>, uint64_t, int64_t>>(value)));
  }
  static std::string FlagsText(uint64_t value, FlagSet set) {
    std::string text = "[";
    for (const Constant& flag : FlagsOf(set)) {
      if (flag.value == 0 || (value & flag.value) != flag.value) continue;
      text += (text.size() > 1 ? "," : "") + Quoted(flag.name);
      value &= ~flag.value;
    }
    if (value != 0) {
      char rest[24];
      snprintf(rest, sizeof rest, "\"0x%llx\"", static_cast<unsigned long long>(value));
      text += std::string(text.size() > 1 ? "," : "") + rest;
    }
    return text + "]";
  }
  static std::string AddressText(const sockaddr_in6& address) {
    char text[INET6_ADDRSTRLEN] = "";
    if (address.sin6_family == AF_INET) {
      sockaddr_in four;
      std::memcpy(&four, &address, sizeof four);
      inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
      return text + (":" + std::to_string(ntohs(four.sin_port)));
    }
    if (address.sin6_family != AF_INET6) return "family " + std::to_string(address.sin6_family);
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(address.sin6_port));
  }
  static const char* ElementKind(ibv_event_type type) {
    switch (type) {
      case IBV_EVENT_CQ_ERR:
        return "cq";
      case IBV_EVENT_SRQ_ERR:
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        return "srq";
      case IBV_EVENT_WQ_FATAL:
        return "wq";
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
      case IBV_EVENT_COMM_EST:
      case IBV_EVENT_SQ_DRAINED:
      case IBV_EVENT_PATH_MIG:
      case IBV_EVENT_PATH_MIG_ERR:
      case IBV_EVENT_QP_LAST_WQE_REACHED:
        return "qp";
      default:
        return nullptr;
    }
  }
  bool TakeText(std::string_view& text, bool& is_cut) {
    const auto head = bytes_.Take<uint16_t>();
    if (head == UINT16_MAX) return false;
    const auto length = static_cast<uint16_t>(head & ~layer::trace::kTextIsCut);
    text = {bytes_.TakeBytes(length), length};
    is_cut = head != length;
    return true;
  }
  bool TakeRaw(std::string_view& text) {
    const auto length = bytes_.Take<uint16_t>();
    if (length == UINT16_MAX) return false;
    const char* const begin = bytes_.TakeBytes(length);
    text = {begin, length};
    return true;
  }
  template <class Visit>
  std::string ObjectText(Visit&& visit) {
    JsonObject inner;
    JsonObject* const outer = std::exchange(out_, &inner);
    visit();
    out_ = outer;
    return inner.text();
  }
  template <class S, class Visit>
  void Chain(Name name, Visit&& visit) {
    std::string list = "[";
    uint8_t more;
    while ((more = bytes_.Take<uint8_t>()) == 1) {
      S value{};
      list += (list.size() > 1 ? "," : "") + ObjectText([&] { visit(value); });
    }
    out_->Raw(name, list + "]");
    if (more == 2) out_->Raw(std::string(name) + "_cut", "true");
  }
  template <class One>
  void ListOf(Name name, One&& one) {
    std::string list = "[";
    uint8_t more;
    while ((more = bytes_.Take<uint8_t>()) == 1) list += (list.size() > 1 ? "," : "") + one();
    out_->Raw(name, more == 2 ? "null" : list + "]");
  }
  void PutQpAttr(Name name) {
    const auto mask = bytes_.Take<int>();
    ibv_qp_attr attr{};
    out_->Raw(name, ObjectText([&] { layer::trace::DescribeQpAttr(*this, attr, mask); }));
  }
  // Writes the members of an id ("id.qp") that are mentioned for the first time or have changed.
  void PutMembers(const std::string& name, uint64_t address) {
    if (bytes_.Take<uint8_t>() == 0) return;
    members_of_ = name;
    member_key_ = address == 0 ? "" : objects_.Name("id", address) + ".";
    rdma_cm_id members{};
    layer::trace::DescribeAfter(*this, members);
    members_of_.clear();
  }

  RecordBytes& bytes_;
  ObjectNames& objects_;
  JsonObject* out_;
  std::string main_object_, members_of_, member_key_;
  std::vector<ExtraLine> extra_;
  bool makes_ = false;
  uint64_t changed_ = 0;
  std::span<const layer::trace::PayloadHash> payloads_;
  size_t payload_at_ = 0;
};

}  // namespace rdmaemu::cli
