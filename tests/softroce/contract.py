"""The contract tests (tests/contract) on the kernel's own drivers: the same binaries, in the virtual
machine. What fails there by the table tests/contract/differences.toml is expected, and only that.

A test that hangs is told by name and the others go on; so do they, in a new machine, when the kernel
itself goes down.
"""

import argparse
import collections
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "contract"))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
import harness  # noqa: E402
import machine  # noqa: E402
from contract_in_machine import BESIDE_EACH_OTHER, ENVIRONMENT  # noqa: E402
from differences import Table  # noqa: E402
from events import Record  # noqa: E402
import kernel_record  # noqa: E402

MACHINES = 6  # gives up the rest after this many machines
MACHINE_LIMIT_S = 1500
SILENCE_LIMIT_S = 300  # ends a machine in which no test begins or ends for so long
MOST_CONFIRMED = 8  # more failures than these are not accidental
EPILOG = """examples:
  tools/softroce test                             rdma_rxe and siw, in one machine
  tools/softroce test --on rxe --filter 'Connection.*'
  tools/softroce test --on siw --filter '*Reject*' --repeat 10
  tools/softroce test --json results.json
  tools/softroce test --confirm --unless-recorded --record    after a change of contract tests
  tools/softroce test --layer PREFIX/bin/rdmaemu  the same tests, each writing a program trace

A filter is gtest's: patterns with * and ?, joined by `:`. Rows of the table: docs/differences.md.
"""


class Case:
    """One test on one driver, and its result in each round."""

    def __init__(self, backend, file, name):
        self.backend, self.file, self.name = backend, file, name
        self.result = None
        self.failed_beside_others = None  # the earlier failure, when the test runs again

    def key(self):
        return self.backend, self.file, self.name

    def label(self):
        return "%s %s %s" % self.key()


class Machine(machine.Machine):
    """One run of the virtual machine for some cases."""

    def __init__(self, directory, number, plan, siw):
        plan_path = os.path.join(directory, "plan.json")
        results_path = os.path.join(directory, "results-%d.jsonl" % number)
        with open(plan_path, "w") as text:
            json.dump(plan, text)
        super().__init__(directory, results_path,
                         [os.path.join(HERE, "contract_in_machine.py"), plan_path, results_path],
                         limit_s=MACHINE_LIMIT_S,
                         options=["--cpus", "1", *(["--siw"] if siw else [])])


class Suite:
    def __init__(self, arguments, binaries, known=None):
        """`known` is a KernelRecord. Its tests do not run."""
        with open(os.path.join(binaries, "manifest.json")) as text:
            self.kinds = json.load(text)["binaries"]
        self.binaries = binaries
        self.table = Table(os.path.join(HERE, "..", "contract", "differences.toml"))
        self.arguments = arguments
        self.cases = {}
        self.suspects = set()  # the tests that ran when a kernel crashed
        self.traces = None  # where each test's program trace goes; each test is then one program
        self.records = {backend: Record(backend) for backend in arguments.on}
        self.recorded = []  # (backend, file) whose tests do not run
        for binary in sorted(self.kinds):
            file = binary.removesuffix("_binary")
            names = harness.list_tests(os.path.join(binaries, binary), dict(os.environ),
                                       arguments.filter)
            for backend in arguments.on:
                if backend in self.kinds[binary]:
                    if known is not None and known.has(backend, file,
                                                       self.digest(known, backend, file)):
                        self.recorded.append((backend, file))
                        continue
                    for name in names:
                        case = Case(backend, file, name)
                        self.cases[case.key()] = case

    def digest(self, record, backend, file):
        rows = [(row.test, row.how) for row in self.table.rows
                if row.file == file and backend in row.on]
        return record.digest(backend, file, self.kinds[file + "_binary"], rows)

    def write_down(self, record, judged):
        """Records the files without a failed test, and those that were in the record. `judged` is
        that of a run without a filter."""
        for backend, rows in judged.items():
            failed = {row[0].split(".")[0] for row in rows if row[1] == "failed"}
            files = ({file for of, file, _ in self.cases if of == backend} |
                     {file for of, file in self.recorded if of == backend})
            record.set(backend, {file: self.digest(record, backend, file)
                                 for file in sorted(files - failed)})
        record.write()

    def plan(self, cases, beside, traces=None):
        """Returns the machine's plan: one entry for each binary and driver."""
        jobs = {}
        for case in cases:
            kinds = self.kinds[case.file + "_binary"]
            job = jobs.setdefault((case.backend, case.file), {
                "backend": case.backend, "file": case.file, "tests": [], "hanging": [],
                "binary": os.path.join(self.binaries, case.file + "_binary"),
                "layer": self.arguments.layer, "traces": traces,
                "slow": "slow" in kinds, "alone": "exclusive" in kinds})
            job["tests"].append(case.name)
            row = self.table.row(case.backend, case.file, case.name)
            if row is not None and row.how == "hangs":
                job["hanging"].append(case.name)
        return {"jobs": list(jobs.values()), "beside": beside}

    def run(self, beside=BESIDE_EACH_OTHER):
        """Starts machines until every case has a result, or MACHINES were started."""
        with tempfile.TemporaryDirectory(prefix="softroce-test-", dir="/tmp") as directory:
            for number in range(MACHINES):
                left = [case for case in self.cases.values() if case.result is None]
                if not left:
                    return
                # A test that ran when a kernel crashed runs alone, to identify the test that caused
                # the crash.
                suspects = [case for case in left if case.key() in self.suspects]
                chosen = suspects[:1] or left
                if number:
                    print("a new machine, for %d tests" % len(chosen))
                siw = any(case.backend == "siw" for case in chosen)
                # The machine can write to its directory alone.
                traces = os.path.join(directory, "traces") if self.traces else None
                one = Machine(directory, number, self.plan(chosen, beside, traces), siw)
                status = one.wait(SILENCE_LIMIT_S)
                if self.traces:
                    shutil.copytree(traces, self.traces, dirs_exist_ok=True)
                self.take(one, chosen, status)
            for case in self.cases.values():
                if case.result is None:
                    case.result = harness.Result(case.name, "failed", "%d machines did not get as "
                                                 "far as this test" % MACHINES)

    def take(self, ended, chosen, status):
        """Takes the results of the machine `ended`."""
        under_way = set()
        for line in ended.lines():
            name = line.get("begun") or line["ended"]
            key = (line["backend"], line["file"], name)
            if "begun" in line:
                under_way.add(key)
                continue
            under_way.discard(key)
            case = self.cases[key]
            result = harness.Result(name, line["kind"], line["text"], line["seconds"],
                                    line["events"])
            case.result = result
        self.suspects -= {case.key() for case in chosen}
        if status == 0:
            for case in chosen:
                if case.result is None:
                    case.result = harness.Result(case.name, "failed", "it did not run")
        elif len(under_way) == 1 or len(chosen) == 1:
            for key in under_way or {chosen[0].key()}:
                self.cases[key].result = harness.Result(
                    key[2], "failed", "the machine ended with status %d while it ran\n%s" %
                    (status, ended.said()))
        else:
            self.suspects |= under_way

    def confirm(self):
        """Runs the failed tests again, one after the other, and reports different results. The
        kernel under test measures time by a clock that continues while its processors do not
        run."""
        failed = [case for case in self.cases.values() if self.verdict(case)[0] == "failed"]
        if not 0 < len(failed) <= MOST_CONFIRMED:
            return
        before = {case.key(): self.verdict(case)[1] for case in failed}
        print("%d failed; once more, one after the other" % len(failed))
        for case in failed:
            case.result = None
        self.run(beside=1)
        for case in failed:
            case.failed_beside_others = before[case.key()]

    def verdict(self, case):
        """Returns (kind, text) by the table and by the recorded events."""
        kind, text = self.table.judge(case.backend, case.file, case.result)
        if kind == "passed":
            stale = self.records[case.backend].stale(case.file, case.name, case.result.events)
            if stale:
                return "failed", stale
        return kind, text

    def judge(self):
        """Returns rows (name, kind, text, seconds) by backend."""
        judged = {backend: [] for backend in self.arguments.on}
        for case in self.cases.values():
            kind, text = self.verdict(case)
            if kind != "failed" and case.failed_beside_others is not None:
                kind, text = "unsteady", "does not fail alone; beside others: " + case.failed_beside_others
            judged[case.backend].append(("%s.%s" % (case.file, case.name), kind, text,
                                         case.result.seconds))
        if self.arguments.filter == "*":
            for binary, kinds in self.kinds.items():
                file = binary.removesuffix("_binary")
                for backend in self.arguments.on:
                    if backend in kinds and (backend, file) not in self.recorded:
                        judged[backend] += [
                            ("%s.%s" % (file, row.test), "failed",
                             "differences.toml names it, and there is no such test", 0)
                            for row in self.table.unused(backend, file)]
        return judged


def repeated(suite, times):
    """Runs the suite `times` times. A case's worst result counts, compared with its table row each
    time."""
    worst = {}
    for number in range(times):
        if times > 1:
            print("round %d of %d" % (number + 1, times))
        for case in suite.cases.values():
            case.result = None
        suite.run()
        if suite.arguments.confirm:
            suite.confirm()
        for backend, rows in suite.judge().items():
            for row in rows:
                key = backend, row[0]
                if key not in worst or row[1] == "failed":
                    worst[key] = row
    return {backend: [row for (of, _), row in worst.items() if of == backend]
            for backend in suite.arguments.on}


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/softroce test", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", action="append", choices=sorted(ENVIRONMENT), metavar="DRIVER",
                        help="rxe or siw; may be given twice (both)")
    parser.add_argument("--filter", default="*", metavar="F", help="only the tests of these names")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="run all so often (1)")
    parser.add_argument("--confirm", action="store_true",
                        help="what fails beside other tests runs once more alone, which decides")
    parser.add_argument("--record", action="store_true",
                        help="write down which tests have passed (tests/contract/kernel_record.json)")
    parser.add_argument("--unless-recorded", action="store_true",
                        help="skip tests that have passed with the same sources, kernel and rdma-core")
    parser.add_argument("--json", metavar="FILE", help="also writes every result, with the events seen")
    parser.add_argument("--layer", metavar="RDMAEMU",
                        help="run each program by `RDMAEMU run --backend system --program-trace`")
    parser.add_argument("--binaries", metavar="DIRECTORY", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    parsed.on = parsed.on or ["rxe", "siw"]
    parsed.layer = parsed.layer and os.path.realpath(parsed.layer)
    if parsed.repeat < 1:
        parser.error("--repeat is at least 1")
    if parsed.record and (parsed.filter != "*" or parsed.layer):
        parser.error("--record needs a run of all tests, without --filter and --layer")
    return parsed


def main():
    arguments = parse(sys.argv[1:])
    binaries = os.path.abspath(arguments.binaries or os.path.join(HERE, "..", "contract"))
    record = None
    if arguments.record or arguments.unless_recorded:
        record = kernel_record.KernelRecord(kernel_record.machine())
    suite = Suite(arguments, os.path.realpath(binaries), record if arguments.unless_recorded else None)
    if not suite.cases and not suite.recorded:
        sys.exit("error: no contract test of the name %s runs on %s" %
                 (arguments.filter, " or ".join(arguments.on)))
    judged = repeated(suite, arguments.repeat)
    for backend, file in suite.recorded:
        judged[backend].append((file, "skipped", "passed before with the same sources, kernel and "
                                "rdma-core (tests/contract/kernel_record.json); `tools/softroce test` "
                                "runs it", 0))
    if arguments.record:
        suite.write_down(record, judged)
    status = tell(judged)
    write(arguments, suite, judged)
    return status


def tell(judged):
    """Prints the failures last and completely, because a truncated log loses its beginning. Counts
    the skips by reason here; the XML and the JSON have each by its name."""
    print()
    for backend, rows in judged.items():
        reasons = collections.Counter(reason(text) for _, kind, text, _ in rows if kind == "skipped")
        for why, number in reasons.most_common():
            print("skipped on %s: %d: %s" % (backend, number, why))
    for backend, rows in judged.items():
        for name, kind, text, seconds in rows:
            if kind in ("unsteady", "failed"):
                print("%s on %s: %s (%.1f s)\n%s" % (kind.upper(), backend, name, seconds, text))
    for backend, rows in judged.items():
        counts = collections.Counter(row[1] for row in rows)
        print("%s: %d passed, %d failed, %d unsteady, %d skipped, %d differ as docs/differences.md "
              "says" % (backend, *(counts[kind] for kind in (
                  "passed", "failed", "unsteady", "skipped", "differs"))))
    return int(any(row[1] == "failed" for rows in judged.values() for row in rows))


def reason(text):
    """Returns the reason in a skipped test's output: the text after gtest's file, line and
    `Skipped`."""
    line = " ".join(text.split())
    return line.split("Skipped", 1)[1].strip() if "Skipped" in line else line


def write(arguments, suite, judged):
    if arguments.json:
        tests = [{"backend": case.backend, "file": case.file, "test": case.name,
                  "kind": case.result.kind, "seconds": case.result.seconds, "text": case.result.text,
                  "events": case.result.events} for case in suite.cases.values()]
        with open(arguments.json, "w") as text:
            json.dump({"tests": tests}, text, indent=1)
    xml = os.environ.get("XML_OUTPUT_FILE")
    if xml:
        emulated.write_xml("contract", [("%s.%s" % (backend, row[0]), *row[1:])
                                        for backend, rows in judged.items() for row in rows], xml)


if __name__ == "__main__":
    sys.exit(main())
