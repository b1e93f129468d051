#include "tools/cli/sweep_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <tuple>

#include "tools/cli/commands.h"

namespace rdmaemu::cli {
namespace {

// Reads "I/N" with 1 <= I <= N.
bool ReadShardText(const std::string& text, uint64_t& shard, uint64_t& shards) {
  const size_t slash = text.find('/');
  if (slash == text.npos) return false;
  const auto read = [](std::string_view part, uint64_t& number) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    return error == std::errc() && end == part.data() + part.size();
  };
  const std::string_view view = text;
  uint64_t one = 0;
  if (!read(view.substr(0, slash), one) || !read(view.substr(slash + 1), shards)) return false;
  shard = one - 1;
  return one >= 1 && one <= shards;
}

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

SweepOptions::SweepOptions(CLI::App& app)
    : sweep_(app.add_subcommand("sweep",
                                "Run a test once for each fault that can happen in it: rdmaemu "
                                "sweep [OPTIONS] -- TEST")) {
  AddTest();
  AddChoice();
  AddResults();
  sweep_->footer(
      "Exit status: 0 if there are no new findings. Other statuses:\n"
      "  1    there are new findings\n"
      "  125  the test could not be run\n"
      "  130  the sweep was interrupted\n"
      "\n"
      "Example:\n"
      "  rdmaemu sweep -- ./my_test\n"
      "  rdmaemu sweep --server 'rping -s -C 3' --client 'rping -c -C 3 -a 127.0.0.1'\n"
      "  rdmaemu sweep --two-hosts --server 'rping -s -C 3' --client 'rping -c -C 3 -a 127.0.1.1'\n"
      "  rdmaemu sweep --random --minutes 10 --seed 7 -- ./my_test");
}

void SweepOptions::AddTest() {
  sweep_
      ->add_option("--server", request_.test.server,
                   "Line for a shell: a server, which starts first. The client starts when the "
                   "server listens")
      ->type_name("CMD");
  sweep_->add_option("--client", request_.test.client, "Line for a shell: the server's client")
      ->type_name("CMD");
  CLI::Option* const two_hosts =
      sweep_->add_flag("--two-hosts", request_.test.has_two_hosts,
                       "The server and the client run on a host each. A fault is on one of the "
                       "hosts, which its place names: client/call.connect");
  two_hosts->needs("--client");
  for (const auto& [name, address, help] :
       {std::tuple("--server-address", &request_.test.server_address,
                   "Address of the server's host. Default: 127.0.1.1"),
        std::tuple("--client-address", &request_.test.client_address,
                   "Address of the client's host. Default: 127.0.1.2")}) {
    sweep_->add_option(name, *address, help)->needs(two_hosts)->type_name("ADDRESS");
  }
  sweep_
      ->add_option("--timeout", request_.test.listen_timeout,
                   "How long the server may take to listen, and to end after the client. "
                   "Default: 3s")
      ->type_name("TIME");
  sweep_
      ->add_option(
          "--backend", backend_,
          "emulator (default), or system: the machine's own rdma-core and device, with the "
          "faults that rules can make there (docs/sweep.md)")
      ->check(CLI::IsMember({"emulator", "system"}))
      ->type_name("NAME");
  sweep_->add_option("--address", addresses_, "As for `run`")->type_name("ADDRESS");
  sweep_->add_option("--device", devices_, "As for `run`")->type_name("NAME[=PROFILE]");
  sweep_->add_option("--profile", profiles_, "As for `run`")->type_name("PROFILE");
  sweep_->add_flag("--program-time", has_program_time_,
                   "As for `run`: the test's timers and time-outs follow the virtual clock");
  sweep_
      ->add_option("--seed", request_.test.seed,
                   "Seed of the hosts and of the random combinations. Default: 1")
      ->type_name("N");
  sweep_->add_flag("--no-check", has_no_checks_,
                   "Do not check how the test uses libibverbs and librdmacm. Leaks and misuse are "
                   "not found then");
  sweep_
      ->add_option("--expect", request_.judge.expected,
                   "Exit statuses that mean success, beside that of the run without faults")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("STATUS[,...]");
  sweep_
      ->add_option("--accept", accepted_,
                   "Verdicts that are no findings: crashed, hung, sanitizer, wrong-result, "
                   "misused, leaked")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("VERDICT[,...]");
}

void SweepOptions::AddChoice() {
  const auto add = [&](const char* name, std::vector<std::string>& words, const char* help) {
    sweep_->add_option(name, words, help)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("PATTERN[,...]");
  };
  add("--points", request_.plan.points,
      "Only at these places (docs/faults.md), such as 'call.*,event.*'. Default: all");
  add("--faults", request_.plan.faults,
      "Only these faults, as the results name them, such as 'errno=*,drop'. Default: all");
  sweep_
      ->add_option("--per-site", request_.plan.per_site,
                   "How many moments of one site (a place and the stack of the call) get faults: "
                   "the first, the last, and others between. 0: all. Default: 3")
      ->type_name("N");
  sweep_
      ->add_option("--max-runs", request_.max_runs, "Limit of the runs with faults. Default: none")
      ->type_name("N");
  sweep_
      ->add_option("--time-budget", request_.time_budget,
                   "No run begins after this time. 0: no limit. Default: 1min")
      ->type_name("TIME");
  sweep_
      ->add_option("--limit", request_.limit,
                   "Real time after which a run counts as hung. Default: 20 times the run "
                   "without faults, from 3s to 60s")
      ->type_name("TIME");
  sweep_
      ->add_option(
          "--jobs,-j", request_.jobs,
          "How many runs are side by side. Default: half of the processors; 1 with --backend "
          "system")
      ->check(CLI::Range(1, 256))
      ->type_name("N");
  sweep_
      ->add_option("--shard", shard_,
                   "The share I of N of the cases. Default: the sharding variables of Bazel and "
                   "GoogleTest")
      ->type_name("I/N");
  sweep_
      ->add_option("--case", request_.cases,
                   "Only this case, by the name in the results. May be given several times")
      ->allow_extra_args(false)
      ->type_name("CASE");
  sweep_->add_flag("--list", request_.lists_sites,
                   "Print the sites of the run without faults, and run no case");
  sweep_->add_flag("--random", request_.is_random,
                   "Draw combinations of faults. Reduce each finding to the fewest faults");
  sweep_->add_option("--minutes", request_.minutes, "How long to draw combinations. Default: 1")
      ->check(CLI::PositiveNumber)
      ->type_name("N");
  request_.jobs = std::max(1u, std::thread::hardware_concurrency() / 2);
}

void SweepOptions::AddResults() {
  sweep_
      ->add_option("--report", request_.directory,
                   "Directory of the results: index.html, results.json, and a report of each "
                   "finding. Default: rdmaemu-sweep")
      ->type_name("DIR");
  sweep_->add_flag("--resume", request_.is_resumed,
                   "Continue the sweep of the report's directory: its cases are not run again");
  sweep_
      ->add_option("--baseline", request_.baseline,
                   "Known findings, each with its reason (TOML, docs/sweep.md)")
      ->type_name("FILE");
  sweep_->add_option("--junit", request_.junit, "Also write the results to FILE as JUnit's XML")
      ->type_name("FILE");
  sweep_->add_flag("--json", request_.is_json, "Print the results for a program");
}

// Returns a message about a wrong shard, or "".
std::string SweepOptions::ReadShard() {
  PlanOptions& plan = request_.plan;
  if (!shard_.empty()) {
    if (ReadShardText(shard_, plan.shard, plan.shards)) return "";
    return "\"" + shard_ + "\" is no shard; give I/N with I from 1 to N, such as --shard 1/4";
  }
  const std::string file = Variable("TEST_SHARD_STATUS_FILE");
  for (const auto& [index, total] : {std::pair("TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS"),
                                     std::pair("GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS")}) {
    const std::string of = Variable(total), which = Variable(index);
    if (of.empty() || which.empty()) continue;
    // These count from 0.
    const std::string text = which.find_first_not_of("0123456789") == which.npos
                                 ? std::to_string(std::strtoull(which.c_str(), nullptr, 10) + 1)
                                 : which;
    if (!ReadShardText(text + "/" + of, plan.shard, plan.shards)) {
      return std::string(index) + "=" + which + " and " + total + "=" + of +
             " are no shard; unset them, or set an index below the total";
    }
    // Bazel learns from this file that the test can be sharded.
    if (!file.empty()) std::ofstream(file, std::ios::app).flush();
    return "";
  }
  return "";
}

// Returns a message about an option that the backend does not have, or "".
std::string SweepOptions::ReadBackend() {
  if (backend_ != "system") return "";
  for (const char* const name : {"--address", "--profile", "--program-time", "--two-hosts"}) {
    if (sweep_->count(name) == 0) continue;
    return std::string(name) +
           " needs the emulator; with --backend system the test gets the machine's own devices "
           "unchanged";
  }
  const bool is_plain = devices_.empty() || devices_[0].find_first_of("=@") == std::string::npos;
  if (devices_.size() > 1 || !is_plain) {
    return "--backend system takes one --device NAME, of those that the machine has";
  }
  SweptTest& test = request_.test;
  test.is_on_system = request_.plan.is_on_system = true;
  test.host_options = {"--backend", "system"};
  if (!devices_.empty()) test.device = devices_[0];
  // The runs share the machine's addresses and ports.
  if (sweep_->count("--jobs") == 0) request_.jobs = 1;
  return "";
}

int SweepOptions::Do(const std::vector<std::string>& command) {
  request_.test.command = command;
  request_.test.has_checks = !has_no_checks_;
  for (const std::string& wrong : {ReadBackend(), ReadShard()}) {
    if (!wrong.empty()) return Fail(kUsage, wrong);
  }
  // The shard is the sweep's. Each run of the test is whole.
  for (const char* const name : {"TEST_SHARD_INDEX", "TEST_TOTAL_SHARDS", "TEST_SHARD_STATUS_FILE",
                                 "GTEST_SHARD_INDEX", "GTEST_TOTAL_SHARDS"}) {
    unsetenv(name);
  }
  for (const std::string& name : accepted_) {
    const auto verdict = VerdictOf(name);
    if (!verdict || !IsFinding(*verdict)) {
      return Fail(kUsage, "\"" + name + "\" is no verdict of a finding; see rdmaemu sweep --help");
    }
    request_.judge.accepted.push_back(*verdict);
  }
  if (request_.test.has_two_hosts && !addresses_.empty()) {
    return Fail(kUsage,
                "--address is for a test of one host; with --two-hosts, give --server-address and "
                "--client-address");
  }
  const auto pass_on = [&](const char* option, const std::vector<std::string>& values) {
    for (const std::string& value : values) {
      request_.test.host_options.insert(request_.test.host_options.end(), {option, value});
    }
  };
  pass_on("--address", addresses_);
  pass_on("--device", devices_);
  pass_on("--profile", profiles_);
  if (has_program_time_) request_.test.host_options.push_back("--program-time");
  return Sweep(request_);
}

}  // namespace rdmaemu::cli
