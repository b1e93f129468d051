"""Tests the runner of the contract tests with test programs that hang, crash and take their machine
down. The runner names each such test and loses no other result."""

import argparse
import json
import os
import stat
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "contract"))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import contract  # noqa: E402
import emulated  # noqa: E402
import harness  # noqa: E402
import kernel_record  # noqa: E402
import real_peer  # noqa: E402
from differences import Table  # noqa: E402
from emulated import Failure  # noqa: E402
from machine import CRASHED_STATUS  # noqa: E402

# Prints gtest's output. A test's name is its action.
PROGRAM = """#!/usr/bin/env python3
import os, signal, sys
TESTS = %r
if "--gtest_list_tests" in sys.argv:
    print("Suite.")
    for test in TESTS:
        print("  " + test)
    sys.exit(0)
wanted = [one for one in sys.argv if one.startswith("--gtest_filter=")][0].split("=", 1)[1].split(":")
status = 0
for test in TESTS:
    name = "Suite." + test
    if name not in wanted and "*" not in wanted:
        continue
    print("[ RUN      ] " + name, flush=True)
    if test == "Hangs":
        signal.pause()
    if test == "Crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    if test == "Fails":
        print("file.cc:1: Failure", flush=True)
        status = 1
    if test == "Sees":
        print('@event {"event": "RDMA_CM_EVENT_REJECTED", "status": 28, "private_data_len": 148}', flush=True)
    print("[  %%s ] %%s (0 ms)" %% ("FAILED" if test == "Fails" else "     OK", name), flush=True)
sys.exit(status)
"""


def program(directory, tests, name="fake_test_binary"):
    path = os.path.join(directory, name)
    with open(path, "w") as text:
        text.write(PROGRAM % (tests,))
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
    return path


def expect(found, wanted):
    if found != wanted:
        raise Failure("wanted %s, got %s" % (wanted, found))


def results_of(tests, limit_s=60):
    with tempfile.TemporaryDirectory() as directory:
        binary = program(directory, tests)
        names = harness.list_tests(binary, dict(os.environ))
        return {one.name.removeprefix("Suite."): one
                for one in harness.run_tests(binary, names, dict(os.environ), limit_s)}


def kinds_of(results):
    return {name: one.kind for name, one in results.items()}


def failures_are_told_with_what_was_printed():
    results = results_of(["Passes", "Fails"])
    expect(kinds_of(results), {"Passes": "passed", "Fails": "failed"})
    expect("file.cc:1" in results["Fails"].text, True)


def a_crash_costs_its_own_test_alone():
    results = results_of(["Passes", "Crashes", "PassesToo"])
    expect(kinds_of(results), {"Passes": "passed", "Crashes": "failed", "PassesToo": "passed"})
    expect("status -11" in results["Crashes"].text, True)


def a_hang_costs_its_own_test_alone():
    results = results_of(["Passes", "Hangs", "PassesToo"], limit_s=3)
    expect(kinds_of(results), {"Passes": "passed", "Hangs": "failed", "PassesToo": "passed"})


def events_belong_to_their_test():
    results = results_of(["Sees", "Passes"])
    expect([one["status"] for one in results["Sees"].events], [28])
    expect(results["Passes"].events, [])


ROW = """[[difference]]
file = "fake_test"
test = "Suite.%s"
on = ["rxe"]
how = "fails"
what = "it is so there"
reason = "defect"
"""


def table_of(*tests):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as text:
        text.write("\n".join(ROW % test for test in tests))
        text.flush()
        return Table(text.name)


def the_table_expects_failures_and_nothing_else():
    table = table_of("Fails", "Passes", "Gone")
    judge = lambda backend, name, kind: table.judge(
        backend, "fake_test", harness.Result("Suite." + name, kind))[0]
    expect(judge("rxe", "Fails", "failed"), "differs")
    expect(judge("rxe", "Passes", "passed"), "failed")
    expect(judge("rxe", "Passes", "skipped"), "failed")
    expect(judge("rxe", "Other", "failed"), "failed")
    expect(judge("emulator", "Fails", "failed"), "failed")
    expect([row.test for row in table.unused("rxe", "fake_test")], ["Suite.Gone"])


class FallingMachine:
    """A machine that crashes with the test TakesItDown, after all others began."""

    started = []

    def __init__(self, directory, number, plan, siw):
        del directory, number, siw
        self.tests = [(job["backend"], job["file"], test) for job in plan["jobs"]
                      for test in job["tests"]]
        self.started.append(len(self.tests))

    def wait(self, silence_limit_s):
        del silence_limit_s
        return CRASHED_STATUS if self.falls() else 0

    def falls(self):
        return any("TakesItDown" in test for _, _, test in self.tests)

    def said(self):
        return "Kernel panic"

    def lines(self):
        falls = self.falls()
        lines = []
        for backend, file, test in self.tests:
            lines.append({"begun": test, "backend": backend, "file": file})
            # Tests that run beside the crashing one do not end either.
            if falls and ("TakesItDown" in test or "Beside" in test):
                continue
            lines.append({"ended": test, "backend": backend, "file": file, "kind": "passed",
                          "text": "", "seconds": 0, "events": []})
        return lines


def who_takes_the_machine_down_is_told_by_name():
    with tempfile.TemporaryDirectory() as directory:
        program(directory, ["Passes", "Beside", "TakesItDown"])
        with open(os.path.join(directory, "manifest.json"), "w") as text:
            json.dump({"binaries": {"fake_test_binary": ["rxe"]}}, text)
        contract.Machine, FallingMachine.started = FallingMachine, []
        suite = contract.Suite(argparse.Namespace(on=["rxe"], filter="*", layer=None), directory)
        suite.run()
        expect({case.name: case.result.kind for case in suite.cases.values()},
               {"Suite.Passes": "passed", "Suite.Beside": "passed", "Suite.TakesItDown": "failed"})
        expect(FallingMachine.started, [3, 1, 1])
        expect("Kernel panic" in suite.cases["rxe", "fake_test", "Suite.TakesItDown"].result.text, True)


class BusyMachine:
    """A machine in which Fails fails, and Unsteady fails when another test runs beside it."""

    beside = []

    def __init__(self, directory, number, plan, siw):
        del directory, number, siw
        self.plan = plan
        self.beside.append(plan["beside"])

    def wait(self, silence_limit_s):
        del silence_limit_s
        return 0

    def lines(self):
        for job in self.plan["jobs"]:
            for test in job["tests"]:
                fails = "Fails" in test or ("Unsteady" in test and self.plan["beside"] > 1)
                yield {"ended": test, "backend": job["backend"], "file": job["file"],
                       "kind": "failed" if fails else "passed", "text": "", "seconds": 0,
                       "events": []}


def what_fails_beside_others_alone_is_told_and_is_no_failure():
    with tempfile.TemporaryDirectory() as directory:
        program(directory, ["Passes", "Unsteady", "Fails"])
        with open(os.path.join(directory, "manifest.json"), "w") as text:
            json.dump({"binaries": {"fake_test_binary": ["rxe"]}}, text)
        contract.Machine, BusyMachine.beside = BusyMachine, []
        suite = contract.Suite(argparse.Namespace(on=["rxe"], filter="Suite.*", layer=None), directory)
        suite.run()
        suite.confirm()
        expect({name: kind for name, kind, _, _ in suite.judge()["rxe"]},
               {"fake_test.Suite.Passes": "passed", "fake_test.Suite.Unsteady": "unsteady",
                "fake_test.Suite.Fails": "failed"})
        expect(BusyMachine.beside, [contract.BESIDE_EACH_OTHER, 1])


class PeerMachine:
    """A machine of real_peer.py with the cases a, b and c. The test says what the next machines do:
    the name of the case with which each crashes, or None."""

    crashes = []
    ran = []

    def __init__(self, directory, results_path, program, *, limit_s, environment):
        del directory, results_path, limit_s, environment
        with open(program[1]) as text:
            without = json.load(text)["without"]
        self.cases = [name for name in "abc" if name not in without]
        self.crash = self.crashes.pop(0)
        self.ran.append("".join(self.cases))

    def wait(self):
        return CRASHED_STATUS if self.crash else 0

    def said(self):
        return "Kernel panic"

    def lines(self):
        for name in self.cases:
            if self.crash == "boot":
                return
            yield {"begun": name}
            if self.crash == name:
                return
            yield {"ended": name, "kind": "passed", "text": "", "seconds": 0}


def kinds_of_peers(*crashes):
    PeerMachine.crashes, PeerMachine.ran = list(crashes), []
    rows = real_peer.run_cases([], PeerMachine)
    if any(kind != "passed" and "Kernel panic" not in text for name, kind, text, _ in rows
           if name != real_peer.NO_CASE):
        raise Failure("a crash without the machine's console: %s" % rows)
    return {name: kind for name, kind, _, _ in rows}


def cases_go_on_in_a_new_machine_after_a_crash():
    passed = {"a": "passed", "b": "passed", "c": "passed"}
    expect(kinds_of_peers(None), passed)
    expect(kinds_of_peers("b", None), dict(passed, b="unsteady"))
    expect(PeerMachine.ran, ["abc", "bc"])
    expect(kinds_of_peers("b", "b", None), dict(passed, b="failed"))
    expect(PeerMachine.ran, ["abc", "bc", "c"])
    expect(kinds_of_peers("boot", None), dict(passed, machine="unsteady"))


def cases_that_no_machine_got_to_fail_the_run():
    kinds = kinds_of_peers("a", "boot", "boot", "boot")
    expect(set(kinds.values()), {"failed"})
    expect(kinds[real_peer.NO_CASE], "failed")


def a_file_that_has_passed_runs_again_when_its_sources_change():
    with tempfile.TemporaryDirectory() as directory:
        files = (*kernel_record.SHARED, "tests/contract/fake_test.cc",
                 "tests/contract/events/rxe.json")
        for name in files:
            os.makedirs(os.path.join(directory, os.path.dirname(name)), exist_ok=True)
            with open(os.path.join(directory, name), "w") as text:
                text.write("before")
        with open(os.path.join(directory, kernel_record.PATH), "w") as text:
            text.write("{}")
        program(directory, ["Passes"])
        with open(os.path.join(directory, "manifest.json"), "w") as text:
            json.dump({"binaries": {"fake_test_binary": ["rxe"]}}, text)
        record = lambda machine="6.1": kernel_record.KernelRecord([machine], directory)
        suite = lambda known: contract.Suite(
            argparse.Namespace(on=["rxe"], filter="*", layer=None), directory, known)
        runs = lambda known: len(suite(known).cases) == 1 and not suite(known).recorded
        expect(runs(record()), True)
        judged = lambda kind: {"rxe": [("fake_test.Suite.Passes", kind, "", 0)]}
        suite(None).write_down(record(), judged("failed"))
        expect(runs(record()), True)
        suite(None).write_down(record(), judged("passed"))
        expect(runs(record()), False)
        suite(record()).write_down(record(), judged("skipped"))
        expect(runs(record()), False)
        expect(runs(record("6.2")), True)
        for name in files:
            path = os.path.join(directory, name)
            for content, changed in (("after", True), ("before", False)):
                with open(path, "w") as text:
                    text.write(content)
                expect((name, runs(record())), (name, changed))


CASES = (failures_are_told_with_what_was_printed, a_crash_costs_its_own_test_alone,
         a_hang_costs_its_own_test_alone, events_belong_to_their_test,
         the_table_expects_failures_and_nothing_else, who_takes_the_machine_down_is_told_by_name,
         what_fails_beside_others_alone_is_told_and_is_no_failure,
         cases_go_on_in_a_new_machine_after_a_crash, cases_that_no_machine_got_to_fail_the_run,
         a_file_that_has_passed_runs_again_when_its_sources_change)

if __name__ == "__main__":
    sys.exit(emulated.run_cases("softroce.runner", [(one.__name__, one) for one in CASES]))
