"""Checks that the benchmarks finish and print every row. Speeds are not judged."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "table")
TINY = ["--quick", "--rounds", "1", "--round-s", "0.002", "--buffer-mib", "2"]


def table(*arguments):
    done = subprocess.run([sys.executable, TABLE, "--binaries", ".", *arguments],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failure("bench/table %s: status %d\n%s%s" % (
            " ".join(arguments), done.returncode, done.stdout[-2000:], done.stderr[-10000:]))
    return done.stdout


def every_row():
    report = json.loads(table(*TINY, "--json"))
    names = [row["name"] for row in report["rows"]]
    if names != table("--list").split():
        raise Failure("rows are missing or beside their order: %s" % names)
    for row in report["rows"]:
        if row["ours"] <= 0 or row.get("ratio", 1) <= 0:
            raise Failure("nothing was measured: %s" % row)
        # Latencies and rates are not judged on a busy machine.
        judged = row["target"] is not None and (row["unit"] == "B/s" or
                                                not report["machine"]["busy"])
        if judged != (row["met"] is not None):
            raise Failure("judged against the rule: %s" % row)


def markdown_of_one_row():
    lines = table(*TINY, "--markdown", "--only", "one_host_write_64KiB_huge").split("\n")
    rows = [line for line in lines if line.startswith("| WRITE 64 KiB, huge pages |")]
    if len(rows) != 1:
        raise Failure("no Markdown row of what was asked for:\n" + "\n".join(lines))


def unknown_row():
    done = subprocess.run([sys.executable, TABLE, "--only", "no_such_row"], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    if done.returncode == 0 or "--list" not in done.stderr:
        raise Failure("status %d: %s" % (done.returncode, done.stderr))


def calls_bench():
    with emulated.Emulator() as emulator:
        [address] = emulated.free_addresses(1)
        program = emulator.start("calls", address, [
            os.path.abspath("bench/calls_bench"), "--benchmark_min_time=0.001"])
        status = program.wait(60)
        if status != 0 or "PostReceive" not in program.output or "ERROR" in program.output:
            raise Failure("ended badly\n" + program.describe())


if __name__ == "__main__":
    sys.exit(emulated.run_cases("bench_table", [
        ("every_row", every_row),
        ("markdown_of_one_row", markdown_of_one_row),
        ("unknown_row", unknown_row),
        ("calls_bench", calls_bench),
    ]))
