"""Runs contract tests on the emulator and on a kernel driver, and compares what their programs saw.

Each test runs as a program of its own: on an emulated host of this machine, and in the virtual
machine of `tools/softroce run` on rdma_rxe or siw. Both runs write a program trace (docs/trace.md).
`rdmaemu trace diff` compares the two, as `rdmaemu ab` does (docs/ab.md).

A test is not compared, only counted, when it fails or is skipped on a backend (docs/differences.md
has the reason), or when its program makes no call that is recorded. tests/contract/accepted/DRIVER.toml holds the known differences, each with its reason and
with the tests that have it. A difference without an acceptance fails the run, and so does an
acceptance that no test needs.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "contract"))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import contract  # noqa: E402
import harness  # noqa: E402
from contract_in_machine import ENVIRONMENT, MOST_SLOW, trace_name  # noqa: E402
from emulated import RDMAEMU, Emulator, free_addresses  # noqa: E402

EPILOG = """examples:
  tools/softroce compare
  tools/softroce compare --filter 'Connection.*' --keep traces
  tools/softroce compare --json report.json
"""
AT_ONCE = 4  # programs on the emulator
LIMIT_S, SLOW_LIMIT_S = 120, 280
SAME, DIFFERENT, UNUSED = 0, 122, 123  # statuses of `rdmaemu trace diff`


def accepted_path(driver):
    return os.path.join(HERE, "..", "contract", "accepted", driver + ".toml")


class Acceptances:
    """The known differences. Each entry has the keys of docs/ab.md and `tests`: patterns of
    `FILE.SUITE.TEST`."""

    def __init__(self, path):
        with open(path, "rb") as text:
            self.entries = tomllib.load(text).get("accept", [])
        for entry in self.entries:
            if not entry.get("tests"):
                raise SystemExit("%s: an acceptance without `tests`: %s" % (path, entry))
        self.used = set()

    def of(self, test):
        return [number for number, entry in enumerate(self.entries)
                if any(fnmatch.fnmatchcase(test, pattern) for pattern in entry["tests"])]

    def write(self, numbers, path):
        with open(path, "w") as text:
            for number in numbers:
                text.write("[[accept]]\nsometimes = true\n")
                for key, value in self.entries[number].items():
                    if key not in ("tests", "sometimes"):
                        text.write("%s = %s\n" % (key, json.dumps(value)))

    def take(self, numbers, differences):
        reasons = {difference["accepted"] for difference in differences}
        self.used |= {number for number in numbers if self.entries[number]["reason"] in reasons}

    def unused(self):
        return [entry for number, entry in enumerate(self.entries)
                if number not in self.used and not entry.get("sometimes")]


def trace_path(directory, side, case):
    return os.path.join(directory, side, trace_name(case.file, case.name))


def run_on_emulator(case, binary, profile, path, limit_s):
    local, nobody = free_addresses(2)
    options = ["--profile", profile] if profile != "rxe" else []
    with Emulator() as emulator:
        env = dict(emulator.env, RDMA_TEST_LOCAL=local, RDMA_TEST_REMOTE=local,
                   RDMA_TEST_RDMAEMU=RDMAEMU, RDMA_TEST_SILENT=nobody, RDMA_TEST_HOSTS="a",
                   RDMA_TEST_UNRESOLVED="10.99.0.77", RDMA_TEST_WITHOUT_RDMA=nobody,
                   RDMA_TEST_TIME_RATE="1", RDMA_TEST_DEVICE=profile + "0")
        prefix = [RDMAEMU, "run", "--host", "a", "--address", local, "--silent-net", "10.99.0.0/16",
                  *options, "--program-trace", path, "--"]
        return harness.run_tests(binary, [case.name], env, limit_s, prefix=prefix)[0]


class Comparison:
    def __init__(self, arguments, directory):
        arguments.on, arguments.layer = [arguments.on], arguments.rdmaemu
        self.suite = contract.Suite(arguments, arguments.binaries)
        self.driver = arguments.on[0]
        self.directory = directory
        self.acceptances = Acceptances(accepted_path(self.driver))
        self.on_emulator, self.rows = {}, []
        for side in ("emulator", self.driver):
            os.makedirs(os.path.join(directory, side), exist_ok=True)

    def run_emulator(self):
        def run(case, limit_s):
            binary = os.path.join(self.suite.binaries, case.file + "_binary")
            self.on_emulator[case.key()] = run_on_emulator(
                case, binary, self.driver, trace_path(self.directory, "emulator", case), limit_s)
        with concurrent.futures.ThreadPoolExecutor(MOST_SLOW) as slow, \
                concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            runs = []
            for case in self.suite.cases.values():
                is_slow = "slow" in self.suite.kinds[case.file + "_binary"]
                runs.append(slow.submit(run, case, SLOW_LIMIT_S) if is_slow
                            else pool.submit(run, case, LIMIT_S))
            for one in runs:
                one.result()
        print("emulator: %d tests ran" % len(runs))
        sys.stdout.flush()

    def run_driver(self):
        self.suite.traces = os.path.join(self.directory, self.driver)
        self.suite.run()

    def compare(self):
        for case in self.suite.cases.values():
            kinds = self.on_emulator[case.key()].kind, case.result.kind
            name = case.file + "." + case.name
            if kinds != ("passed", "passed"):
                self.rows.append({"test": name, "verdict": "not compared", "why": "%s on the emulator, "
                                  "%s on %s" % (kinds[0], kinds[1], self.driver), "differences": []})
                continue
            if not any(os.path.getsize(trace_path(self.directory, side, case))
                       for side in ("emulator", self.driver)):
                self.rows.append({"test": name, "verdict": "not compared", "differences": [],
                                  "why": "its program makes no call that is recorded"})
                continue
            self.rows.append(self.compare_one(case, name))

    def compare_one(self, case, name):
        accepted = self.acceptances.of(name)
        known = os.path.join(self.directory, "accepted.toml")
        self.acceptances.write(accepted, known)
        done = subprocess.run(
            [RDMAEMU, "trace", "diff", "--json", *(["--accept", known] if accepted else []),
             trace_path(self.directory, "emulator", case),
             trace_path(self.directory, self.driver, case)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode not in (SAME, DIFFERENT):
            return {"test": name, "verdict": "could not compare", "why": done.stderr,
                    "differences": []}
        differences = json.loads(done.stdout)["differences"]
        self.acceptances.take(accepted, differences)
        left = [one for one in differences if one["accepted"] is None]
        return {"test": name, "differences": left,
                "verdict": "differs" if left else "accepted" if differences else "same"}

    def report(self):
        count = {}
        for row in self.rows:
            count[row["verdict"]] = count.get(row["verdict"], 0) + 1
            if row["verdict"] == "could not compare":
                print("%s: %s" % (row["test"], row["why"].strip()))
            for one in row["differences"][:3]:
                print("%s: %s %s: %s" % (row["test"], one["kind"], one["what"], "; ".join(
                    "%s: %s | %s" % (part["part"], part["a"], part["b"]) for part in one["parts"])
                    or ("only on the emulator" if one["b"] is None else "only on " + self.driver)))
        unused = self.acceptances.unused() if self.suite.arguments.filter == "*" else []
        for entry in unused:
            print("no test needs this acceptance: %s (%s)" % (entry["what"], entry["reason"]))
        print("emulator and %s: %s" % (self.driver, ", ".join(
            "%d %s" % (count[kind], kind) for kind in sorted(count))))
        return 1 if unused or count.get("differs") or count.get("could not compare") else 0


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/softroce compare", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--on", default="rxe", choices=sorted(
        on for on in ENVIRONMENT if os.path.exists(accepted_path(on))), help="the driver (rxe)")
    parser.add_argument("--filter", default="*", metavar="F", help="only the tests of these names")
    parser.add_argument("--keep", metavar="DIR", help="keep the traces there")
    parser.add_argument("--json", metavar="FILE", help="also write every difference")
    parser.add_argument("--rdmaemu", default=RDMAEMU, help=argparse.SUPPRESS)
    parser.add_argument("--binaries", metavar="DIRECTORY", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main():
    arguments = parse(sys.argv[1:])
    arguments.rdmaemu = os.path.realpath(arguments.rdmaemu)
    with tempfile.TemporaryDirectory(prefix="softroce-compare-", dir="/tmp") as scratch:
        comparison = Comparison(arguments, os.path.realpath(arguments.keep or scratch))
        comparison.run_emulator()
        comparison.run_driver()
        comparison.compare()
        if arguments.json:
            with open(arguments.json, "w") as text:
                json.dump(comparison.rows, text, indent=1)
        return comparison.report()


if __name__ == "__main__":
    sys.exit(main())
