#!/usr/bin/env python3
"""What the layer costs a data-path call: nanoseconds, on a libibverbs that does next to nothing.

usage: bazel run --config=opt //bench/layer -- [--calls N]

Columns: without the layer; with the layer and no trace; with a program trace; what the trace adds;
and that as a share of a call of 500 ns, which is what a post or a poll takes on the emulator. Times
are processor time of the calling thread, medians of nine rounds.

The last line is the message rate of two queues of one emulated host, without and with usage checks
(docs/checks.md): the median of the pairs' ratios.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.abspath("tests/support"))
from emulated import free_addresses  # noqa: E402

EMULATOR_CALL_NS = 500.0
PAIRS = 5


def measured(argv, env):
    ended = subprocess.run(argv, env=env, text=True, stdout=subprocess.PIPE, timeout=300)
    if ended.returncode != 0:
        sys.exit("error: %s ended with %d" % (" ".join(argv), ended.returncode))
    return {name: float(ns) for name, ns in map(str.split, ended.stdout.splitlines())}


def print_rates(env, messages):
    """Measures pairs of runs, so that the ratio holds while the machine's speed drifts."""
    rates = {"": [], "--check": []}
    for _ in range(PAIRS):
        for option, measurements in rates.items():
            address = free_addresses(1)[0]
            run = [os.path.abspath("tools/cli/rdmaemu"), "run", "--private", "--address", address,
                   *filter(None, [option]), "--", os.path.abspath("bench/layer/rate"), address,
                   str(messages)]
            measurements.append(measured(run, env)["rate"])
    ratio = statistics.median(bare / checked for bare, checked in zip(*rates.values()))
    print("message rate: %.0f/s, with --check %.0f/s, ratio %.2f" % (
        statistics.median(rates[""]), statistics.median(rates["--check"]), ratio))


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=20000, help="calls a round")
    chosen = options.parse_args()
    stub, loop = os.path.abspath("bench/layer"), os.path.abspath("bench/layer/loop")
    program = [loop, str(chosen.calls)]
    with tempfile.TemporaryDirectory(prefix="rdmaemu-bench-", dir="/tmp") as directory:
        env = dict(os.environ, RDMAEMU_DIR=directory)
        behind = "RDMAEMU_LAYER_VERBS=" + os.path.join(stub, "libibverbs.so.1")
        run = [os.path.abspath("tools/cli/rdmaemu"), "run", "--private", "--program-trace",
               os.path.join(directory, "saw.jsonl"), "--", "env"]
        bare = measured(program, dict(env, LD_LIBRARY_PATH=stub))
        layered = measured([*run, "-u", "RDMAEMU_LAYER_TRACE", behind, *program], env)
        traced = measured([*run, behind, *program], env)
    print("%-12s %9s %9s %9s %9s %7s" % ("call", "bare", "layer", "traced", "added", "ratio"))
    for call in bare:
        added = traced[call] - bare[call]
        print("%-12s %6.1f ns %6.1f ns %6.1f ns %6.1f ns %7.2f" % (
            call, bare[call], layered[call], traced[call], added,
            (EMULATOR_CALL_NS + added) / EMULATOR_CALL_NS))
    with tempfile.TemporaryDirectory(prefix="rdmaemu-bench-", dir="/tmp") as directory:
        print_rates(dict(os.environ, RDMAEMU_DIR=directory), chosen.calls)


if __name__ == "__main__":
    main()
