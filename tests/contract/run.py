"""Runs a contract test on one emulated host, or on two that are connected by UDP on loopback.

usage: run.py BINARY HOSTS TABLE KIND [HOST OPTIONS...]; TABLE is differences.toml; KIND is `common`, or
`waiting` or `slow` when tests wait for time-outs, of seconds or of minutes: some of them run at once,
each in a process of its own, or all, each on hosts of its own
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
import harness  # noqa: E402
from differences import Table  # noqa: E402
from events import Record  # noqa: E402
from emulated import RDMAEMU, Emulator, free_addresses  # noqa: E402

LIMIT_S = 120  # for one test, because sanitizers and a busy machine are slow
SLOW_LIMIT_S = 280
AT_ONCE = {"waiting": 8, "slow": 64}
BACKENDS = {"virtual": ["virtual", "emulator"]}  # by clock: whose rows of differences.toml hold
MANUAL_RATE = {"common": 2, "waiting": 2, "slow": 20}  # how fast manual time is moved
# of profiles with a device_prefix of their own
DEVICE_NAMES = {"mlx5-ib": "mlx5_0", "mlx5-roce": "mlx5_0", "rxe-6.12": "rxe0"}
SILENT_NET, UNRESOLVED = "10.99.0.0/16", "10.99.0.77"


class Advancer:
    """Advances manual time at a multiple of the real one, however long one advance takes."""

    EVERY_S = 0.05

    def __init__(self, emulator, clock, rate):
        self.emulator, self.rate = emulator, rate
        self.ended, self.failed = threading.Event(), ""
        self.thread = threading.Thread(target=self._advance) if clock == "manual" else None

    def _advance(self):
        arrived = time.monotonic()
        while not self.ended.wait(self.EVERY_S):
            began = time.monotonic()
            moved = self.emulator.rdmaemu(
                "clock", "advance", "%dms" % (1000 * self.rate * (began - arrived)), "--host", "a")
            arrived = began
            if moved.returncode != 0:
                if self.emulator.host("a") is not None:  # not in a test that ends its host
                    self.failed = moved.stderr
                return

    def __enter__(self):
        if self.thread:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        if self.thread:
            self.thread.join()


def clock_of(options):
    return options[options.index("--clock") + 1] if "--clock" in options else "real"


def rate_of(clock, kind):
    """Returns the least ratio of the hosts' time to the programs' time."""
    if clock.startswith("scaled:"):
        return int(clock.split(":")[1])
    return MANUAL_RATE[kind] if clock == "manual" else 1


def run_on_hosts(binary, hosts, kind, options, names):
    """Returns the results of these tests on hosts of their own."""
    addresses = free_addresses(hosts + 1)
    local, remote, nobody = addresses[0], addresses[hosts - 1], addresses[hosts]
    with Emulator() as emulator:
        profile = options[options.index("--profile") + 1] if "--profile" in options else ""
        if profile and not profile.endswith(".toml"):  # the device has the profile's name
            emulator.env["RDMA_TEST_DEVICE"] = DEVICE_NAMES.get(profile, profile + "0")
        # A host runs as long as it has clients, so a program holds each host.
        machines = [("a", local)] + ([("b", remote)] if hosts == 2 else [])
        for name, address in machines:
            holder = emulator.start(name, address, [binary, "--hold"],
                                    options=[*options, "--silent-net", SILENT_NET])
            if not holder.wait_for_text("holding", 60):
                raise emulated.Failure("host %s did not start\n%s" % (name, holder.describe()))
        env = dict(emulator.env, RDMA_TEST_LOCAL=local, RDMA_TEST_REMOTE=remote,
                   RDMA_TEST_RDMAEMU=RDMAEMU, RDMA_TEST_RECORD="1",
                   RDMA_TEST_SILENT=nobody, RDMA_TEST_UNRESOLVED=UNRESOLVED,
                   RDMA_TEST_WITHOUT_RDMA=nobody,
                   RDMA_TEST_SHARES_BUFFERS="no" if "--payload-shortcuts" in options else "yes",
                   RDMA_TEST_HOSTS=",".join(name for name, _ in machines))
        clock = clock_of(options)
        rate = rate_of(clock, kind)
        env["RDMA_TEST_TIME_RATE"] = str(rate)
        if hosts == 2:
            env["RDMA_TEST_PEER_ENV"] = "RDMAEMU_HOST=b"
        # These tests look at no files, whose mounts take a third of a short program's time.
        options = [*options, "--sysfs", "off"]
        prefix = [RDMAEMU, "run", "--host", "a", "--address", local, "--sysfs", "off",
                  *emulator.trace_option(), "--"]
        if emulated.SANITIZER_RUNTIME:  # tests keep objects until their process ends, on purpose
            prefix += ["env", "ASAN_OPTIONS=detect_leaks=0"]
        with Advancer(emulator, clock, rate) as advancer:
            results = run_tests(binary, names, env, kind, prefix)
        if advancer.failed:
            raise emulated.Failure("time could not be moved: " + advancer.failed)
        return results


def run_tests(binary, names, env, kind, prefix):
    if kind != "waiting":
        return harness.run_tests(binary, names, env, LIMIT_S if kind == "common" else SLOW_LIMIT_S,
                                 ended=tell, prefix=prefix)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE[kind]) as pool:
        runs = [pool.submit(harness.run_tests, binary, [name], env, LIMIT_S, ended=tell,
                            prefix=prefix) for name in names]
    return [result for run in runs for result in run.result()]


def run_all(binary, hosts, kind, options):
    """Returns the results of all tests. Bazel's --test_filter selects some."""
    names = harness.list_tests(binary, os.environ, os.environ.get("TESTBRIDGE_TEST_ONLY") or "*")
    if kind != "slow":
        return run_on_hosts(binary, hosts, kind, options, names)
    # Each test has a host, because an application for which one test waits stops virtual time for
    # all.
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE[kind]) as pool:
        runs = [pool.submit(run_on_hosts, binary, hosts, kind, options, [name]) for name in names]
    return [result for run in runs for result in run.result()]


def tell(result):
    print("%s: %s (%.1f s)%s" % (result.name, result.kind, result.seconds,
                                 "\n" + result.text if result.text else ""))
    sys.stdout.flush()


def main():
    binary, hosts, table = os.path.abspath(sys.argv[1]), int(sys.argv[2]), Table(sys.argv[3])
    file = os.path.basename(binary).removesuffix("_binary")
    # gtest's own file would count expected failures of the table as failed.
    xml = os.environ.pop("XML_OUTPUT_FILE", None)
    judged, seen = [], []
    backends = BACKENDS.get(clock_of(sys.argv[5:]), ["emulator"])
    record = Record("emulator_siw" if "siw" in sys.argv[5:] else "emulator")
    for result in run_all(binary, hosts, sys.argv[4], sys.argv[5:]):
        named = [one for one in backends if table.row(one, file, result.name)]
        kind, text = table.judge((named or backends)[0], file, result)
        seen.append({"file": file, "test": result.name, "kind": kind, "events": result.events})
        if kind == "passed" and record.stale(file, result.name, result.events):
            kind, text = "failed", record.stale(file, result.name, result.events)
        if (kind, text) != (result.kind, result.text):
            print("%s: %s: %s" % (result.name, kind, text))
        judged.append((result.name, kind, text, result.seconds))
    if not os.environ.get("TESTBRIDGE_TEST_ONLY"):
        judged += [(row.test, "failed", "differences.toml names it, and there is no such test", 0)
                   for backend in backends for row in table.unused(backend, file)]
    outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    if outputs:  # for events.py record
        with open(os.path.join(outputs, "events.json"), "w") as text:
            json.dump({"tests": seen}, text)
    if xml:
        emulated.write_xml("contract." + file, judged, xml)
    return 1 if not judged or any(kind == "failed" for _, kind, _, _ in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
