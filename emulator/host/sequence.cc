#include "emulator/host/sequence.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "emulator/abi/sequence.h"
#include "emulator/abi/user_qp_attr.h"
#include "emulator/cm/events.h"
#include "emulator/host/calls/struct_reply.h"

namespace rdmaemu {
namespace {

template <class T>
T Load(std::span<const std::byte> bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}
template <class T>
void Store(std::span<std::byte> bytes, const T& value) {
  std::memcpy(bytes.data(), &value, sizeof value);
}

struct Step {
  StepHeader header;
  std::span<const std::byte> in;
};

// Returns the calls of a sequence, all of which are well-formed. nullopt: some are not.
std::optional<std::vector<Step>> ParseSteps(std::span<const std::byte> body) {
  if (body.size() < sizeof(SequenceIn) || body.size() > kMaxSequenceInBytes) return std::nullopt;
  const uint32_t count = Load<SequenceIn>(body).steps;
  if (count == 0 || count > kMaxSequenceSteps) return std::nullopt;
  std::vector<Step> steps;
  std::span<const std::byte> rest = body.subspan(sizeof(SequenceIn));
  for (uint32_t i = 0; i < count; i++) {
    if (rest.size() < sizeof(StepHeader)) return std::nullopt;
    const auto header = Load<StepHeader>(rest);
    rest = rest.subspan(sizeof header);
    if (!HasTrait(header.op, kMayBeStep) || header.size > kMaxStepBytes ||
        rest.size() < PaddedStep(header.size)) {
      return std::nullopt;
    }
    steps.push_back({header, rest.first(header.size)});
    rest = rest.subspan(PaddedStep(header.size));
  }
  if (!rest.empty()) return std::nullopt;
  return steps;
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

void AppendResult(uint32_t step, const Reply& reply, std::vector<std::byte>& out) {
  const ResultHeader header{step, reply.error, static_cast<uint32_t>(reply.body.size()), 0};
  const size_t at = out.size();
  out.resize(at + sizeof header + PaddedStep(reply.body.size()));
  std::memcpy(out.data() + at, &header, sizeof header);
  std::copy(reply.body.begin(), reply.body.end(), out.data() + at + sizeof header);
}

}  // namespace

bool FetchesEvent(std::span<const std::byte> body) {
  constexpr auto kCommand = static_cast<uint32_t>(CallOp::kCmCommand);
  const auto steps = ParseSteps(body);
  if (!steps || steps->front().header.op != kCommand + RDMA_USER_CM_CMD_GET_EVENT) return false;
  return std::all_of(steps->begin() + 1, steps->end(), [&](const Step& step) {
    return step.header.op == kCommand + RDMA_USER_CM_CMD_QUERY;
  });
}

Reply RunSequence(std::span<const std::byte> body, const SequenceCalls& calls) {
  const auto steps = ParseSteps(body);
  if (!steps) return FailedReply(EINVAL);
  Sequence sequence(Load<SequenceIn>(body).devices, calls);
  Reply reply;
  reply.body.resize(sizeof(SequenceOut));
  SequenceOut out{};
  std::vector<std::byte> message;
  for (uint32_t i = 0; i < steps->size(); i++) {
    const Step& step = (*steps)[i];
    const size_t largest = sizeof(ResultHeader) + kMaxStepBytes;
    if (!calls.may_call() || reply.body.size() + largest > kMaxSequenceOutBytes) break;
    message.resize(sizeof(CallHeader) + step.in.size());
    Store(message, CallHeader{step.header.op, step.header.size});
    const auto in = std::span(message).subspan(sizeof(CallHeader));
    std::ranges::copy(step.in, in.begin());
    const auto decision = sequence.Complete(step, in);
    if (decision == Sequence::Decision::kSkip) continue;
    if (decision == Sequence::Decision::kStop) break;
    const Reply result = calls.call(message);
    // Neither happens: no call of a sequence returns descriptors, and may_call excludes delays.
    if (result.is_late || !result.descriptors.empty() || result.body.size() > kMaxStepBytes) break;
    AppendResult(i, result, reply.body);
    out.results++;
    if (result.error != 0) break;
    sequence.Note(step, result.body);
  }
  Store(std::span(reply.body), out);
  return reply;
}

}  // namespace rdmaemu
