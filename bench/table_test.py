"""Checks that the benchmarks finish and print every row. Speeds are not judged."""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import history
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
    names = [row["name"] for row in report["rows"]] + report["refused"]
    if names != table("--list").split():
        raise Failure("rows are missing or beside their order: %s" % names)
    for row in report["rows"]:
        if row["ours"] <= 0 or row.get("ratio", 1) <= 0:
            raise Failure("nothing was measured: %s" % row)
        if "_send_rate_" in row["name"] and (
                row.get("reference") != "Unix socket" or row.get("other") != "shared ring" or
                min(row["ratio"], row["other_ratio"]) <= 0):
            raise Failure("a rate without its references: %s" % row)
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


def module():
    loader = importlib.machinery.SourceFileLoader("bench_table", TABLE)
    loaded = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench_table", loader))
    loader.exec_module(loaded)
    return loaded


def quantiles():
    rounds = [{"ours": n, "one": 1} for n in range(21)]
    for given, expected in ((rounds, [1, 19]), (rounds[3:4], [3, 3])):
        quantiles = module().quantiles_of(given, "one")
        if quantiles != expected:
            raise Failure("%s instead of %s" % (quantiles, expected))


def a_third_is_the_limit():
    for ratio, recorded, is_latency, fell in (
            (0.68, 1, False, False), (0.66, 1, False, True), (9, 1, False, False),
            (1.49, 1, True, False), (1.51, 1, True, True), (0.1, 1, True, False)):
        if history.has_fallen(ratio, recorded, is_latency) != fell:
            raise Failure("%s after %s" % (ratio, recorded))


def a_slower_row_fails_the_check():
    row, other = "one_host_write_4KiB_ordinary", "one_host_latency_poll"
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "history.json")
        # One round of a busy machine may be off by a factor of thousands.
        low, high = 1e-9, 1e9
        for ratio, latency, status in ((low, high, 0), (high, high, 1), (low, low, 1)):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"main": [row], "guarded": [row, other], "versions": [
                    {"version": "1", "date": "2026-01-01", "ratios": {row: 5, other: 5}},
                    {"version": "2", "date": "2026-01-02", "ratios": {row: ratio, other: latency}},
                ]}, file)
            done = subprocess.run(
                [sys.executable, TABLE, "--binaries", ".", *TINY, "--check", "--other-work", "1",
                 "--history-file", path],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            slow = row if ratio == high else other
            if done.returncode != status or (status == 1 and slow not in done.stderr):
                raise Failure("%s, %s: status %d\n%s%s" % (ratio, latency, done.returncode,
                                                           done.stdout, done.stderr))
        done = table(*TINY, "--check", "--other-work", "-1", "--history-file", path)
        if "does not count" not in done:
            raise Failure("a busy machine is judged: %s" % done)
        table(*TINY, "--only", row, "--record", "3", "--history-file", path)
        lines = table("--history", "--history-file", path).splitlines()
        if lines[0] != "| ratio | 1 | 2 | 3 |" or "WRITE 4 KiB" not in lines[2]:
            raise Failure("the history: %s" % lines)


def the_documentation_has_the_history():
    with open("docs/performance.md", encoding="utf-8") as file:
        if table("--history").strip() not in file.read():
            raise Failure("docs/performance.md lacks the output of bench/table --history")


def guarded_rows_are_recorded():
    all_history = history.load()
    names = table("--list").split()
    recorded = history.latest(all_history)
    for name in all_history["main"] + all_history["guarded"]:
        if name not in names or name not in recorded:
            raise Failure("%s is no row, or was never recorded" % name)
    if not all_history["guarded"]:
        raise Failure("no row is guarded")


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
        ("quantiles", quantiles),
        ("a_third_is_the_limit", a_third_is_the_limit),
        ("a_slower_row_fails_the_check", a_slower_row_fails_the_check),
        ("the_documentation_has_the_history", the_documentation_has_the_history),
        ("guarded_rows_are_recorded", guarded_rows_are_recorded),
        ("calls_bench", calls_bench),
    ]))
