#include "tools/cli/program_trace/decode.h"

#include <cstring>

#include "shim/layer/trace/table.h"

namespace rdmaemu::cli {
namespace {

using layer::trace::Answer;
using layer::trace::ArgumentSpec;
using layer::trace::CallId;
using layer::trace::Row;

std::string ErrnoName(int error) {
  const char* const name = strerrorname_np(error);
  return name == nullptr ? std::to_string(error) : name;
}

// Returns true for calls that return a pointer to an object that existed before.
constexpr bool GivesKnownObject(CallId id) { return id == CallId::k_ibv_qp_to_qp_ex; }

// Returns true for readers of completions whose result is the number of a QP.
constexpr bool GivesQpNumber(CallId id) {
  return id == CallId::k_ibv_cq_ex_read_qp_num || id == CallId::k_ibv_cq_ex_read_src_qp;
}

// Reads a call's result and its errno. Returns whether the call succeeded. When `known_error` is
// null, the errno follows the result of a failed call.
template <CallId kId, bool kNumbers, class R>
bool ReadResult(RecordBytes& bytes, ObjectNames& objects, const int32_t* known_error,
                DecodedCall& call) {
  if constexpr (std::is_void_v<R>) {
    return true;
  } else {
    JsonObject text;
    Reader<kNumbers> reader(bytes, objects, text);
    reader.SetMakes(!GivesKnownObject(kId));
    R result{};
    layer::trace::Result(reader, result);
    // {"result":VALUE}
    const std::string whole = text.text();
    constexpr size_t kBefore = sizeof("{\"result\":") - 1;
    call.result = whole.substr(kBefore, whole.size() - kBefore - 1);
    if constexpr (GivesQpNumber(kId)) {
      const std::string known = objects.NumberName(layer::trace::NumberOf::kQp, result);
      if (!known.empty()) call.result = Quoted(known);
    }
    // A reader of a text or a list sets no pointer. Its JSON text is null when the call returned a
    // null pointer.
    bool is_success = layer::trace::IsSuccess<Row<kId>::kAnswer>(result);
    if constexpr (std::is_pointer_v<R>) is_success = call.result != "null";
    if (is_success) return true;
    int error = known_error != nullptr ? *known_error : bytes.Take<int32_t>();
    if constexpr (std::is_signed_v<R>) {
      if (result > 0) error = static_cast<int>(result);
    }
    if (error != 0) call.error = ErrnoName(error);
    return false;
  }
}

template <CallId kId, class F = typename Row<kId>::Function>
struct Decoder;
template <CallId kId, class R, class... A>
struct Decoder<kId, R(A...)> {
  static constexpr const char* Makes() {
    if constexpr (std::is_pointer_v<R>) {
      using Target = std::remove_pointer_t<R>;
      if constexpr (layer::trace::kIsObject<Target>) return layer::trace::KindOf<Target>();
    }
    return nullptr;
  }
  static constexpr const ArgumentSpec* Specs() { return Row<kId>::kSpecs.data(); }

  static void Inputs(RecordBytes& bytes, ObjectNames& objects, DecodedCall& call) {
    Reader<false> reader(bytes, objects, call.arguments);
    reader.SetPayloads(call.payloads);
    std::tuple<A...> arguments{};
    layer::trace::VisitArguments<false>(reader, Specs(), arguments);
    // The hash of a builder's call is an argument, because the call has no work request.
    if (!call.payloads.empty() && !reader.has_put_payloads()) {
      reader.PutPayload(call.payloads.front());
    }
    call.object = reader.main_object();
    if constexpr (sizeof...(A) > 0) {
      if constexpr (std::is_pointer_v<std::tuple_element_t<0, std::tuple<A...>>>) {
        call.first_object = reinterpret_cast<uint64_t>(std::get<0>(arguments));
      }
    }
  }
  static void Outputs(RecordBytes& bytes, ObjectNames& objects, DecodedCall& call) {
    const auto error = bytes.Take<int32_t>();
    ReadResult<kId, true, R>(bytes, objects, &error, call);
    if (bytes.Take<uint8_t>() == 0) return;
    Reader<true> reader(bytes, objects, call.arguments);
    reader.SetChanged(call.first_object);
    std::tuple<A...> arguments{};
    layer::trace::VisitArguments<true>(reader, Specs(), arguments);
    if (call.object.empty()) call.object = reader.main_object();
    call.extra = std::move(reader.extra());
    for (ExtraLine& line : call.extra) {
      if (line.object.empty()) line.object = call.object;
    }
  }
  static void Whole(RecordBytes& bytes, ObjectNames& objects, DecodedCall& call) {
    ReadResult<kId, false, R>(bytes, objects, nullptr, call);
    Inputs(bytes, objects, call);
  }
};

// Decodes ibv_poll_cq, ibv_start_poll and ibv_next_poll. data_path.cc writes their records.
template <CallId kId>
void DecodePoll(RecordBytes& bytes, ObjectNames& objects, DecodedCall& call) {
  constexpr bool kIsPollCq = kId == CallId::k_ibv_context_ops_poll_cq;
  const auto answer = bytes.Take<int32_t>();
  const auto error = answer < 0 ? bytes.Take<int32_t>() : 0;
  call.object = objects.Name("cq", bytes.Take<uint64_t>());
  const auto wanted = bytes.Take<int32_t>();
  call.arguments.Text("cq", call.object);
  if (kIsPollCq) call.arguments.Number("num_entries", static_cast<uint32_t>(wanted));
  call.result = std::to_string(answer);
  if (kIsPollCq && answer < 0) call.error = ErrnoName(error);
  // ibv_start_poll and ibv_next_poll return their errno.
  if (!kIsPollCq && answer != 0) call.error = ErrnoName(answer < 0 ? error : answer);
  DecodeCompletions(bytes, objects, call.object, call.extra);
}

#define RDMAEMU_CLI_DECODER_OF(id, what, version) \
  {what,                                          \
   Decoder<CallId::id>::Makes(),                  \
   Decoder<CallId::id>::Inputs,                   \
   Decoder<CallId::id>::Outputs,                  \
   Decoder<CallId::id>::Whole,                    \
   version},
#define RDMAEMU_CLI_DECODER(id, what) RDMAEMU_CLI_DECODER_OF(id, what, nullptr)

constexpr CallDecoder kDecoders[] = {
#define VERBS(function, ...) RDMAEMU_CLI_DECODER(k_##function, #function)
#define VALUE(function, ...) RDMAEMU_CLI_DECODER(k_##function, #function)
#define CM(function, ...) RDMAEMU_CLI_DECODER(k_##function, #function)
#define HELPER(function)
#include "shim/layer/trace/calls.inc"
#undef VERBS
#undef VALUE
#undef CM
#undef HELPER
#define SLOW(table, member, name, ...) RDMAEMU_CLI_DECODER(k_##table##_##member, name)
#define FAST(table, member, name, ...) RDMAEMU_CLI_DECODER(k_##table##_##member, name)
#define FAST_VALUE(table, member, name, ...) RDMAEMU_CLI_DECODER(k_##table##_##member, name)
#define OWN(table, member, name) \
  {name, nullptr, nullptr, nullptr, DecodePoll<CallId::k_##table##_##member>, nullptr},
#include "shim/layer/trace/operations.inc"
#undef SLOW
#undef FAST
#undef FAST_VALUE
#undef OWN
#define OLD(function, ...) \
  RDMAEMU_CLI_DECODER_OF(k_old_##function, #function, layer::trace::kOldVersion)
#define OLD_VALUE(function, ...) OLD(function)
#include "shim/layer/trace/calls_1_0.inc"
#undef OLD
#undef OLD_VALUE
};
static_assert(std::size(kDecoders) == static_cast<size_t>(CallId::kCount));

}  // namespace

const CallDecoder* DecoderOf(uint16_t what) {
  return what < std::size(kDecoders) ? &kDecoders[what] : nullptr;
}

void DecodeCompletions(RecordBytes& bytes, ObjectNames& objects, const std::string& cq,
                       std::vector<ExtraLine>& lines) {
  for (uint8_t more; (more = bytes.Take<uint8_t>()) != 0;) {
    JsonObject fields;
    fields.Text("cq", cq);
    Reader<false> reader(bytes, objects, fields);
    ibv_wc completion{};
    layer::trace::Describe(reader, completion);
    if (more == 2) reader.PutPayload(bytes.Take<layer::trace::PayloadHash>());
    const std::string qp = objects.QpOf(completion.qp_num);
    const auto status = NameIn(ConstantsOf(completion.status), completion.status);
    lines.push_back({"completion",
                     status.empty() ? std::to_string(completion.status) : std::string(status),
                     qp.empty() ? cq : qp, fields.text()});
  }
}

}  // namespace rdmaemu::cli
