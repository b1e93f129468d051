#include "emulator/transport/lent_permits.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "emulator/transport/executions.h"
#include "emulator/transport/permits.h"

namespace rdmaemu::transport {
namespace {

LentPermit& SlotOf(const PermitLoan& loan) { return loan.page->lent[loan.slot]; }

}  // namespace

bool LentPermits::MayLend(const QpContext& context, const wire::UdpFlow& flow,
                          const PermitOffer& offer) const {
  const QueuePair& qp = *context.qp;
  return environment_.permits && environment_.permits() && !environment_.trace.wants_packets() &&
         qp.type == IBV_QPT_RC && qp.attr.dest_qp_num == offer.source_qpn &&
         flow.source == qp.path.destination && flow.destination == qp.path.source &&
         context.mtu_bytes == offer.mtu_bytes && environment_.verbs.Carries(qp) &&
         IsReadyToAnswer(context) && context.responder.expected_psn == offer.psn &&
         (qp.state() == IBV_QPS_RTS || context.responder.established) &&
         (context.lent || lenders_.size() < kMaxLent);
}

Permit LentPermits::PermitFor(const QpContext& context, const PermitOffer& offer) const {
  const QueuePair& qp = *context.qp;
  const ProcessId program = qp.share().sole_process;
  if (program == ProcessId::kNone) return {};
  Permit permit{};
  const std::optional<PermittedRegion> region =
      RegionToPermit(environment_, qp, offer.rkey, static_cast<int>(offer.rights));
  if (!region) return {};
  permit.other = *region;
  permit.pid = environment_.memory.PidFor(program, program);
  return permit;
}

void LentPermits::Lend(QpContext& context, const wire::UdpFlow& flow, const PermitOffer& offer,
                       const Engine::OpenJobPage& page_of) {
  if (lenders_.size() >= kMaxLent) DropEnded();
  if (!MayLend(context, flow, offer)) return;
  Permit permit = PermitFor(context, offer);
  if (permit.pid == 0) return;
  std::shared_ptr<JobPage> page = page_of(offer.page);
  if (page == nullptr) return;
  // Earlier payloads must be visible before those of executed requests.
  payloads_.PlaceWaiting(context, MemoryRange{permit.other.address, permit.other.length});
  if (!context.lent) {
    context.lent = std::make_unique<PermitLoan>();
    lenders_.push_back(&context);
  }
  PermitLoan& loan = *context.lent;
  if (loan.page != page || loan.slot != offer.page.slot || loan.owner != offer.owner) {
    if (loan.is_lent) SlotOf(loan).Publish({});
    loan = {.page = std::move(page), .slot = offer.page.slot, .owner = offer.owner, .counted = {}};
    (void)Executions::TakeNew(SlotOf(loan).executed, loan.counted);
  }
  permit.number = offer.number;
  loan.is_lent = true;
  SlotOf(loan).Publish(permit);
}

void LentPermits::Interrupt(QpContext& context, const Train& request) {
  Settle(context);
  const wire::OpcodeInfo& info = request.info();
  const bool is_plain = (info.write && !info.imm) || (info.read && info.request);
  // The program's host has ended its half before it sent the request.
  if (!is_plain && std::exchange(context.lent->is_lent, false)) SlotOf(*context.lent).Publish({});
}

void LentPermits::Settle(QpContext& context) {
  if (!context.lent) return;
  PermitLoan& loan = *context.lent;
  LentPermit& slot = SlotOf(loan);
  const Executions done = Executions::TakeNew(slot.executed, loan.counted);
  if (done.empty()) return;
  std::atomic_thread_fence(std::memory_order_acquire);
  if (std::atomic_ref(slot.owner).load(std::memory_order_relaxed) != loan.owner) return;
  done.CountAtResponder(context);
  counters_.packets_received += done.there();
  counters_.packets_sent += done.back();
  environment_.sink.CountExchanged(done.ForResponder());
}

void LentPermits::Settle() {
  for (QpContext* const context : lenders_) Settle(*context);
}

void LentPermits::DropEnded() {
  std::erase_if(lenders_, [this](QpContext* const context) {
    if (std::atomic_ref(context->lent->page->is_ended).load(std::memory_order_relaxed) == 0) {
      return false;
    }
    Settle(*context);
    context->lent.reset();
    return true;
  });
}

void LentPermits::EndAll() {
  for (const QpContext* const context : lenders_) {
    if (context->lent->is_lent) SlotOf(*context->lent).Publish({});
  }
  for (QpContext* const context : lenders_) {
    if (!std::exchange(context->lent->is_lent, false)) continue;
    AwaitExecution(environment_.memory, *context->lent->page);
    Settle(*context);
  }
}

void LentPermits::Forget(QpContext& context) {
  if (!context.lent) return;
  context.lent.reset();
  std::erase(lenders_, &context);
}

}  // namespace rdmaemu::transport
