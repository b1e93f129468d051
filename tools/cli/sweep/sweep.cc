#include "tools/cli/sweep/sweep.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>

#include "emulator/runtime/clock.h"
#include "emulator/runtime/unique_fd.h"
#include "tools/cli/commands.h"
#include "tools/cli/duration.h"
#include "tools/cli/sweep/left_processes.h"
#include "tools/cli/sweep/outcome.h"
#include "tools/cli/sweep/random_cases.h"
#include "tools/cli/sweep/runner.h"

namespace rdmaemu::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kInterrupted = 130;  // as a shell's program that SIGINT has ended

class SweepCommand {
 public:
  explicit SweepCommand(const SweepRequest& request)
      : request_(request), runner_(request, fs::absolute(request.directory).string()) {}

  int Do() {
    if (const auto mistake = Mistake()) return Fail(kUsage, *mistake);
    if (!request_.baseline.empty()) {
      auto known = ReadBaseline(request_.baseline);
      if (!known) return Fail(kUsage, known.error());
      known_ = std::move(*known);
    }
    if (const auto made = MakeDirectory(); !made) return Fail(kRunFailed, made.error());
    const Time began = runtime::RealNow();
    AdoptLeftProcesses();
    if (const auto ready = runner_.RunWithoutFaults(); !ready) {
      return Fail(runner_.is_interrupted() ? kInterrupted : kRunFailed, ready.error());
    }
    sites_ = SitesOf(runner_.dry().result.host);
    request_.plan.has_peers =
        !request_.test.has_two_hosts && runner_.dry().result.host.with_qps.size() > 1;
    SetSites();
    if (request_.lists_sites) return ListSites();
    if (const int status = RunCases(); status != 0) return status;
    results_.took_s = std::chrono::duration<double>(runtime::RealNow() - began).count();
    return Finish();
  }

 private:
  std::string File(const char* name) const { return runner_.directory() + "/" + name; }

  std::optional<std::string> Mistake() const {
    const SweptTest& test = request_.test;
    if (test.server.empty() != test.client.empty()) return "--server and --client need each other";
    if (test.is_pair() != test.command.empty()) {
      return "give either a test behind --, as in: rdmaemu sweep -- ./my_test; or --server and "
             "--client";
    }
    if (request_.time_budget != "0" && !ParseDuration(request_.time_budget)) {
      return NotADuration(request_.time_budget);
    }
    if (!request_.limit.empty() && !ParseDuration(request_.limit)) {
      return NotADuration(request_.limit);
    }
    if (!ParseDuration(test.listen_timeout)) return NotADuration(test.listen_timeout);
    if (!(request_.minutes > 0 && request_.minutes <= kMaxMinutes)) {
      return "--minutes is a number above 0, and at most " + std::to_string(kMaxMinutes);
    }
    for (const std::string& id : request_.cases) {
      const auto parsed = ParseCase(id);
      if (!parsed) {
        return "there is no case \"" + id +
               "\"; a case is PLACE#N: FAULT, as the sweep prints it, such as \"call.reg_mr#1: "
               "errno=ENOMEM\"";
      }
      for (const SweepFaultAt& each : parsed->faults) {
        const std::string_view host = HostOfPlace(each.moment.place);
        if (test.has_two_hosts && host != kServer && host != kClient) {
          return "case \"" + id +
                 "\" has no host; with --two-hosts a place begins with server/ or " +
                 "client/, such as server/call.reg_mr";
        }
        if (!test.has_two_hosts && !host.empty()) {
          return "case \"" + id + "\" is for a test of two hosts; add --two-hosts";
        }
        if (!request_.plan.is_on_system) continue;
        if (const auto why = WhyFaultNotOnSystem(each.moment.place, each.fault)) {
          // Without the name of a rule, which the user has not given.
          const size_t begin = why->find("--backend");
          return "case \"" + id + "\": " + why->substr(begin == why->npos ? 0 : begin);
        }
      }
    }
    return std::nullopt;
  }

  tl::expected<void, std::string> MakeDirectory() {
    std::error_code error;
    fs::create_directories(runner_.directory(), error);
    if (error) {
      return tl::unexpected("cannot make the directory " + runner_.directory() + ": " +
                            error.message());
    }
    lock_.Reset(open(File("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!lock_ || flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
      return tl::unexpected(errno == EWOULDBLOCK
                                ? "another sweep writes to " + runner_.directory() +
                                      "; wait for its end, or give --report another directory"
                                : "cannot lock " + File("lock") + ": " + std::strerror(errno));
    }
    const std::string own_head = HeadLine(Words(), request_.test.seed, request_.test.HostOptions());
    if (request_.is_resumed && fs::exists(File("results.jsonl"))) {
      std::string head;
      results_.outcomes = ReadOutcomes(File("results.jsonl"), head);
      if (head != own_head) {
        return tl::unexpected(File("results.jsonl") +
                              " has the results of another test, seed or options; omit --resume, "
                              "or give --report another directory");
      }
      runner_.SetFindings(results_.outcomes);
    }
    log_.open(File("results.jsonl"), std::ios::trunc);
    log_ << own_head;
    for (const Outcome& each : results_.outcomes) log_ << OutcomeLine(each);
    if (!log_.flush()) return tl::unexpected("cannot write " + File("results.jsonl"));
    return {};
  }

  std::vector<std::string> Words() const {
    const SweptTest& test = request_.test;
    return test.is_pair() ? std::vector<std::string>{test.server, test.client} : test.command;
  }

  void SetSites() {
    results_.stacks_are_cut = runner_.dry().result.host.stacks_are_cut;
    for (const Site& site : sites_) {
      const std::vector<fault::LikelyFault> faults = FaultsAt(site.place, request_.plan.has_peers);
      const bool is_selected = std::ranges::any_of(faults, [&](const fault::LikelyFault& each) {
        return IsSelected(request_.plan, site.place, each);
      });
      SiteRow row{site.place, runner_.dry().Described(site.stack), site.moments.size()};
      if (is_selected) row.chosen = ChosenMoments(site.moments, request_.plan.per_site);
      results_.sites.push_back(std::move(row));
    }
  }

  int ListSites() {
    results_.test = Words();
    results_.seed = request_.test.seed;
    if (request_.is_json) {
      std::cout << ToJson(results_) << std::flush;
    } else {
      PrintSites(results_, std::cout);
    }
    return std::cout.flush() ? 0 : kRunFailed;
  }

  int RunCases() {
    PlanOptions whole = request_.plan;
    whole.shard = 0;
    whole.shards = 1;
    if (request_.cases.empty()) results_.omitted = OmittedOnSystem(sites_, whole);
    if (request_.cases.empty() && MakePlan(sites_, whole).empty()) {
      return Fail(kRunFailed,
                  "there is nothing to sweep: the test passed " + std::to_string(sites_.size()) +
                      " places, and none has a fault that --points and --faults select" +
                      (results_.omitted.empty() ? "" : "; " + results_.omitted));
    }
    std::vector<SweepCase> plan = MakePlan(sites_, request_.plan);
    const auto add = [this](Outcome outcome) { Add(std::move(outcome)); };
    if (request_.is_random) {
      runner_.SetBudget(std::chrono::duration_cast<Duration>(
          std::chrono::duration<double>(request_.minutes * 60)));
      RandomCases random(runner_, std::move(plan), request_);
      random.Run(add);
      results_.planned = results_.outcomes.size();
      return 0;
    }
    if (!request_.cases.empty()) {
      plan.clear();
      for (const std::string& id : request_.cases) plan.push_back(*ParseCase(id));
    }
    results_.planned = plan.size();
    std::set<std::string> done;
    for (const Outcome& each : results_.outcomes) done.insert(each.id);
    std::erase_if(plan, [&](const SweepCase& one) { return done.contains(one.Id()); });
    const auto budget = ParseDuration(request_.time_budget);
    if (budget && request_.cases.empty()) runner_.SetBudget(*budget);
    runner_.RunAll(plan, request_.max_runs, add);
    return 0;
  }

  void Add(Outcome outcome) {
    log_ << OutcomeLine(outcome) << std::flush;
    results_.outcomes.push_back(std::move(outcome));
  }

  bool Write(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) Fail(kRunFailed, "cannot write " + path + ": " + std::strerror(errno));
    return bool(file);
  }

  // Names the entries of the baseline that no finding needs. An entry of which a case was not run,
  // such as one of another shard, may still be needed.
  void SetStale() {
    PlanOptions whole = request_.plan;
    whole.points = whole.faults = {};
    whole.shard = 0;
    whole.shards = 1;
    std::set<std::string> not_run;
    for (const SweepCase& one : MakePlan(sites_, whole)) not_run.insert(one.Id());
    for (const Outcome& each : results_.outcomes) not_run.erase(each.id);
    for (const KnownFinding& entry : known_) {
      const bool may_be_needed = std::ranges::any_of(
          not_run, [&](const std::string& id) { return fault::MatchesPattern(entry.id, id); });
      if (!entry.is_used && !may_be_needed) results_.stale.push_back(entry.id);
    }
  }

  int Finish() {
    results_.test = Words();
    results_.seed = request_.test.seed;
    for (Outcome& each : results_.outcomes) Compare(each, known_);
    if (!request_.is_random) SetStale();
    bool is_whole = bool(log_) && Write(File("results.json"), ToJson(results_)) &&
                    Write(File("index.html"), ToHtml(results_));
    if (!request_.junit.empty()) is_whole &= Write(request_.junit, ToJunit(results_));
    if (request_.is_json) {
      std::cout << ToJson(results_) << std::flush;
    } else {
      PrintText(results_, runner_.directory(), std::cout);
      std::cout << "page: " << File("index.html") << std::endl;
    }
    if (runner_.is_interrupted()) return kInterrupted;
    if (!is_whole || !std::cout || results_.Count(Verdict::kNotRun) > 0) return kRunFailed;
    return results_.NewFindings() > 0 ? kFailed : 0;
  }

  SweepRequest request_;
  SweepRunner runner_;
  std::vector<Site> sites_;
  SweepResults results_;
  std::vector<KnownFinding> known_;
  std::ofstream log_;
  runtime::UniqueFd lock_;  // of the report
};

}  // namespace

int Sweep(const SweepRequest& request) { return SweepCommand(request).Do(); }

}  // namespace rdmaemu::cli
