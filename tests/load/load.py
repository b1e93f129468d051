"""Programs that start, connect, send and are killed at random. Afterwards the hosts' objects,
memory, descriptors and mappings are back at their earlier values.

usage: load.py WORKER [--minutes M] [--processes N] [--at-once C] [--hosts 1|2] [--seed S]
"""

import argparse
import heapq
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses  # noqa: E402

PORTS = 48           # on each host, for the workers' listeners
SETTLE_LIMIT_S = 200  # a DREQ to a peer that lost its answer is repeated for up to 100 s
# Allowed growth after the end of all programs: the heap's free lists keep memory of busier moments.
RSS_TOLERANCE_BYTES = 4 << 20
RSS_TOLERANCE_PART = 0.25
MAPPINGS_TOLERANCE = 8  # of the heap


class Footprint:
    """The resources of a host process, as the kernel counts them."""

    def __init__(self, pid):
        with open("/proc/%d/status" % pid) as lines:
            sizes = {line.split(":")[0]: line.split()[1] for line in lines if " kB" in line}
        self.rss_bytes = (int(sizes["RssAnon"]) + int(sizes["RssShmem"])) * 1024
        self.descriptors = len(os.listdir("/proc/%d/fd" % pid))
        with open("/proc/%d/maps" % pid) as lines:
            self.mappings = sum(1 for _ in lines)

    def __str__(self):
        return "%.1f MB, %d descriptors, %d mappings" % (
            self.rss_bytes / 1e6, self.descriptors, self.mappings)


class Load:
    def __init__(self, emulator, worker, options):
        self.emulator = emulator
        self.worker = worker
        self.random = random.Random(options.seed)
        self.at_once = options.at_once
        names = ["a", "b"][:options.hosts]
        self.addresses = dict(zip(names, free_addresses(len(names))))
        self.environments, self.pids = {}, {}
        self.first_port = random.randint(2, 60) * 1000 + 1  # of RDMA CM's own port space
        for name, address in self.addresses.items():
            emulator.start_host(name, ["--address", address])
            self.pids[name] = emulator.host(name)["pid"]
            shown = subprocess.run(
                [emulated.RDMAEMU, "run", "--host", name, "--address", address, "--", "env", "-0"],
                env=emulator.env, stdout=subprocess.PIPE, check=True)
            self.environments[name] = dict(
                pair.split("=", 1) for pair in shown.stdout.decode().split("\0") if "=" in pair)
        self.deaths = []  # (when, number, process)
        self.started = self.killed = self.failed = 0

    def start(self, life_s):
        name = self.random.choice(list(self.addresses))
        port = self.first_port + self.random.randrange(PORTS)
        argv = [self.worker, self.addresses[name], str(port), str(self.first_port), str(PORTS),
                str(self.random.getrandbits(48)), *self.addresses.values()]
        process = subprocess.Popen(argv, env=self.environments[name], stdin=subprocess.DEVNULL)
        self.started += 1
        heapq.heappush(self.deaths, (time.monotonic() + life_s, self.started, process))

    def end_one(self):
        """Kills the next program that is due, mostly during its work, sometimes orderly."""
        _, _, process = heapq.heappop(self.deaths)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM if self.random.random() < 0.2 else signal.SIGKILL)
            self.killed += 1
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure("a worker did not end in 20 s of being asked to")
        # A program that has only begun dies of SIGTERM. Later it ends in order.
        if process.returncode not in (0, -signal.SIGKILL, -signal.SIGTERM):
            print("a worker ended with %d" % process.returncode)
            self.failed += 1

    def run(self, seconds, processes, progress_s=5):
        begin = time.monotonic()
        end = begin + seconds
        mean_life_s = seconds * self.at_once / processes
        next_word = begin + progress_s
        while True:
            now = time.monotonic()
            if now >= end:
                break
            due = self.at_once + int((now - begin) / seconds * (processes - self.at_once))
            while self.started_here < due and len(self.deaths) < self.at_once:
                self.start(self.random.uniform(0.02, 2 * mean_life_s))
                self.started_here += 1
            while self.deaths and self.deaths[0][0] <= now:
                self.end_one()
            if now >= next_word:
                next_word = now + progress_s
                self.say("%3.0f s" % (now - begin))
            time.sleep(0.01)

    def run_all(self, seconds, processes):
        self.started_here = 0
        self.run(seconds, processes)
        while self.deaths:
            self.end_one()

    def totals(self):
        return {host["name"]: host for host in self.emulator.hosts()}

    def say(self, when):
        hosts = self.totals()
        print("%s: %d started, %d alive, %s" % (when, self.started, len(self.deaths), "; ".join(
            "host %s: %d clients, %d ids, %d QPs, %d connections, %d messages, %d CM messages" % (
                name, host["clients_total"], host["ids"], host["qps"], host["connections"],
                host["counters"]["messages_sent"], host["counters"]["cm_messages_sent"])
            for name, host in sorted(hosts.items()))))
        sys.stdout.flush()

    def settle(self):
        """Waits until no host has any object, and returns each host's resources."""
        until = time.monotonic() + SETTLE_LIMIT_S
        while True:
            hosts = self.totals()
            if len(hosts) != len(self.addresses):
                raise Failure("a host is gone: %s are left" % sorted(hosts))
            # The process that asks for the status is connected as well.
            left = {name: {"groups": host["groups_total"], "ids": host["ids"], "qps": host["qps"],
                           "connections": host["connections"]}
                    for name, host in hosts.items()}
            if not any(count for counts in left.values() for count in counts.values()):
                break
            if time.monotonic() > until:
                raise Failure("after %d s there still are %s" % (SETTLE_LIMIT_S, left))
            time.sleep(0.1)
        # The asking connection is closed, but the host may not have detected this yet.
        smallest = {}
        for _ in range(10):
            for name, pid in self.pids.items():
                seen = Footprint(pid)
                if name not in smallest or seen.descriptors < smallest[name].descriptors:
                    smallest[name] = seen
            time.sleep(0.02)
        return smallest


def compare(name, before, after):
    print("host %s: %s; before: %s" % (name, after, before))
    most = before.rss_bytes * (1 + RSS_TOLERANCE_PART) + RSS_TOLERANCE_BYTES
    wrong = []
    if after.rss_bytes > most:
        wrong.append("memory: %d bytes, %d at most" % (after.rss_bytes, most))
    if after.descriptors != before.descriptors:
        wrong.append("descriptors: %d, not %d" % (after.descriptors, before.descriptors))
    if after.mappings > before.mappings + MAPPINGS_TOLERANCE:
        wrong.append("mappings: %d, %d before" % (after.mappings, before.mappings))
    return ["host %s: %s" % (name, text) for text in wrong]


def run(worker, options):
    seconds = options.minutes * 60
    with Emulator() as emulator:
        load = Load(emulator, worker, options)
        # The first programs make the host grow to its working size.
        warm_up = min(30.0, max(2.0, seconds / 8))
        load.run_all(warm_up, max(options.at_once, int(options.processes * warm_up / seconds)))
        before = load.settle()
        sent = sum(host["counters"]["messages_sent"] for host in load.totals().values())
        print("warmed up: %d processes, %d messages" % (load.started, sent))
        load.run_all(seconds, options.processes)
        load.say("all gone")
        after = load.settle()
        now_sent = sum(host["counters"]["messages_sent"] for host in load.totals().values())
        wrong = [text for name in before for text in compare(name, before[name], after[name])]
        if now_sent - sent < options.processes:
            wrong.append("only %d messages were sent: that was no load" % (now_sent - sent))
        if load.failed > 0:
            wrong.append("%d workers failed, see their words above" % load.failed)
        if wrong:
            raise Failure("\n".join(wrong))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("worker")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--processes", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=200)
    parser.add_argument("--hosts", type=int, default=2, choices=[1, 2])
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.randrange(1 << 32)
    print("repeat with: --minutes %g --processes %d --at-once %d --hosts %d --seed %d" % (
        options.minutes, options.processes, options.at_once, options.hosts, options.seed))
    worker = os.path.abspath(options.worker)
    name = "load_on_%s" % ("one_host" if options.hosts == 1 else "two_hosts")
    return emulated.run_cases("load", [(name, lambda: run(worker, options))])


if __name__ == "__main__":
    sys.exit(main())
