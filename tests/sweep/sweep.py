"""Tests `rdmaemu sweep` with planted.c: each planted mistake is found, and nothing else."""

import fcntl
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

PLANTED = os.path.join(HERE, "planted")
# A pair, at one kind of event.
RPING_PAIR = ["--server", "rping -s -C 1 -a 127.0.0.1", "--client", "rping -c -C 1 -a 127.0.0.1",
              "--limit", "20s"]
RPING_EVENTS = [*RPING_PAIR, "--points", "event.connect_response", "--faults", "event=*"]
POSTING = os.path.join(HERE, "posting")
PLANTED_PAIR = os.path.join(HERE, "planted_pair")

# For runs that end by themselves: planted.c waits for a second several times.
PATIENT = ["--limit", "30s"]
LIMIT_S = 250  # of one sweep, on a busy machine
RPING_ATTEMPTS = 3  # of a sweep whose run without faults ends with rping's race

# mistake: (the cases that may show it, a case that does, its verdict). The first pattern keeps a
# sweep short: faults at other places are those of `none`.
MISTAKES = {
    "leak-on-reject": ("cm.*,event.connect_response", "cm.req#1: reject=28", ("leaked", "misused")),
    "no-ack": ("event.addr_resolved", "event.addr_resolved#1: event=ADDR_ERROR", ("hung",)),
    "wait-on-flush": ("wc.recv", "wc.recv#1: status=WR_FLUSH_ERR", ("hung",)),
    "double-free": ("call.create_*", "call.create_qp#1: errno=ENOMEM", ("misused",)),
    "ignored-wc": ("wc.*", "wc.send#2: status=RETRY_EXC_ERR", ("wrong-result",)),
    "null-mr": ("call.reg_mr", "call.reg_mr#1: errno=ENOMEM", ("crashed",)),
    "ignored-post": ("call.post_*", "call.post_send#1: errno=ENOMEM", ("hung",)),
    "used-id": ("event.connect_response", "event.connect_response#1: event=UNREACHABLE",
                ("misused",)),
    "false-success": ("event.route_resolved", "event.route_resolved#1: event=ROUTE_ERROR",
                      ("wrong-result",)),
    "leak-cq": ("call.create_*", "call.create_qp#1: errno=ENOMEM", ("leaked",)),
}
# mistake: (places, a word of each of the two faults, its verdict)
PAIRS = {
    "pair-retry": ("cm.req,call.resolve_addr,call.alloc_pd", ("reject=28", "call."),
                   ("misused", "leaked")),
    "pair-region": ("call.reg_mr,call.alloc_pd,call.create_cq", ("call.reg_mr", "call.reg_mr"),
                    ("crashed",)),
    "pair-cleanup": ("wc.send,call.disconnect", ("wc.", "call.disconnect"), ("hung",)),
}


def check(holds, text):
    if not holds:
        raise Failure(text)


def is_rpings_end(words, said):
    """Returns whether rping ended with its own race in the run without faults (Program.is_rpings_end
    in tests/support)."""
    return ("the test fails without a fault" in said and "exit status 255" in said and
            any("rping" in word for word in words))


def sweep(emulator, name, *words, test=None, status=None, limit=PATIENT):
    """Runs a sweep. Returns its results as of --json. An empty `limit` is the command's own, which
    grows with the duration of the run without faults."""
    patience = [] if "--limit" in words else limit
    for attempt in range(RPING_ATTEMPTS):
        report = os.path.join(emulator.directory, "%s-%d" % (name, attempt))
        result = subprocess.run(
            [emulated.RDMAEMU, "sweep", "--report", report, "--json", "--time-budget", "0", *words,
             *patience, *(["--", *test] if test else [])], env=emulator.env, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=LIMIT_S)
        said = result.stdout + result.stderr
        if not is_rpings_end(words, said):
            break
    check(status is None or result.returncode == status,
          "status %s instead of %s: %s" % (result.returncode, status, said))
    try:
        return json.loads(result.stdout), report
    except ValueError:
        raise Failure("no results: " + said)


def every_moment_is_counted_once():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "posts", "--points", "call.post_*,call.create_*", "--faults",
                           "errno=ENOMEM", "--per-site", "0", test=[PLANTED, "none"], status=0)
        missed = [one["case"] for one in results["cases"] if one["verdict"] == "not-reached"]
        check(results["cases"] and not missed, "moments that do not exist: %s" % missed)


def memory_that_is_gone_and_asynchronous_events_are_faults():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "memory", "--points", "memory.*,event.established", "--faults",
                           "unmapped,async=*", test=[PLANTED, "none"], status=0)
        verdicts = {one["case"]: one["verdict"] for one in results["cases"]}
        for case, expected in (("memory.read#1: unmapped", "failed"),
                               ("memory.write#1: unmapped", "failed"),
                               ("event.established#1: async=QP_FATAL", "survived"),
                               ("event.established#1: async=GID_CHANGE", "survived")):
            check(verdicts.get(case) == expected, "%s: %s" % (case, verdicts.get(case)))


def sites_of(results, place):
    return [site for site in results["site_list"] if site["place"] == place]


def two_lines_that_post_are_two_sites():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "list", "--list", test=[POSTING], status=0)
        check(results["cases"] == [], "cases were run: %s" % results["cases"])
        once, loop = sites_of(results, "call.post_send")
        check((once["moments"], once["chosen"]) == (1, [1]), "%s" % once)
        check((loop["moments"], loop["chosen"]) == (1000, [2, 501, 1001]), "%s" % loop)
        # addr2line may not be installed.
        check(once["stack"][0] != loop["stack"][0] and
              all(re.match(r"post_in_two_lines \(posting.c:\d+\)|posting\+0x", site["stack"][0])
                  for site in (once, loop)), "%s\n%s" % (once, loop))
        run, _ = sweep(emulator, "run", "--points", "call.post_send", "--faults", "errno=ENOMEM",
                       test=[POSTING], status=0)
        check([(case["case"], case["verdict"]) for case in run["cases"]] ==
              [("call.post_send#%d: errno=ENOMEM" % nth, "failed") for nth in (1, 2, 1001, 501)],
              "%s" % run["cases"])
        check([case["code"] for case in run["cases"][:2]] ==
              [["call.post_send#%d: %s" % (nth, site["stack"][0])]
               for nth, site in ((1, once), (2, loop))], "%s" % run["cases"])


def a_forked_child_and_a_second_program_have_their_own_sites():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "fork", "--list", test=[POSTING, "fork"], status=0)
        child = [site for site in sites_of(results, "call.query_port") if
                 any("query_in_child" in frame for frame in site["stack"]) or
                 "posting+0x" in str(site["stack"])]
        check(len(child) == 1 and child[0]["moments"] == 1, "%s" % results["site_list"])
        results, _ = sweep(emulator, "twice", "--list",
                           test=["sh", "-c", '"$0" && "$0"', POSTING], status=0)
        once, loop = sites_of(results, "call.post_send")
        check((once["moments"], once["chosen"]) == (2, [1, 1002]), "%s" % once)
        check((loop["moments"], loop["chosen"]) == (2000, [2, 1001, 2002]), "%s" % loop)


def the_sites_are_listed_for_people():
    with Emulator() as emulator:
        report = os.path.join(emulator.directory, "list")
        said = emulator.rdmaemu("sweep", "--list", "--report", report, "--", POSTING)
        check(said.returncode == 0 and
              "call.post_send: 1000 moments, faults at #2 #501 #1001\n  p" in said.stdout,
              said.stdout + said.stderr)


def findings(results):
    return [case for case in results["cases"] if case["verdict"] in
            ("crashed", "hung", "sanitizer", "wrong-result", "misused", "leaked", "not-run")]


def a_correct_program_has_no_finding():
    with Emulator() as emulator:
        # The examples are swept at three moments of each site.
        results, _ = sweep(emulator, "none", "--per-site", "1", test=[PLANTED, "none"], status=0)
        check(findings(results) == [], "findings: %s" % findings(results))
        check(results["planned"] == len(results["cases"]) > 100, "too few cases")
        check(results["counts"]["survived"] > 20 and results["counts"]["failed"] > 20,
              "the faults do nothing: %s" % results["counts"])


def each_planted_mistake_is_found(name):
    points, case, verdicts = MISTAKES[name]
    with Emulator() as emulator:
        # What hangs takes the whole limit, so it gets the one that fits this machine.
        hangs = "hung" in verdicts
        results, report = sweep(emulator, name, "--points", points,
                               *(["--faults", case.split(": ")[1]] if hangs else []),
                               test=[PLANTED, name], status=1, limit=[] if hangs else PATIENT)
        found = findings(results)
        check([one for one in found if one["case"] == case and one["verdict"] in verdicts],
              "not found: %s" % found)
        others = [one for one in found if one["verdict"] not in verdicts]
        check(not others, "other verdicts: %s" % others)
        one = next(one for one in found if one["case"] == case)
        check(os.path.exists(os.path.join(report, one["report"], "rules.toml")), "no report")


def the_printed_command_shows_a_crash_again():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "again", "--points", "call.reg_mr", "--per-site", "1",
                           test=[PLANTED, "null-mr"], status=1)
        command = findings(results)[0]["command"].split()
        check(command[0] == "rdmaemu", "the command is %s" % command)
        again = emulator.rdmaemu(*command[1:])
        check(again.returncode == 128 + signal.SIGSEGV, "status %s" % again.returncode)
        check("witness" not in again.stderr, "rules without an effect are said to be unfired: " +
              again.stderr)


def the_printed_command_has_the_moments_of_the_sweeps_run():
    """The program asks its host before each post, as in the run that has found the mistake."""
    with Emulator() as emulator:
        results, _ = sweep(emulator, "again", "--case", "wc.send#2: status=RETRY_EXC_ERR",
                           test=[PLANTED, "ignored-wc"], status=1)
        words = findings(results)[0]["command"].split()
        trace = os.path.join(emulator.directory, "again.jsonl")
        at = words.index("--")
        again = emulator.rdmaemu(*words[1:at], "--trace", trace, *words[at:])
        check(again.returncode == 0, again.stdout + again.stderr)
        with open(trace) as file:
            moments = set(re.findall(r'"at":"([^"]*)"', file.read()))
        check({"call.post_send", "call.post_recv", "packet.rc_send_only", "wc.send"} <= moments,
              "%s" % moments)


def two_faults_are_found_and_reduced(name):
    points, words, verdicts = PAIRS[name]
    with Emulator() as emulator:
        alone, _ = sweep(emulator, "alone", "--points", points, test=[PLANTED, name], status=0)
        check(findings(alone) == [], "one fault shows it: %s" % findings(alone))
        results, _ = sweep(emulator, "random", "--random", "--minutes", "10", "--points", points,
                           "--seed", "7", *(["--limit", "6s", "--max-runs", "8"]
                                            if "hung" in verdicts else ["--max-runs", "250"]),
                           "--faults", "reject=28,errno=*,status=*",
                           test=[PLANTED, name], status=1)
        found = findings(results)
        for one in found:
            check(one["case"].count(" + ") == 1, "not two faults: %s" % one["case"])
            check(one["verdict"] in verdicts, "another verdict: %s" % one)
        check(any(all(word in one["case"] for word in words) for one in found),
              "not the planted faults: %s" % [one["case"] for one in found])


def the_same_seed_draws_the_same_cases():
    with Emulator() as emulator:
        drawn = []
        for name, jobs in (("one", "1"), ("again", "1"), ("four", "4")):
            results, _ = sweep(emulator, name, "--random", "--max-runs", "15", "--seed", "3",
                               "--jobs", jobs, test=[PLANTED, "none"], status=0)
            drawn.append([case["case"] for case in results["cases"]])
        check(drawn[0] == drawn[1] == drawn[2] != [], "%s\n%s\n%s" % tuple(drawn))


def random_findings_have_the_same_order_for_any_number_of_jobs():
    with Emulator() as emulator:
        found = []
        for jobs in ("1", "4"):
            results, report = sweep(
                emulator, "jobs" + jobs, "--random", "--max-runs", "40", "--seed", "5", "--points",
                "call.reg_mr,call.alloc_pd,call.create_*", "--faults", "errno=*", "--jobs", jobs,
                test=[PLANTED, "null-mr"], status=1)
            found.append([(case["case"], case["verdict"], case["report"])
                          for case in findings(results)])
            for _, _, name in found[-1]:
                check(os.path.exists(os.path.join(report, name, "rules.toml")), "no report")
        check(found[0] == found[1] and len(found[0]) > 1, "%s\n%s" % tuple(found))


def a_second_run_of_a_finding_does_not_stop_the_others():
    """One job runs the case that hangs twice, for 12 s. The other job runs the others meanwhile."""
    cases = [moment + ": errno=ENOMEM" for moment in
             ("call.post_send#1", "call.alloc_pd#1", "call.alloc_pd#2", "call.create_cq#1")]
    with Emulator() as emulator:
        words = [word for case in cases for word in ("--case", case)]
        results, _ = sweep(emulator, "slow", *words, "--limit", "6s", "--jobs", "2",
                           test=["sh", "-c", "sleep 1.3; exec \"$0\" ignored-post", PLANTED],
                           status=1)
        check([case["case"] for case in results["cases"]] == cases[1:] + cases[:1],
              "the order is %s" % results["cases"])


def shards_together_are_the_whole():
    with Emulator() as emulator:
        words = ["--points", "call.*", "--faults", "errno=ENOMEM"]
        whole, _ = sweep(emulator, "whole", *words, test=[PLANTED, "none"], status=0)
        parts = []
        for shard in ("1/2", "2/2"):
            part, _ = sweep(emulator, "part", *words, "--shard", shard, test=[PLANTED, "none"],
                            status=0)
            parts += [case["case"] for case in part["cases"]]
        check(sorted(parts) == sorted(case["case"] for case in whole["cases"]), "%s" % parts)
        check(len(parts) == len(set(parts)), "a case is in two shards")
        empty, _ = sweep(emulator, "empty", "--points", "call.listen", "--shard", "9/9",
                         test=[PLANTED, "none"], status=0)
        check(empty["cases"] == [], "%s" % empty["cases"])


def the_test_does_not_see_the_shard_of_the_sweep():
    with Emulator() as emulator:
        emulator.env.update(TEST_SHARD_INDEX="0", TEST_TOTAL_SHARDS="2")
        test = "test -z \"$TEST_TOTAL_SHARDS\" && exec \"$0\" none"
        results, _ = sweep(emulator, "shard", "--points", "call.reg_mr", "--per-site", "1",
                           test=["sh", "-c", test, PLANTED], status=0)
        check(0 < len(results["cases"]) < 4, "%s" % results["cases"])


def an_interrupted_sweep_is_resumed():
    with Emulator() as emulator:
        words = ["--points", "event.*"]
        first, report = sweep(emulator, "resumed", *words, "--max-runs", "5",
                              test=[PLANTED, "none"], status=0)
        check(len(first["cases"]) == 5 < first["planned"], "%s" % first["planned"])
        second, _ = sweep(emulator, "resumed", *words, "--resume", test=[PLANTED, "none"], status=0)
        check(len(second["cases"]) == second["planned"] == first["planned"], "%s" % second)
        check(second["cases"][:5] == first["cases"], "cases were run again")
        other = emulator.rdmaemu("sweep", "--report", report, "--resume", "--", PLANTED, "null-mr")
        check(other.returncode == 125 and "another test" in other.stderr, other.stderr)


def a_baseline_accepts_known_findings():
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "known.toml")
        words = ["--points", "call.reg_mr", "--per-site", "1", "--baseline", path]
        with open(path, "w") as file:
            file.write('[[known]]\ncase = "call.reg_mr#*"\nverdict = "crashed"\nreason = "bug 1"\n'
                       '[[known]]\ncase = "call.never#1: drop"\nreason = "bug 2"\n')
        results, _ = sweep(emulator, "known", *words, test=[PLANTED, "null-mr"], status=0)
        check(results["new_findings"] == 0 and results["counts"]["crashed"] > 0, "%s" % results)
        check(results["stale"] == ["call.never#1: drop"], "%s" % results["stale"])
        with open(path, "w") as file:
            file.write('[[known]]\ncase = "call.reg_mr#*"\n')
        wrong = emulator.rdmaemu("sweep", *words, "--", PLANTED)
        check(wrong.returncode == 2 and "reason" in wrong.stderr, wrong.stderr)


def an_entry_of_a_case_that_was_not_run_is_not_out_of_date():
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "known.toml")
        with open(path, "w") as file:
            file.write('[[known]]\ncase = "call.reg_mr#*"\nreason = "bug 1"\n')
        results, _ = sweep(emulator, "shard", "--points", "call.alloc_pd", "--max-runs", "1",
                           "--baseline", path, test=[PLANTED, "none"], status=0)
        check(results["stale"] == [], "%s" % results["stale"])
        wrong = emulator.rdmaemu("sweep", "--baseline", emulator.directory, "--", PLANTED)
        check(wrong.returncode == 2 and "is a directory" in wrong.stderr, wrong.stderr)


def runs_of(mark):
    """Returns the ids of the processes that have this text in their command lines."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if mark.encode() in words:
            found.append(int(name))
    return found


def processes_that_a_test_leaves_are_found_and_ended():
    words = ["--points", "call.alloc_pd", "--max-runs", "1"]
    mark = "61.%d" % os.getpid()
    with Emulator() as emulator:
        results, _ = sweep(emulator, "left", *words, status=1, test=[
            "sh", "-c", "\"$0\" none || { setsid sleep %s & exit 3; }" % mark, PLANTED])
        check([case["verdict"] for case in results["cases"]] == ["leaked"], "%s" % results["cases"])
        check("1 processes" in results["cases"][0]["reason"], "%s" % results["cases"])
        check(runs_of(mark) == [], "left: %s" % runs_of(mark))
        # A test that always leaves a process is judged by the rest.
        results, _ = sweep(emulator, "always", *words, status=0, test=[
            "sh", "-c", "setsid sleep %s & exec \"$0\" none" % mark, PLANTED])
        check([case["verdict"] for case in results["cases"]] == ["failed"], "%s" % results["cases"])
        check(runs_of(mark) == [], "left: %s" % runs_of(mark))


def a_test_may_signal_its_process_group():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "group", "--points", "call.alloc_pd", "--max-runs", "1",
                           test=["sh", "-c", "trap '' TERM; \"$0\" none; s=$?; kill 0; exit $s",
                                 PLANTED], status=0)
        check([case["verdict"] for case in results["cases"]] == ["failed"], "%s" % results["cases"])


def a_status_of_the_shell_is_the_tests():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "shell", "--points", "call.alloc_pd", "--max-runs", "1",
                           test=["sh", "-c", "\"$0\" none || no-such-command", PLANTED], status=0)
        check([case["verdict"] for case in results["cases"]] == ["failed"], "%s" % results["cases"])


def two_sweeps_need_two_reports():
    with Emulator() as emulator:
        report = os.path.join(emulator.directory, "both")
        os.mkdir(report)
        with open(os.path.join(report, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            second = emulator.rdmaemu("sweep", "--report", report, "--", PLANTED)
            check(second.returncode == 125 and "another sweep" in second.stderr, second.stderr)


def a_failing_test_is_not_swept():
    with Emulator() as emulator:
        report = os.path.join(emulator.directory, "fails")
        result = emulator.rdmaemu("sweep", "--report", report, "--", "sh", "-c", "echo why; exit 4")
        check(result.returncode == 125, "status %s" % result.returncode)
        for word in ("fails without a fault", "exit status 4", "why", "--expect"):
            check(word in result.stderr, "%r is not in %s" % (word, result.stderr))
        result = emulator.rdmaemu("sweep", "--report", report, "--", "true")
        check(result.returncode == 125 and "nothing to sweep" in result.stderr, result.stderr)
        result = emulator.rdmaemu("sweep", "--report", report, "--random", "--points", "call.regmr",
                                  "--", PLANTED)
        check(result.returncode == 125 and "nothing to sweep" in result.stderr, result.stderr)
        result = emulator.rdmaemu("sweep", "--report", report, "--", "sh", "-c",
                                  "echo 'x.c:1: runtime error: y'; exec " + PLANTED)
        check(result.returncode == 125 and "runtime error" in result.stderr, result.stderr)


def a_server_and_its_client():
    emulated.need("rping")
    with Emulator() as emulator:
        results, _ = sweep(emulator, "pair", *RPING_EVENTS)
        check(len(results["cases"]) == 3, "%s" % results["cases"])
        check(all(case["verdict"] != "not-run" for case in results["cases"]), "%s" % results)
        case = results["cases"][0]["case"]
        one, _ = sweep(emulator, "one", "--case", case, *RPING_PAIR)
        check([each["case"] for each in one["cases"]] == [case], "%s" % one["cases"])


def pair_of(*mistake):
    line = "%s %%s 127.0.0.1 7471 %%s" % PLANTED_PAIR
    return ["--server", line % ("server", ""), "--client", line % ("client", " ".join(mistake))]


def a_correct_pair_survives_the_crash_of_its_peer():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "crash", "--faults", "peer crash", *pair_of(), status=0)
        check(len(results["cases"]) > 5, "too few cases: %s" % results["cases"])
        verdicts = {one["case"]: one["verdict"] for one in results["cases"]}
        # A receive that is posted before the connection exists has no peer yet.
        missed = [case for case, verdict in verdicts.items() if verdict == "not-reached"]
        check("failed" in verdicts.values() and missed in ([], ["call.post_recv#1: peer crash"]),
              "%s" % verdicts)


def a_client_that_hangs_when_its_server_crashes_is_found():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "hangs", "--points", "call.post_send", "--faults",
                           "peer crash", "--limit", "8s", *pair_of("hang-on-crash"), status=1)
        verdicts = {one["case"]: one["verdict"] for one in results["cases"]}
        check(verdicts.get("call.post_send#1: peer crash") == "hung", "%s" % verdicts)


def a_test_of_one_program_gets_no_peer_crash():
    with Emulator() as emulator:
        report = os.path.join(emulator.directory, "alone")
        result = emulator.rdmaemu("sweep", "--report", report, "--faults", "peer crash", "--",
                                  PLANTED, "none")
        check(result.returncode == 125 and "nothing to sweep" in result.stderr, result.stderr)


def the_printed_command_of_a_pair_keeps_the_results():
    emulated.need("ucmatose")
    with Emulator() as emulator:
        results, report = sweep(
            emulator, "pair", "--case", "call.reg_mr#1: errno=ENOMEM", "--seed", "5", "--server",
            "ucmatose -b 127.0.0.1", "--client", "ucmatose -s 127.0.0.1", status=1)
        with open(os.path.join(report, "results.jsonl")) as file:
            before = file.read()
        words = shlex.split(results["cases"][0]["command"])
        again = emulator.rdmaemu(*words[1:])
        check(again.returncode == 1 and "crashed" in again.stdout, again.stdout + again.stderr)
        check(words[words.index("--seed") + 1] == "5", "%s" % words)
        with open(os.path.join(report, "results.jsonl")) as file:
            check(file.read() == before, "the results were replaced")


def a_crash_of_docs_found(program):
    emulated.need(program)
    with Emulator() as emulator:
        results, _ = sweep(emulator, program, "--case", "call.reg_mr#1: errno=ENOMEM", "--server",
                           program + " -b 127.0.0.1", "--client", program + " -s 127.0.0.1")
        check([case["verdict"] for case in results["cases"]] == ["crashed"],
              "it does not crash, mend docs/found.md: %s" % results["cases"])


def the_pages_have_every_case():
    with Emulator() as emulator:
        junit = os.path.join(emulator.directory, "junit.xml")
        results, report = sweep(emulator, "pages", "--points", "call.create_qp", "--junit", junit,
                                test=[PLANTED, "leak-cq"], status=1)
        with open(junit) as file:
            text = file.read()
        check(text.count("<testcase ") == len(results["cases"]), text)
        check(text.count("<failure ") == len(findings(results)), text)
        with open(os.path.join(report, "index.html")) as file:
            page = file.read()
        check(len(re.findall(r'href="#case\d+"', page)) == len(results["cases"]), page)
        check("http" not in page, "the page refers to another site")


def mistakes_in_the_command_are_explained():
    with Emulator() as emulator:
        for words, said in (
                (["--server", "x", "--", "true"], "--server and --client"),
                (["--server", "x", "--client", "y", "--", "true"], "either a test"),
                ([], "either a test"),
                (["--case", "call.reg_mr", "--", "true"], "PLACE#N: FAULT"),
                (["--shard", "3/2", "--", "true"], "I/N"),
                (["--accept", "survived", "--", "true"], "no verdict"),
                (["--timeout", "soon", "--", "true"], "not a duration"),
                (["--minutes", "nan", "--random", "--", "true"], "above 0"),
                (["--minutes", "1e9", "--random", "--", "true"], "at most"),
                (["--time-budget", "fast", "--", "true"], "not a duration")):
            result = emulator.rdmaemu("sweep", *words)
            check(result.returncode == 2 and said in result.stderr,
                  "%s: %s %s" % (words, result.returncode, result.stderr))


def an_interrupt_ends_the_programs_and_keeps_the_results():
    with Emulator() as emulator:
        report = os.path.join(emulator.directory, "interrupted")
        begun = os.path.join(emulator.directory, "begun")
        os.mkfifo(begun)
        fifo = os.open(begun, os.O_RDWR)
        test = "echo >%s; exec %s ignored-post" % (begun, PLANTED)
        process = subprocess.Popen(
            [emulated.RDMAEMU, "sweep", "--report", report, "--points", "call.post_send", "--limit",
             "60s", "--", "sh", "-c", test], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=emulator.env)
        # Two runs without a fault, and the first one with a fault, which hangs.
        runs = b""
        while len(runs) < 3 and select.select([fifo], [], [], 30)[0]:
            runs += os.read(fifo, 3 - len(runs))
        os.close(fifo)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[0]
        check(len(runs) == 3, "%d runs: %s" % (len(runs), said))
        check(process.returncode == 130, "status %s: %s" % (process.returncode, said))
        check(os.path.exists(os.path.join(report, "index.html")), said)


def main():
    cases = [(each.__name__, each) for each in (
        a_correct_program_has_no_finding, every_moment_is_counted_once,
        two_lines_that_post_are_two_sites,
        a_forked_child_and_a_second_program_have_their_own_sites, the_sites_are_listed_for_people,
        memory_that_is_gone_and_asynchronous_events_are_faults,
        the_printed_command_shows_a_crash_again,
        the_printed_command_has_the_moments_of_the_sweeps_run,
        the_same_seed_draws_the_same_cases,
        random_findings_have_the_same_order_for_any_number_of_jobs,
        a_second_run_of_a_finding_does_not_stop_the_others, shards_together_are_the_whole,
        the_test_does_not_see_the_shard_of_the_sweep,
        the_printed_command_of_a_pair_keeps_the_results,
        an_interrupted_sweep_is_resumed, a_baseline_accepts_known_findings,
        a_failing_test_is_not_swept, a_server_and_its_client,
        a_correct_pair_survives_the_crash_of_its_peer,
        a_client_that_hangs_when_its_server_crashes_is_found,
        a_test_of_one_program_gets_no_peer_crash, the_pages_have_every_case,
        an_entry_of_a_case_that_was_not_run_is_not_out_of_date,
        processes_that_a_test_leaves_are_found_and_ended, a_test_may_signal_its_process_group,
        a_status_of_the_shell_is_the_tests, two_sweeps_need_two_reports,
        mistakes_in_the_command_are_explained,
        an_interrupt_ends_the_programs_and_keeps_the_results)]
    cases += [("found_in_" + name, lambda name=name: a_crash_of_docs_found(name))
              for name in ("ucmatose", "udaddy")]
    cases += [("finds_" + name, lambda name=name: each_planted_mistake_is_found(name))
              for name in MISTAKES]
    cases += [("finds_" + name, lambda name=name: two_faults_are_found_and_reduced(name))
              for name in PAIRS]
    return emulated.run_cases("sweep", cases, at_once=2)


if __name__ == "__main__":
    sys.exit(main())
