"""Runs inside the virtual machine of tools/softroce: the contract tests on the kernel's own
drivers. contract.py gives it the plan, and reads the beginning and end of each test from a file.

usage: contract_in_machine.py PLAN RESULTS; PLAN is JSON, see contract.py
"""

import concurrent.futures
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "contract"))
import harness  # noqa: E402
from differences import HANG_LIMIT_S  # noqa: E402
from machine import Results  # noqa: E402

# The place of each driver's device: tools/softroce.d/rdma-setup.
ENVIRONMENT = {
    "rxe": {"RDMA_TEST_DEVICE": "rxe0", "RDMA_TEST_LOCAL": "10.66.0.1",
            "RDMA_TEST_SILENT": "10.66.0.99", "RDMA_TEST_UNRESOLVED": "10.66.0.77",
            "RDMA_TEST_WITHOUT_RDMA": "10.66.0.2"},
    "siw": {"RDMA_TEST_DEVICE": "siw0", "RDMA_TEST_LOCAL": "10.88.0.1",
            "RDMA_TEST_SILENT": "10.88.0.99"},
}
BESIDE_EACH_OTHER = 4  # programs on the machine's two emulated processors; they mostly wait
MOST_SLOW = 64  # programs that only wait for the kernel's time-outs
LIMIT_S = 90
SLOW_LIMIT_S = 240
STUCK_STATUS = 3  # a program blocks in the kernel: the remaining tests need a new machine


def trace_name(file, test):
    """Returns the name of a test's trace. Names of parameterized tests have slashes."""
    return "%s.%s.jsonl" % (file, test.replace("/", "_"))


class Job:
    """Tests of one binary on one driver, in consecutive processes."""

    def __init__(self, plan, limit_s):
        self.backend, self.file, self.binary = plan["backend"], plan["file"], plan["binary"]
        self.tests, self.limit_s = plan["tests"], limit_s
        self.layer, self.traces = plan.get("layer"), plan.get("traces")

    def run(self, results):
        def begun(name):
            results.tell(begun=name, backend=self.backend, file=self.file)

        def ended(result):
            counts[result.kind] = counts.get(result.kind, 0) + 1
            results.tell(ended=result.name, backend=self.backend, file=self.file, kind=result.kind,
                         text=result.text, seconds=result.seconds, events=result.events)
        counts = {}
        env = dict(os.environ, RDMA_TEST_RECORD="1", RDMA_TEST_BACKEND=self.backend,
                   **ENVIRONMENT[self.backend])
        with tempfile.TemporaryDirectory() as scratch:
            self.run_with(self.prefix(scratch), env, begun, ended, counts)

    def prefix(self, scratch):
        """Returns the beginning of the program's command line."""
        if not self.layer:
            return []
        path = os.path.join(scratch, "trace.jsonl")
        if self.traces:
            os.makedirs(self.traces, exist_ok=True)
            path = os.path.join(self.traces, trace_name(self.file, self.tests[0]))
        return [self.layer, "run", "--backend", "system", "--program-trace", path, "--"]

    def run_with(self, prefix, env, begun, ended, counts):
        try:
            harness.run_tests(self.binary, self.tests, env, self.limit_s, begun, ended,
                              prefix=prefix)
        finally:
            if not self.traces:
                print("%s %s: %s" % (self.backend, self.file, ", ".join(
                    "%d %s" % (counts[kind], kind) for kind in sorted(counts)) or "nothing"))
                sys.stdout.flush()


def jobs_of(plan):
    """Returns the jobs in their order: (waiting ones, common ones, those that run alone)."""
    waiting, common, alone = [], [], []
    for one in plan:
        hanging = [test for test in one["tests"] if test in one["hanging"]]
        rest = [test for test in one["tests"] if test not in hanging]
        single = lambda tests, limit_s: [Job(dict(one, tests=[test]), limit_s) for test in tests]
        if one["alone"]:
            if one.get("traces"):
                alone += single(rest, LIMIT_S)
            elif rest:
                alone.append(Job(dict(one, tests=rest), LIMIT_S))
            alone += single(hanging, HANG_LIMIT_S)
            continue
        waiting += single(hanging, HANG_LIMIT_S)
        if one.get("traces"):
            common += single(rest, SLOW_LIMIT_S if one["slow"] else LIMIT_S)
        elif one["slow"]:
            waiting += single(rest, SLOW_LIMIT_S)
        elif rest:
            common.append(Job(dict(one, tests=rest), LIMIT_S))
    return waiting, common, alone


def main():
    with open(sys.argv[1]) as text:
        plan = json.load(text)
    results = Results(sys.argv[2])
    with open("/proc/sys/kernel/panic_on_oops", "w") as switch:
        switch.write("1")  # reports a kernel oops at once instead of by later failures
    waiting, common, alone = jobs_of(plan["jobs"])
    stuck = []

    def run(job):
        try:
            job.run(results)
        except harness.Stuck as error:
            stuck.append(str(error))

    with concurrent.futures.ThreadPoolExecutor(MOST_SLOW) as slow, \
            concurrent.futures.ThreadPoolExecutor(plan["beside"]) as pool:
        for job in waiting:
            slow.submit(run, job)
        for job in common:
            pool.submit(run, job)
    for job in alone:
        if not stuck:
            run(job)
    for text in stuck:
        print(text)
    return STUCK_STATUS if stuck else 0


if __name__ == "__main__":
    sys.exit(main())
