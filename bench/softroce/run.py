#!/usr/bin/env python3
"""Measures the emulator beside the kernel's rdma_rxe and siw, in one virtual machine and one run, with
Debian's perftest and cmtime, and prints one table.

All run on the machine's two emulated processors, so figures are small; only the ratios of one run
mean something. Rounds are interleaved: each backend in turn, then again. A figure is the median of
its rounds, a ratio the median of the rounds' ratios.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EPILOG = """examples:
  tools/softroce bench                         everything, in about ten minutes
  tools/softroce bench --rounds 1 --only lat   the rows whose name has this in it, once
  tools/softroce bench --json figures.json     the rounds' figures too
"""

# The targets for the emulator's figure relative to rdma_rxe's, by kind of row.
TARGETS = {"bandwidth": ("at least", 3.0), "latency": ("at most", 1.0), "rate": ("at least", 5.0)}
SMALLEST_WITH_TARGET = 65536  # no target for bandwidth below this size


def target_of(row):
    if row["kind"] == "bandwidth" and row["size"] < SMALLEST_WITH_TARGET:
        return None
    return TARGETS[row["kind"]]


def met(target, ratio):
    return ratio >= target[1] if target[0] == "at least" else ratio <= target[1]


def ratio_text(row, over, target=None):
    ratio = row["ratios"].get(over)
    if ratio is None:
        return "-"
    text = "%.2f" % ratio
    if target:
        text += " (%s %g: %s)" % (*target, "met" if met(target, ratio) else "not met")
    return text


def figure_text(row, backend):
    figure = row["figures"].get(backend)
    if figure is None:
        return "-"
    return "%.0f" % figure if figure >= 100 else "%.3g" % figure


def table(results):
    lines = ["| | one host | two hosts | rdma_rxe | siw | one host to rdma_rxe | one host to siw |",
             "|---|---|---|---|---|---|---|"]
    for row in results["rows"]:
        cells = [figure_text(row, one) for one in ("one_host", "two_hosts", "rxe", "siw")]
        ahead = TARGETS[row["kind"]][0], 1.0
        lines.append("| %s, %s | %s | %s | %s |" % (
            row["label"], row["unit"], " | ".join(cells),
            ratio_text(row, "rxe", target_of(row)), ratio_text(row, "siw", ahead)))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="tools/softroce bench", description=__doc__, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each figure (3)")
    parser.add_argument("--only", default="", metavar="TEXT,...", help="rows whose name has one of these")
    parser.add_argument("--json", metavar="FILE", help="also writes everything as JSON")
    parser.add_argument("--mtu", type=int, default=9000, help="of the links under rdma_rxe and siw (9000)")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error("--rounds is at least 1")
    rdmaemu = os.path.realpath(os.path.join(ROOT, "bazel-opt-bin/tools/cli/rdmaemu"))

    with tempfile.TemporaryDirectory(prefix="softroce-bench-") as out:
        path = os.path.join(out, "results.json")
        status = subprocess.run(
            [os.path.join(ROOT, "tools/softroce"), "run", "--siw", "--mtu", str(arguments.mtu),
             "-t", "3600", "-o", out, "--", "env", "RDMA_TEST_BINARY=" + rdmaemu,
             "python3", os.path.join(ROOT, "bench/softroce/in_machine.py"),
             "--rounds", str(arguments.rounds), "--only", arguments.only, "--results", path],
            stdin=subprocess.DEVNULL).returncode
        if status != 0:
            sys.exit("error: the measurement in the machine ended with %d, see above" % status)
        with open(path) as text:
            results = json.load(text)
    if arguments.json:
        with open(arguments.json, "w") as text:
            json.dump(results, text, indent=1)
    print(table(results))


if __name__ == "__main__":
    main()
