"""Runs contract tests on one emulated host with usage checks, and prints the findings: the rule, and
the tests that broke it. Tests break rules on purpose, so a finding is not a failure.

usage: contract.py BINARY...
"""

import collections
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "contract"))
import harness  # noqa: E402
import run  # noqa: E402
from emulated import Emulator  # noqa: E402

FINDING = re.compile(r"^rdmaemu check: RDMAEMU-([A-Z]+-\d+): (.*)")
broken = collections.defaultdict(set)  # tests by rule


class Lines:
    """The lines of a program. Notes the findings among them."""

    def __init__(self, lines, owner):
        self.lines, self.owner = lines, owner

    def __iter__(self):
        for line in self.lines:
            found = FINDING.match(line)
            if found:
                broken[found.group(1)].add(self.owner.current or "at exit")
            yield line


def main():
    plain_read = harness.Run.read

    def read(self):
        self.process.stdout = Lines(self.process.stdout, self)
        plain_read(self)

    harness.Run.read = read
    Emulator.trace_option = lambda self: ["--check"]
    run.tell = lambda result: None
    count = failed = 0
    for binary in sys.argv[1:]:
        results = run.run_all(os.path.abspath(binary), 1, "common", [])
        count += len(results)
        for result in results:
            if result.kind == "failed":
                failed += 1
                print("FAILED %s\n%s" % (result.name, result.text))
    for rule, tests in sorted(broken.items()):
        print("%s  %d tests: %s" % (rule, len(tests), ", ".join(sorted(tests))))
    print("%d tests, %d failed" % (count, failed))


if __name__ == "__main__":
    main()
