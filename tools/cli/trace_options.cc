#include "tools/cli/trace_options.h"

#include "tools/cli/commands.h"

namespace rdmaemu::cli {
namespace {

void AddCompareOptions(CLI::App& command, CompareOptions& options) {
  command
      .add_option("--accept", options.accept,
                  "Known differences, each with its reason (TOML, docs/ab.md); one that no"
                  " difference needs is an error")
      ->type_name("FILE");
  command.add_option("--junit", options.junit, "Also write the result to FILE as JUnit's XML")
      ->type_name("FILE");
  command.add_flag("--json", options.json, "Print the result for a program");
  command.add_flag("--timing", options.timing,
                   "Also compare how long calls took, by powers of ten");
}

}  // namespace

TraceOptions::TraceOptions(CLI::App& app)
    : trace_(app.add_subcommand("trace",
                                "Show, sum up, draw and compare traces of programs and hosts")) {
  trace_->require_subcommand(1);
  trace_->footer(
      "Example:\n"
      "  rdmaemu run --program-trace a.jsonl -- ./my_test\n"
      "  rdmaemu trace show a.jsonl --object qp1");
  AddShow();
  AddSummary();
  AddLadder();
  AddDiff();
}

void TraceOptions::AddShow() {
  show_ = trace_->add_subcommand("show", "Print the records of traces, merged by time");
  show_->add_option("FILE", shown_.files, "Traces of `run --program-trace` or `run --trace`")
      ->required();
  const auto add = [&](const char* name, std::vector<std::string>& words, const char* help,
                       const char* type) {
    show_->add_option(name, words, help)->delimiter(',')->allow_extra_args(false)->type_name(type);
  };
  add("--object", shown_.objects,
      "Only records that name these objects, such as qp1. A kind such as id selects all ids",
      "NAME[,...]");
  add("--kind", shown_.kinds, "Only records of these kinds, such as call, event or cm.send",
      "KIND[,...]");
  add("--what", shown_.whats, "Only records of these names, such as post_send or ESTABLISHED",
      "NAME[,...]");
  add("--process", shown_.processes,
      "Only records of these processes. In a host's trace: the client's number or the host's name",
      "PID[,...]");
  show_->add_option("--from", shown_.from, "Only from this moment on, since the first record")
      ->type_name("TIME");
  show_->add_option("--to", shown_.to, "Only up to this moment")->type_name("TIME");
  show_->add_flag("--json", shown_.json, "Print the records as they are, one JSON object a line");
  show_->footer(
      "Example, what the program and its host did between 1.5 s and 2 s:\n"
      "  rdmaemu run --trace host.jsonl --program-trace program.jsonl -- ./my_test\n"
      "  rdmaemu trace show host.jsonl program.jsonl --from 1.5s --to 2s");
}

void TraceOptions::AddSummary() {
  summary_ = trace_->add_subcommand("summary",
                                    "Print counts, how long calls took, and what was left open");
  summary_->add_option("FILE", summed_up_, "Traces of `run --program-trace`")->required();
  summary_->add_flag("--json", summary_json_, "For a program; times in nanoseconds");
  summary_->footer("Example:\n  rdmaemu trace summary a.jsonl");
}

void TraceOptions::AddLadder() {
  ladder_ = trace_->add_subcommand("ladder", "Draw traces as a sequence chart, one HTML file");
  ladder_
      ->add_option("FILE", ladder_request_.files,
                   "Traces of `run --trace` and `run --program-trace`, captures of `run --pcap`")
      ->required();
  ladder_->add_option("-o,--output", ladder_request_.out, "The page, which needs no network")
      ->required()
      ->type_name("FILE");
  ladder_
      ->add_option("--from", ladder_request_.from,
                   "Only from this moment on, since the first"
                   " record")
      ->type_name("TIME");
  ladder_->add_option("--to", ladder_request_.to, "Only up to this moment")->type_name("TIME");
  ladder_->footer(
      "Example:\n"
      "  rdmaemu run --trace a.jsonl --program-trace p.jsonl --pcap a.pcapng -- ./my_test\n"
      "  rdmaemu trace ladder a.jsonl p.jsonl a.pcapng -o run.html\n"
      "docs/ladder.md says what the page shows.");
}

void TraceOptions::AddDiff() {
  diff_ = trace_->add_subcommand("diff", "Compare the traces of two runs of a program");
  diff_->add_option("A", a_, "Trace of the one run")->required();
  diff_->add_option("B", b_, "Trace of the other run")->required();
  AddCompareOptions(*diff_, compare_);
  diff_->footer(
      "Exit status: 0 if the traces are the same, or differ only in what may differ (docs/ab.md).\n"
      "  1    a file cannot be read or compared\n"
      "  122  the traces differ\n"
      "  123  the traces are the same, and an acceptance of --accept matches no difference\n"
      "\nExample:\n  rdmaemu trace diff a.jsonl b.jsonl --accept known.toml");
}

int TraceOptions::Do() const {
  if (show_->parsed()) return TraceShow(shown_);
  if (summary_->parsed()) return TraceSummary(summed_up_, summary_json_);
  if (ladder_->parsed()) return TraceLadder(ladder_request_);
  return TraceDiff(a_, b_, compare_);
}

AbOptions::AbOptions(CLI::App& app)
    : ab_(app.add_subcommand("ab", "Run a test on two backends and compare what the program saw")) {
  const auto add_side = [&](const std::string& name, AbSide& side) {
    ab_->add_option(
           "--" + name, side.backend,
           "emulator, or system: the machine's own rdma-core and device; default " + side.backend)
        ->check(CLI::IsMember({"emulator", "system"}))
        ->type_name("BACKEND");
    ab_->add_option("--" + name + "-device", side.device, "The RDMA device of " + name)
        ->type_name("NAME");
    ab_->add_option("--" + name + "-address", side.address,
                    "What {address} in commands stands for on " + name +
                        "; on the emulator the host's address, default 127.0.0.1")
        ->type_name("IP");
  };
  add_side("a", request_.a);
  add_side("b", request_.b);
  ab_->add_option("--b-trace", request_.b_trace, "Compare with the trace of an earlier run instead")
      ->type_name("FILE");
  ab_->add_option("--server", request_.server, "A command for the shell, which listens")
      ->type_name("CMD");
  ab_->add_option("--client", request_.client,
                  "A command for the shell, which starts when the server listens")
      ->type_name("CMD");
  ab_->add_option("--scenario", request_.scenario,
                  "Fault rules for both backends, and the programs to run if no other test is given"
                  " (TOML, docs/ab.md)")
      ->type_name("FILE");
  ab_->add_option(
         "--timeout", request_.timeout,
         "How long the server may take to listen, and to end after the client; default 10s")
      ->type_name("TIME");
  ab_->add_flag("--payload-hashes", request_.hashes_payloads,
                "Also compare the bytes that were sent and have arrived, by their hashes");
  ab_->add_option("--keep", request_.keep, "Keep the traces in DIR, as a.jsonl and b.jsonl")
      ->type_name("DIR");
  AddCompareOptions(*ab_, request_.compare);
  ab_->prefix_command();
  ab_->footer(
      "Exit status: 0 if both runs are the same, or each difference is accepted.\n"
      "  122  the runs differ\n"
      "  123  the runs are the same, and an acceptance of --accept matches no difference\n"
      "  125  the test could not be run, or a file cannot be read or compared\n"
      "The output of the test goes to standard error.\n\n"
      "Example, the emulator beside soft-RoCE:\n"
      "  rdmaemu ab --b-device rxe0 --keep runs -- ./my_test\n"
      "A laptop against last night's run on hardware:\n"
      "  rdmaemu ab --b-trace night/b.jsonl --accept known.toml -- ./my_test\n"
      "A server and its client:\n"
      "  rdmaemu ab --b-address 10.0.0.1 --server 'rping -s -a {address} -C 3'"
      " --client 'rping -c -a {address} -C 3'\n"
      "The programs and fault rules of a file:\n"
      "  rdmaemu ab --b-address 10.0.0.1 --scenario pair.toml");
  AddPrograms(app);
}

// Adds `ab-programs`, which `ab` uses to run several programs on one backend. It is not for users.
void AbOptions::AddPrograms(CLI::App& app) {
  programs_ = app.add_subcommand("ab-programs", "Run the programs of a test");
  programs_->group("");
  programs_->add_option("REQUEST", programs_request_)->required();
}

int AbOptions::Do(const std::vector<std::string>& command) {
  if (programs_->parsed()) return AbPrograms(programs_request_);
  std::vector<std::string> rest = ab_->remaining();
  if (!rest.empty() && rest[0].starts_with('-')) {
    return Fail(kUsage, "there is no option " + rest[0] + "; see rdmaemu ab --help");
  }
  rest.insert(rest.end(), command.begin(), command.end());
  request_.test = rest;
  return Ab(request_);
}

}  // namespace rdmaemu::cli
