#include "emulator/host/sequence.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "emulator/abi/sequence.h"
#include "emulator/abi/user_qp_attr.h"
#include "emulator/cm/events.h"
#include "emulator/host/calls/struct_reply.h"

namespace rdmaemu {
namespace {

// The rest of a value of which there are too few bytes is 0.
template <class T>
T Load(std::span<const std::byte> bytes) {
  T value;
  if (bytes.size() < sizeof value) value = {};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}
template <class T>
void Store(std::span<std::byte> bytes, const T& value) {
  std::memcpy(bytes.data(), &value, sizeof value);
}

struct Step {
  StepHeader header;
  const std::byte* bytes;

  std::span<const std::byte> in() const { return {bytes, header.size}; }
};
using Steps = std::array<Step, kMaxSequenceSteps>;

// Returns the calls of a sequence, in `steps`. Returns none unless all are well-formed.
std::span<const Step> ParseSteps(std::span<const std::byte> body, Steps& steps) {
  if (body.size() < sizeof(SequenceIn) || body.size() > kMaxSequenceInBytes) return {};
  const uint32_t count = Load<SequenceIn>(body).steps;
  if (count > steps.size()) return {};
  std::span<const std::byte> rest = body.subspan(sizeof(SequenceIn));
  for (uint32_t i = 0; i < count; i++) {
    if (rest.size() < sizeof(StepHeader)) return {};
    const auto header = Load<StepHeader>(rest);
    rest = rest.subspan(sizeof header);
    if (!HasTrait(header.op, kMayBeStep) || header.size > kMaxStepBytes ||
        rest.size() < PaddedStep(header.size)) {
      return {};
    }
    steps[i] = {header, rest.data()};
    rest = rest.subspan(PaddedStep(header.size));
  }
  if (!rest.empty()) return {};
  return std::span(steps).first(count);
}

class Sequence {
 public:
  Sequence(uint32_t devices, const SequenceCalls& calls) : devices_(devices), calls_(calls) {}

  enum class Decision { kCall, kSkip, kStop };

  // Completes the message of a step from the replies so far.
  Decision Complete(const Step& step, std::span<std::byte> in) {
    switch (StepLink{step.header.link}) {
      case StepLink::kNone:
        return Decision::kCall;
      case StepLink::kAttributes:
      case StepLink::kAttributesButDestReads:
      case StepLink::kAttributesButReads:
        return CompleteModify(StepLink{step.header.link}, in);
      case StepLink::kEvent:
        return CompleteQuery(in);
    }
    return Decision::kStop;
  }

  // Keeps what the reply gives to later steps.
  void Note(const Step& step, std::span<const std::byte> out) {
    switch (StepGift{step.header.gift}) {
      case StepGift::kNothing:
        break;
      case StepGift::kQueuePair:
        created_qp_ = Load<CreateQpOut>(out).handle;
        break;
      case StepGift::kAttributes:
        attributes_ = Load<ib_uverbs_qp_attr>(out);
        has_attributes_ = true;
        break;
      case StepGift::kEvent:
        event_ = Load<rdma_ucm_event_resp>(out);
        has_event_ = true;
        break;
    }
  }

 private:
  Decision CompleteModify(StepLink link, std::span<std::byte> bytes) const {
    if (bytes.size() != sizeof(ModifyQpIn) || !has_attributes_) return Decision::kStop;
    auto in = Load<ModifyQpIn>(bytes);
    const ibv_qp_attr own = in.attr;
    in.attr = ToUserQpAttr(attributes_);
    in.attr.qp_state = own.qp_state;
    if (link == StepLink::kAttributesButDestReads) {
      in.attr.max_dest_rd_atomic = own.max_dest_rd_atomic;
    }
    if (link == StepLink::kAttributesButReads) in.attr.max_rd_atomic = own.max_rd_atomic;
    in.mask = ToUserQpAttrMask(attributes_.qp_attr_mask);
    if (in.handle == 0) in.handle = created_qp_;
    Store(bytes, in);
    return Decision::kCall;
  }

  // Decides as librdmacm does in rdma_get_cm_event (shim/rdmacm/event.cc).
  Decision CompleteQuery(std::span<std::byte> bytes) const {
    if (bytes.size() != sizeof(CmCall<rdma_ucm_query>) || !has_event_) return Decision::kStop;
    auto in = Load<CmCall<rdma_ucm_query>>(bytes);
    const auto event = static_cast<cm::EventType>(event_.event);
    const bool is_request = event == cm::EventType::kConnectRequest;
    const bool is_of_path = in.command.option == RDMA_USER_CM_QUERY_PATH;
    const auto resolved = is_of_path ? cm::EventType::kRouteResolved : cm::EventType::kAddrResolved;
    if (!is_request && event != resolved) return Decision::kSkip;
    if (in.command.option != RDMA_USER_CM_QUERY_ADDR) {
      const cm::CmaId* const id = calls_.find_id(in.channel, event_.id);
      if (id == nullptr || !UsesDeviceOf(*id)) return Decision::kStop;
      if (is_of_path && id->IsUd()) return Decision::kStop;
    }
    in.command.id = event_.id;
    Store(bytes, in);
    return Decision::kCall;
  }

  bool UsesDeviceOf(const cm::CmaId& id) const {
    return id.device && id.device->index < 32 && (devices_ >> id.device->index & 1) != 0;
  }

  const uint32_t devices_;
  const SequenceCalls& calls_;
  uint32_t created_qp_ = 0;
  bool has_attributes_ = false, has_event_ = false;
  ib_uverbs_qp_attr attributes_{};
  rdma_ucm_event_resp event_{};
};

void Copy(std::span<const std::byte> from, std::byte* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

// The message of one call.
class Message {
 public:
  explicit Message(const Step& step) : size_(sizeof(CallHeader) + step.header.size) {
    Store(bytes_, CallHeader{step.header.op, step.header.size});
    Copy(step.in(), in().data());
  }
  std::span<std::byte> in() { return std::span(bytes_).first(size_).subspan(sizeof(CallHeader)); }
  std::span<const std::byte> whole() const { return std::span(bytes_).first(size_); }

 private:
  const size_t size_;
  std::array<std::byte, sizeof(CallHeader) + kMaxStepBytes> bytes_;
};

// Writes the body of the reply to a sequence.
class Results {
 public:
  explicit Results(ReplyBody& body) : body_(body) { body_.resize(sizeof(SequenceOut)); }

  bool HasRoomForOne() const {
    return body_.size() + sizeof(ResultHeader) + kMaxStepBytes <= kMaxSequenceOutBytes;
  }
  void Add(uint32_t step, const Reply& reply) {
    const auto size = static_cast<uint32_t>(reply.body.size());
    const size_t at = body_.size();
    body_.resize(at + sizeof(ResultHeader) + PaddedStep(size));
    Store(std::span(body_).subspan(at), ResultHeader{step, reply.error, size, 0});
    Copy(reply.body, body_.data() + at + sizeof(ResultHeader));
    Store(body_, SequenceOut{++count_, 0});
  }

 private:
  ReplyBody& body_;
  uint32_t count_ = 0;
};

}  // namespace

bool FetchesEvent(std::span<const std::byte> body) {
  constexpr auto kCommand = static_cast<uint32_t>(CallOp::kCmCommand);
  Steps memory;
  const std::span<const Step> steps = ParseSteps(body, memory);
  if (steps.empty() || steps.front().header.op != kCommand + RDMA_USER_CM_CMD_GET_EVENT)
    return false;
  return std::ranges::all_of(steps.subspan(1), [&](const Step& step) {
    return step.header.op == kCommand + RDMA_USER_CM_CMD_QUERY;
  });
}

Reply RunSequence(std::span<const std::byte> body, const SequenceCalls& calls) {
  Steps memory;
  const std::span<const Step> steps = ParseSteps(body, memory);
  if (steps.empty()) return FailedReply(EINVAL);
  Sequence sequence(Load<SequenceIn>(body).devices, calls);
  Reply reply;
  Results results(reply.body);
  for (uint32_t i = 0; i < steps.size(); i++) {
    const Step& step = steps[i];
    if (!calls.may_call() || !results.HasRoomForOne()) break;
    Message message(step);
    const auto decision = sequence.Complete(step, message.in());
    if (decision == Sequence::Decision::kSkip) continue;
    if (decision == Sequence::Decision::kStop) break;
    const Reply result = calls.call(CallOp{step.header.op}, message.whole());
    // Neither happens: no call of a sequence returns descriptors, and may_call excludes delays.
    if (result.is_late || !result.descriptors.empty() || result.body.size() > kMaxStepBytes) break;
    results.Add(i, result);
    if (result.error != 0) break;
    sequence.Note(step, result.body);
  }
  return reply;
}

}  // namespace rdmaemu
