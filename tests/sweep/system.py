"""Tests `rdmaemu sweep --backend system` with planted.c. An emulated host plays the machine: its
libraries are RDMAEMU_SYSTEM_LIBRARIES, and each sweep runs as a program on it."""

import json
import os
import shlex
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, HERE)
import emulated  # noqa: E402
import sweep as on_emulator  # noqa: E402
from emulated import RDMAEMU, Emulator  # noqa: E402
from sweep import PATIENT, PLANTED, RPING_EVENTS, check, findings  # noqa: E402

LIBRARIES = ":".join(os.path.abspath(path) for path in ("shim/verbs", "shim/rdmacm"))
LIMIT_S = 200  # of one sweep, on a busy machine

# As MISTAKES of sweep.py, where only CM messages show the mistake there.
MISTAKES = dict(on_emulator.MISTAKES)
MISTAKES["leak-on-reject"] = ("event.connect_response", "event.connect_response#1: event=REJECTED",
                              ("leaked", "misused"))


def on_machine(emulator, *command):
    """Runs a command on a machine of its own."""
    return subprocess.run(
        [RDMAEMU, "run", "--private", "--host", "machine", "--", *command],
        env=dict(emulator.env, RDMAEMU_SYSTEM_LIBRARIES=LIBRARIES), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S)


def sweep(emulator, name, *words, test=None, status=None, limit=PATIENT):
    """Runs a sweep on the machine's devices. Returns its results as of --json, and its report."""
    report = os.path.join(emulator.directory, name)
    patience = [] if "--limit" in words else limit
    result = on_machine(emulator, RDMAEMU, "sweep", "--backend", "system", "--report", report,
                        "--json", "--time-budget", "0", *words, *patience,
                        *(["--", *test] if test else []))
    said = result.stdout + result.stderr
    check(status is None or result.returncode == status,
          "status %s instead of %s: %s" % (result.returncode, status, said))
    try:
        return json.loads(result.stdout), report
    except ValueError:
        raise emulated.Failure("no results: " + said)


def the_test_may_see_one_device_alone():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "one", "--device", "rxe0", "--points", "call.reg_mr",
                           test=[PLANTED, "none"], status=0)
        check(findings(results) == [] and results["cases"], "%s" % results)


def a_correct_program_has_no_finding():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "none", test=[PLANTED, "none"], status=0)
        check(findings(results) == [], "findings: %s" % findings(results))
        cases = results["cases"]
        check(results["planned"] == len(cases) > 50, "only %d cases" % len(cases))
        check(results["counts"]["survived"] > 10 and results["counts"]["failed"] > 20,
              "the faults do nothing: %s" % results["counts"])
        missed = [one["case"] for one in cases if one["verdict"] == "not-reached"]
        check(not missed, "moments that do not exist: %s" % missed)
        for door in ("call.", "call.post_send#", "event.", "wc.", "memory."):
            check(any(one["case"].startswith(door) for one in cases), "no case at " + door)


def omitted_cases_are_named():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "omitted", "--points", "call.post_send,event.established",
                           test=[PLANTED, "none"], status=0)
        omitted = results["omitted"]
        check(int(omitted.split()[0]) > 20, omitted)
        for word in ("need the emulator", "port down", "device removed", "async=QP_FATAL"):
            check(word in omitted, "%r is not in %s" % (word, omitted))
        check("CM messages" not in omitted, "CM messages were not asked for: " + omitted)
        check(not any("removed" in one["case"] for one in results["cases"]), "%s" % results["cases"])
        nothing = on_machine(emulator, RDMAEMU, "sweep", "--backend", "system", "--points", "cm.*",
                             "--report", os.path.join(emulator.directory, "nothing"), "--", PLANTED)
        check(nothing.returncode == 125 and "CM messages and packets" in nothing.stderr,
              nothing.stderr)


def each_planted_mistake_is_found(name):
    points, case, verdicts = MISTAKES[name]
    hangs = "hung" in verdicts
    with Emulator() as emulator:
        results, report = sweep(emulator, name, "--points", points,
                                *(["--faults", case.split(": ")[1]] if hangs else []),
                                test=[PLANTED, name], status=1, limit=[] if hangs else PATIENT)
        found = findings(results)
        check([one for one in found if one["case"] == case and one["verdict"] in verdicts],
              "not found: %s" % found)
        others = [one for one in found if one["verdict"] not in verdicts]
        check(not others, "other verdicts: %s" % others)
        one = next(one for one in found if one["case"] == case)
        for file in ("rules.toml", "output.txt", "program.jsonl"):
            check(os.path.exists(os.path.join(report, one["report"], file)), "no " + file)


def the_printed_command_shows_a_crash_again():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "again", "--points", "call.reg_mr", "--per-site", "1",
                           test=[PLANTED, "null-mr"], status=1)
        words = shlex.split(findings(results)[0]["command"])
        check("--backend" in words and "--private" not in words, "the command is %s" % words)
        again = on_machine(emulator, RDMAEMU, *words[1:])
        check(again.returncode == 128 + signal.SIGSEGV, "status %s: %s" %
              (again.returncode, again.stderr))


def two_faults_are_found_and_reduced():
    with Emulator() as emulator:
        results, _ = sweep(emulator, "random", "--random", "--max-runs", "60", "--points",
                           "call.reg_mr,call.alloc_pd,call.create_cq", "--seed", "7",
                           test=[PLANTED, "pair-region"], status=1)
        found = findings(results)
        check(found and all(one["case"].count("call.reg_mr#") == 2 for one in found), "%s" % found)


def a_server_and_its_client():
    emulated.need("rping")
    with Emulator() as emulator:
        results, report = sweep(emulator, "pair", *RPING_EVENTS)
        check(len(results["cases"]) == 3, "%s" % results["cases"])
        check(all(case["verdict"] not in ("not-run", "not-reached") for case in results["cases"]),
              "%s" % results)
        for one in findings(results):
            for program in ("server", "client"):
                check(os.path.exists(os.path.join(report, one["report"], program + ".jsonl")),
                      "no trace of the %s: %s" % (program, one))


def mistakes_in_the_command_are_explained():
    with Emulator() as emulator:
        for words, said in (
                (["--case", "cm.req#1: drop"], "has no cm.req; use a rule at event"),
                (["--case", "call.reg_mr#1: device removed"], "rdma link delete"),
                (["--address", "127.0.0.2"], "--address needs the emulator"),
                (["--profile", "siw"], "--profile needs the emulator"),
                (["--program-time"], "--program-time needs the emulator"),
                (["--device", "a", "--device", "b"], "one --device NAME")):
            result = emulator.rdmaemu("sweep", "--backend", "system", *words, "--", "true")
            check(result.returncode == 2 and said in result.stderr,
                  "%s: %s %s" % (words, result.returncode, result.stderr))


def main():
    cases = [(each.__name__, each) for each in (
        a_correct_program_has_no_finding, the_test_may_see_one_device_alone, omitted_cases_are_named,
        the_printed_command_shows_a_crash_again, two_faults_are_found_and_reduced,
        a_server_and_its_client, mistakes_in_the_command_are_explained)]
    cases += [("finds_" + name, lambda name=name: each_planted_mistake_is_found(name))
              for name in MISTAKES]
    return emulated.run_cases("sweep.system", cases, at_once=2)


if __name__ == "__main__":
    sys.exit(main())
