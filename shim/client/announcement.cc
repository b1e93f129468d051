#include "shim/client/announcement.h"

#include <string.h>

#include "shim/client/announced_calls.h"
#include "shim/client/client_abi.h"

namespace rdmaemu::client {
namespace {

__thread rdmaemu_announcement* t_announcement = nullptr;

template <class T>
T Load(const void* bytes) {
  T value;
  memcpy(&value, bytes, sizeof value);
  return value;
}

// Returns the step with this number, from 1. The owner has written at least as many.
const std::byte* StepAt(const rdmaemu_announcement& announced, uint32_t number) {
  const std::byte* step = announced.in + kFirstStepRoom;
  for (uint32_t i = 1; i < number; i++) {
    step += sizeof(StepHeader) + PaddedStep(Load<StepHeader>(step).size);
  }
  return step;
}

// Returns true if the call is the announced step. The host has completed a step with a link, so
// only the parts that the announcement had are compared.
bool IsStep(const rdmaemu_announcement& announced, uint32_t number, uint32_t op, const void* in,
            uint32_t in_size) {
  if (number > announced.steps) return false;
  const std::byte* const step = StepAt(announced, number);
  const auto header = Load<StepHeader>(step);
  if (header.op != op || header.size != in_size) return false;
  const std::byte* const bytes = step + sizeof header;
  switch (StepLink{header.link}) {
    case StepLink::kNone:
      return memcmp(bytes, in, in_size) == 0;
    case StepLink::kAttributes:
    case StepLink::kAttributesButDestReads:
    case StepLink::kAttributesButReads: {
      const auto expected = Load<ModifyQpIn>(bytes), actual = Load<ModifyQpIn>(in);
      return (expected.handle == 0 || expected.handle == actual.handle) &&
             expected.attr.qp_state == actual.attr.qp_state;
    }
    case StepLink::kEvent: {
      const auto expected = Load<CmCall<rdma_ucm_query>>(bytes),
                 actual = Load<CmCall<rdma_ucm_query>>(in);
      return expected.channel == actual.channel &&
             expected.command.option == actual.command.option &&
             actual.command.id == announced.event_id;
    }
  }
  return false;
}

void TakeResults(rdmaemu_announcement& announced) {
  if (announced.out_bytes < sizeof(SequenceOut)) return;
  announced.results = Load<SequenceOut>(announced.out).results;
}

// Returns the channel of a GET_EVENT, which begins with it.
uint32_t ChannelOf(const void* in, uint32_t in_size) {
  return in_size < sizeof(uint32_t) ? 0 : Load<uint32_t>(in);
}

// Sends the first call and the announced ones. Without a reply there are no results.
void Send(rdmaemu_announcement& announced, const void* in, uint32_t in_size) {
  constexpr size_t kBeforeFirst = sizeof(SequenceIn) + sizeof(StepHeader);
  if (announced.first_gift == StepGift::kEvent) {
    announced.out_bytes = TakeOfferedEvent(ChannelOf(in, in_size), announced.devices, announced.out,
                                           sizeof announced.out);
    if (announced.out_bytes > 0) return TakeResults(announced);
  }
  if (kBeforeFirst + PaddedStep(in_size) > kFirstStepRoom) return;
  std::byte* const message = announced.in + kFirstStepRoom - PaddedStep(in_size) - kBeforeFirst;
  const SequenceIn sequence{announced.steps + 1, announced.devices};
  const StepHeader first{announced.first_op, in_size, 0,
                         static_cast<uint32_t>(announced.first_gift)};
  memcpy(message, &sequence, sizeof sequence);
  memcpy(message + sizeof sequence, &first, sizeof first);
  memset(message + kBeforeFirst, 0, PaddedStep(in_size));
  memcpy(message + kBeforeFirst, in, in_size);
  const auto bytes = static_cast<uint32_t>(kBeforeFirst + PaddedStep(in_size) + announced.in_bytes);
  announced.out_bytes = SendSequence(message, bytes, announced.out, sizeof announced.out);
  TakeResults(announced);
}

}  // namespace

bool TakeAnnounced(uint32_t op, const void* in, uint32_t in_size, AnnouncedReply& reply) {
  rdmaemu_announcement* const announced = t_announcement;
  if (announced == nullptr) return false;
  bool is_first = false;
  if (!announced->is_sent) {
    if (op != announced->first_op) return false;
    announced->is_sent = is_first = true;
    Send(*announced, in, in_size);
  }
  if (announced->results == 0) return false;
  const uint32_t at = announced->next_result;
  if (announced->out_bytes - at < sizeof(ResultHeader)) return false;
  const auto header = Load<ResultHeader>(announced->out + at);
  const uint32_t body = at + static_cast<uint32_t>(sizeof header);
  if (header.size > announced->out_bytes - body) return false;
  if (is_first ? header.step != 0
               : header.step == 0 || !IsStep(*announced, header.step, op, in, in_size)) {
    return false;
  }
  if (is_first && announced->first_gift == StepGift::kEvent &&
      header.size >= sizeof(rdma_ucm_event_resp)) {
    announced->event_id = Load<rdma_ucm_event_resp>(announced->out + body).id;
  }
  announced->results--;
  announced->next_result = body + static_cast<uint32_t>(PaddedStep(header.size));
  reply = {header.error >= 0 ? header.error : EPROTO, announced->out + body, header.size};
  return true;
}

}  // namespace rdmaemu::client

extern "C" {

void rdmaemu_client_announce(rdmaemu_announcement* announced) {
  using namespace rdmaemu::client;
  if (announced->in_bytes == 0) return;
  announced->outer = t_announcement;
  t_announcement = announced;
}

void rdmaemu_client_end_announcement(rdmaemu_announcement* announced) {
  using namespace rdmaemu::client;
  if (t_announcement == announced) t_announcement = announced->outer;
}
}
