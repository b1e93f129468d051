"""The emulator and the kernel's rdma_rxe as peers on one link. Boots the virtual machine, in which
in_machine.py runs every case, and collects the results.

A kernel with rdma_rxe can crash. The remaining cases then run in a new machine, and so does the case
that ran: it fails if its second machine crashes, too.

usage: real_peer.py [CASE...]
"""

import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
from machine import CRASHED_STATUS, Machine  # noqa: E402

SUITE = "softroce.real_peer"
LIMIT_S = int(os.environ.get("TEST_TIMEOUT", "3600")) - 60  # before Bazel ends us without a word
MACHINES = 4  # gives up the rest after this many machines
NO_CASE = "machine"  # the name of a crash while no case runs


class Run:
    """The results of all machines, by name of the case."""

    def __init__(self):
        self.ended = {}  # name: (kind, text, seconds)
        self.crashes = {}  # name: what the crashed machines said
        self.complete = False

    def take(self, status, machine):
        """Takes the results of a machine that has ended."""
        under_way = NO_CASE
        for line in machine.lines():
            under_way = line.get("begun", NO_CASE)
            if "ended" in line:
                self.ended[line["ended"]] = line["kind"], line["text"], line["seconds"]
        if status == CRASHED_STATUS:
            self.crashes.setdefault(under_way, []).append(machine.said())
            return
        self.complete = True
        if under_way != NO_CASE or not self.ended:
            self.ended[under_way] = ("failed", "the machine ended with status %d\n%s" %
                                     (status, machine.said()), 0)

    def left_out(self):
        """Returns the cases that the next machine does not run."""
        return [*self.ended, *(name for name, said in self.crashes.items() if len(said) > 1)]

    def rows(self):
        """Returns rows (name, kind, text, seconds)."""
        rows = []
        for name, (kind, text, seconds) in self.ended.items():
            if name in self.crashes and kind == "passed":
                kind, text = "unsteady", self.crash(name)
            rows.append((name, kind, text, seconds))
        for name in self.crashes:
            if name not in self.ended:
                once = name == NO_CASE and self.complete
                rows.append((name, "unsteady" if once else "failed", self.crash(name), 0))
        if not self.complete:
            rows.append((NO_CASE, "failed", "%d machines crashed; not every case ran" % MACHINES, 0))
        return rows

    def crash(self, name):
        said = self.crashes[name]
        return "%d of the machines crashed while this ran; the last one said:\n%s" % (len(said), said[-1])


def run_cases(wanted, start=Machine, limit_s=LIMIT_S):
    """Runs the cases whose names contain one of the texts `wanted`. Returns rows (name, kind, text,
    seconds). `start` is called like Machine."""
    run, until = Run(), time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="real-peer-", dir="/tmp") as directory:
        for number in range(MACHINES):
            plan_path = os.path.join(directory, "plan.json")
            results_path = os.path.join(directory, "results-%d.jsonl" % number)
            with open(plan_path, "w") as text:
                json.dump({"wanted": wanted, "without": run.left_out()}, text)
            machine = start(directory, results_path,
                            [os.path.join(HERE, "in_machine.py"), plan_path, results_path],
                            limit_s=max(1, int(until - time.monotonic())),
                            environment={"RDMA_TEST_BINARY": emulated.RDMAEMU})
            run.take(machine.wait(), machine)
            if run.complete:
                break
            print("the machine crashed; a new one runs the remaining cases")
    return run.rows()


def main():
    rows = run_cases(sys.argv[1:])
    # Failures come last, because a truncated log loses its beginning.
    for name, kind, text, _ in sorted(rows, key=lambda row: row[1] == "failed"):
        if text:
            print("%s: %s\n%s" % (name, kind.upper(), text))
    if os.environ.get("XML_OUTPUT_FILE"):
        emulated.write_xml(SUITE, rows, os.environ["XML_OUTPUT_FILE"])
    return int(any(kind == "failed" for _, kind, _, _ in rows))


if __name__ == "__main__":
    sys.exit(main())
