#include "tools/cli/sweep/random_cases.h"

#include <algorithm>
#include <utility>

#include "tools/cli/sweep/shrink.h"

namespace rdmaemu::cli {
namespace {

// FNV-1a: the seed may be any text.
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace

RandomCases::RandomCases(SweepRunner& runner, std::vector<SweepCase> plan,
                         const SweepRequest& request)
    : runner_(runner),
      plan_(std::move(plan)),
      request_(request),
      random_(HashOf(request.test.seed)) {}

const RandomCases::After* RandomCases::AfterFault(const SweepCase& first,
                                                  const SweepRunner::Done& done) {
  const auto found = after_.find(first.Id());
  if (found != after_.end()) return &found->second;
  const auto judgement = runner_.RunOne(first);
  if (!judgement) return nullptr;
  runs_++;
  After after;
  after.is_finding = IsFinding(judgement->judged.verdict);
  const HostRecords& host = judgement->run.host;
  if (!host.fired.empty()) {
    after.moments.assign(host.moments.begin() + static_cast<ptrdiff_t>(host.moments_before_fault),
                         host.moments.end());
  }
  if (after.is_finding) Report(first, *judgement, done);
  return &after_.emplace(first.Id(), std::move(after)).first->second;
}

std::optional<SweepCase> RandomCases::Draw(const SweepRunner::Done& done) {
  SweepCase drawn = plan_[Below(plan_.size())];
  const After* const after = AfterFault(drawn, done);
  if (after == nullptr || after->is_finding || after->moments.empty()) return std::nullopt;
  const size_t more = 1 + Below(kMaxFaults - 1);
  for (size_t i = 0; i < more; i++) {
    // The handling of a fault is soon after it.
    const size_t count = after->moments.size();
    const Moment& moment =
        after->moments[Below(Below(2) == 0 ? count : std::min(count, kSoonMoments))];
    std::vector<fault::LikelyFault> faults = fault::LikelyFaultsAt(moment.place);
    std::erase_if(faults, [&](const fault::LikelyFault& fault) {
      return !IsSelected(request_.plan, moment.place, fault);
    });
    if (faults.empty()) continue;
    drawn.faults.push_back({moment, faults[Below(faults.size())]});
  }
  if (drawn.faults.size() < 2) return std::nullopt;
  return drawn;
}

void RandomCases::Report(const SweepCase& found, const SweepRunner::Judgement& judgement,
                         const SweepRunner::Done& done) {
  // A finding of the checks names its place in the program. Other cases may lead to that place.
  const Verdict verdict = judgement.judged.verdict;
  const bool has_place =
      verdict == Verdict::kMisused || verdict == Verdict::kLeaked || verdict == Verdict::kSanitizer;
  if (!reported_.insert(has_place ? judgement.judged.reason : found.Id()).second) return;
  findings_++;
  done(runner_.Finish(found, judgement));
}

void RandomCases::Run(const SweepRunner::Done& done) {
  uint64_t vain = 0;
  while (!plan_.empty() && !runner_.IsOver() && vain < kMaxVainDraws) {
    if (request_.max_runs != 0 && runs_ >= request_.max_runs) break;
    std::optional<SweepCase> drawn = Draw(done);
    if (!drawn || !tried_.insert(drawn->Id()).second) {
      vain++;
      continue;
    }
    vain = 0;
    auto judgement = runner_.RunOne(*drawn);
    if (!judgement) break;
    runs_++;
    runner_.ShowProgress(runs_, 0, findings_);
    const Verdict verdict = judgement->judged.verdict;
    if (!IsFinding(verdict)) {
      Outcome outcome = runner_.Finish(*drawn, *judgement);
      done(std::move(outcome));
      continue;
    }
    SweepCase least = *drawn;
    least.faults = Shrink(drawn->faults, [&](const std::vector<SweepFaultAt>& faults) {
      auto again = runner_.RunOne({faults});
      runs_++;
      if (!again || again->judged.verdict != verdict) return false;
      judgement = std::move(again);
      return true;
    });
    Report(least, *judgement, done);
  }
}

}  // namespace rdmaemu::cli
