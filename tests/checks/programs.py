"""Runs Debian's RDMA programs with usage checks. Their findings must be those of programs.toml.

usage: programs.py [--all]    with --all also ibv_*_pingpong and all of perftest
"""

import fnmatch
import os
import re
import sys
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "apps"))
import emulated  # noqa: E402
import programs  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

KNOWN = os.path.join(HERE, "programs.toml")
FINDING = re.compile(r"^rdmaemu check: RDMAEMU-(\S+): .*\n  call:   (\S+) at ([^+:\n]+)", re.MULTILINE)
started = []
plain_start = Emulator.start


def start(self, host, address, argv, options=(), **more):
    program = plain_start(self, host, address, argv, ["--check", *options], **more)
    # A case that repeats itself after a race of its programs makes a new emulator. Only the last
    # attempt counts: after the race perftest takes an error path that has defects of its own.
    started[:] = [each for each in started if each[0] is self] + [(self, program)]
    return program


def is_known(known, file, rule):
    return any(rule in row["rules"] and any(fnmatch.fnmatchcase(file, each) for each in row["files"])
               for row in known)


def checked(case, known):
    def run():
        started.clear()
        case.run(2)
        for _, program in started:
            for rule, call, file in FINDING.findall(program.output):
                print("%s: %s by %s in %s" % (case.name, rule, call, file))
                if not is_known(known, file, rule):
                    raise Failure("%s is a new finding\n%s" % (rule, program.describe()))
    return run


def main():
    Emulator.start = start
    with open(KNOWN, "rb") as table:
        known = tomllib.load(table)["program"]
    cases = programs.rdmacm_utils()
    write = programs.perftest(True)
    if "--all" in sys.argv:
        cases += programs.pingpongs() + programs.perftest(False) + write
    else:
        cases += [case for case in write if case.name in ("ib_write_bw_2B_R", "ib_send_bw_2B_R")]
    return emulated.run_cases("checks", [(case.name, checked(case, known)) for case in cases])


if __name__ == "__main__":
    sys.exit(main())
