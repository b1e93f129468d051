#include "tools/cli/sweep/random_cases.h"

#include <algorithm>
#include <random>
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

// The random numbers of one draw.
class Numbers {
 public:
  Numbers(uint64_t seed, uint64_t draw) : random_(seed + draw) {}
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }

 private:
  std::mt19937_64 random_;
};

}  // namespace

RandomCases::RandomCases(SweepRunner& runner, std::vector<SweepCase> plan,
                         const SweepRequest& request)
    : runner_(runner),
      plan_(std::move(plan)),
      request_(request),
      seed_(HashOf(request.test.seed)) {}

const RandomCases::Known* RandomCases::Find(const SweepCase& one, Draw& draw) const {
  const std::string id = one.Id();
  const auto found = known_.find(id);
  if (found == known_.end() || found->second.is_running) {
    draw.missing = one;
    return nullptr;
  }
  draw.needed.push_back(id);
  return &found->second;
}

RandomCases::Draw RandomCases::Evaluate(uint64_t number) const {
  Numbers numbers(seed_, number);
  Draw draw{.number = number};
  SweepCase drawn = plan_[numbers.Below(plan_.size())];
  const Known* const first = Find(drawn, draw);
  if (first == nullptr) return draw;
  if (IsFinding(first->judgement.judged.verdict)) {
    draw.outcome = drawn;
    return draw;
  }
  if (first->after.empty()) return draw;
  const size_t more = 1 + numbers.Below(kMaxFaults - 1);
  for (size_t i = 0; i < more; i++) {
    // The handling of a fault is soon after it.
    const size_t count = first->after.size();
    const size_t choices = numbers.Below(2) == 0 ? count : std::min(count, kSoonMoments);
    const Moment& moment = first->after[numbers.Below(choices)];
    std::vector<fault::LikelyFault> faults = FaultsAt(moment.place, request_.plan.has_peers);
    std::erase_if(faults, [&](const fault::LikelyFault& fault) {
      return !IsSelected(request_.plan, moment.place, fault);
    });
    if (faults.empty()) continue;
    drawn.faults.push_back({moment, faults[numbers.Below(faults.size())]});
  }
  if (drawn.faults.size() < 2 || tried_.contains(drawn.Id())) return draw;
  draw.combination = drawn.Id();
  const Known* const known = Find(drawn, draw);
  if (known == nullptr) return draw;
  draw.outcome = drawn;
  const Verdict verdict = known->judgement.judged.verdict;
  if (!IsFinding(verdict)) return draw;
  draw.outcome->faults = Shrink(drawn.faults, [&](const std::vector<SweepFaultAt>& faults) {
    if (draw.missing) return false;
    const Known* const again = Find({faults}, draw);
    return again != nullptr && again->judgement.judged.verdict == verdict;
  });
  return draw;
}

void RandomCases::DeliverOutcomes() {
  while (!outcomes_.empty() && outcomes_.front()->has_value()) {
    (*done_)(std::move(**outcomes_.front()));
    outcomes_.pop_front();
  }
}

void RandomCases::Finish(const SweepCase& one) {
  const SweepRunner::Judgement& judgement = known_.at(one.Id()).judgement;
  const auto place = outcomes_.emplace_back(std::make_shared<std::optional<Outcome>>());
  runner_.Finish(one, judgement, [this, place](Outcome outcome) {
    *place = std::move(outcome);
    DeliverOutcomes();
  });
}

void RandomCases::Commit(const Draw& draw) {
  for (const std::string& id : draw.needed) {
    if (!std::exchange(known_.at(id).is_counted, true)) runs_++;
  }
  // An earlier draw may have given the same combination.
  const bool is_new = !draw.combination.empty() && tried_.insert(draw.combination).second;
  vain_ = is_new ? 0 : vain_ + 1;
  if (!draw.outcome || (!is_new && !draw.combination.empty())) return;
  const Judged& judged = known_.at(draw.outcome->Id()).judgement.judged;
  if (IsFinding(judged.verdict)) {
    // A finding of the checks names its place in the program. Other cases may lead to that place.
    const bool has_place = judged.verdict == Verdict::kMisused ||
                           judged.verdict == Verdict::kLeaked ||
                           judged.verdict == Verdict::kSanitizer;
    if (!reported_.insert(has_place ? judged.reason : draw.outcome->Id()).second) return;
    findings_++;
  }
  Finish(*draw.outcome);
  runner_.ShowProgress(runs_, 0, findings_);
}

void RandomCases::CommitDraws() {
  while (!is_over_ && !draws_.empty() && !draws_.front().missing) {
    const Draw draw = std::move(draws_.front());
    draws_.pop_front();
    Commit(draw);
    is_over_ = vain_ >= kMaxVainDraws || (request_.max_runs != 0 && runs_ >= request_.max_runs);
  }
}

void RandomCases::DropUnbegunDraws() {
  std::erase_if(draws_, [this](const Draw& draw) {
    return draw.missing && !draw.outcome && !known_.contains(draw.missing->Id());
  });
  CommitDraws();
}

std::optional<SweepRunner::Job> RandomCases::NextJob() {
  if (runner_.IsOver()) DropUnbegunDraws();
  while (!is_over_) {
    for (Draw& draw : draws_) {
      if (!draw.missing || known_.contains(draw.missing->Id())) continue;
      const SweepCase one = *draw.missing;
      known_[one.Id()];
      return SweepRunner::Job{.one = one, .ended = [this, one](std::optional<RunResult> run) {
                                End(one, std::move(run));
                              }};
    }
    if (runner_.IsOver() || draws_.size() >= kDrawsAhead * std::max(1u, request_.jobs)) break;
    draws_.push_back(Evaluate(next_number_++));
    CommitDraws();
  }
  return std::nullopt;
}

void RandomCases::End(const SweepCase& one, std::optional<RunResult> run) {
  if (!run) return;
  Known& known = known_.at(one.Id());
  known.is_running = false;
  known.judgement = runner_.JudgementOf(one, std::move(*run));
  HostRecords& host = known.judgement.run.host;
  if (one.faults.size() == 1 && !host.fired.empty()) {
    known.after.assign(host.moments.begin() + static_cast<ptrdiff_t>(host.moments_before_fault),
                       host.moments.end());
  }
  host = {};
  const Verdict verdict = known.judgement.judged.verdict;
  if (!IsFinding(verdict) && verdict != Verdict::kNotRun) known.judgement.run.output.clear();
  for (Draw& draw : draws_) {
    if (draw.missing && draw.missing->Id() == one.Id()) draw = Evaluate(draw.number);
  }
  CommitDraws();
}

void RandomCases::Run(const SweepRunner::Done& done) {
  if (plan_.empty()) return;
  done_ = &done;
  runner_.RunJobs([this] { return NextJob(); });
}

}  // namespace rdmaemu::cli
