"""The part of run.py that measures inside the virtual machine."""

import argparse
import json
import os
import re
import statistics
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
sys.path.insert(0, os.path.join(ROOT, "tests", "softroce"))
import emulated  # noqa: E402
import perftest  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402
from peers import IN_NAMESPACE, wait_for_kernel_listener  # noqa: E402

LIMIT_S = 120
SIZES = ((4096, "4 KiB", 1000), (65536, "64 KiB", 200), (1 << 20, "1 MiB", 30))
SHORTEST_S = 0.5  # a bandwidth from a shorter run is measured again with more messages
LONGEST_MESSAGES = 20000
CONNECTIONS = 200
CM_REJECTED = "RDMA_CM_EVENT_REJECTED, error: 8"  # the server did not listen yet


class Kernel:
    """A driver of the kernel on its loopback path, from the machine to itself."""

    def __init__(self, emulator, device, address, by_cm):
        self.emulator = emulator
        self.device = device
        self.address = address
        self.by_cm = by_cm  # the only way in which siw connects

    def start_server(self, argv):
        program = self.emulator.start_outside(argv)
        if self.by_cm or argv[0] == "cmtime":
            wait_for_kernel_listener(program)
        return program

    def start_client(self, argv):
        return self.emulator.start_outside(argv)


class Emulated:
    """One emulated host, or two hosts of one user, which run until the end."""

    def __init__(self, emulator, hosts, addresses):
        self.emulator = emulator
        self.hosts = hosts
        self.addresses = addresses
        self.device = "rxe0"
        self.address = addresses[0]
        self.by_cm = False
        for host, address in zip(hosts, addresses):
            holder = emulator.start(host, address, ["sh", "-c", "echo holding; exec cat"])
            if not holder.wait_for_text("holding", LIMIT_S):
                raise Failure("host %s did not start\n%s" % (host, holder.describe()))

    def start_server(self, argv):
        return self.emulator.start(self.hosts[0], self.addresses[0], argv)

    def start_client(self, argv):
        return self.emulator.start(self.hosts[-1], self.addresses[-1], argv)


def run_pair(backend, argv, port):
    """Runs a server and a client. Returns the client's output."""
    for attempt in range(perftest.ATTEMPTS):
        server = backend.start_server(argv)
        if not backend.by_cm:
            emulated.wait_for_tcp_listener(port, server)
        client = backend.start_client([*argv, backend.address if backend.by_cm else "127.0.0.1"])
        status = client.wait(LIMIT_S)
        if status == 0:
            server.wait(LIMIT_S)
            return client.output
        server.end()
        if perftest.RACE not in client.output:
            break
    raise Failure(client.describe() + server.describe())


# perftest measures its processor's frequency first, and prints 0.00 everywhere if this fails.
FREQUENCY_ATTEMPTS = 3


def perftest_row(backend, program, size, messages, *more):
    """Returns the figures of the program's one row after the columns bytes and iterations."""
    for _ in range(FREQUENCY_ATTEMPTS):
        figures = perftest_row_once(backend, program, size, messages, *more)
        if any(figures):
            return figures
    raise Failure("%s could not measure its processor's frequency" % program)


def perftest_row_once(backend, program, size, messages, *more):
    port = emulated.free_tcp_port()
    argv = [program, "-d", backend.device, "-F", "-p", str(port), "-s", str(size),
            "-n", str(messages), *(["-R"] if backend.by_cm else ["-x", "1"]), *more]
    output = run_pair(backend, argv, port)
    found = re.search(r"^ *%d +%d +(.*)$" % (size, messages), output, re.MULTILINE)
    if not found:
        raise Failure("no row of figures in\n" + output)
    return [float(one) for one in found.group(1).split()]


class Bandwidth:
    kind, unit = "bandwidth", "MiB/s"

    def __init__(self, program, size, size_text, messages):
        self.program = program
        self.size = size
        self.name = "%s_%d" % (program, size)
        self.label = "`%s` %s" % (program, size_text)
        self.messages = {}
        self.first_messages = messages

    def measure(self, name, backend):
        messages = self.messages.get(name, self.first_messages)
        while True:
            average = perftest_row(backend, self.program, self.size, messages)[1]
            seconds = messages * self.size / max(average, 0.01) / (1 << 20)
            if seconds >= SHORTEST_S or messages >= LONGEST_MESSAGES:
                return average
            messages = min(LONGEST_MESSAGES, int(messages * 2 * SHORTEST_S / seconds) + 1)
            self.messages[name] = messages


class Latency:
    kind, unit = "latency", "us"

    def __init__(self, program, *options):
        self.program = program
        self.options = options
        self.size = 8
        self.name = program
        self.label = "`%s -s 8%s`, typical" % (program, "".join(" " + one for one in options))

    def measure(self, name, backend):
        return perftest_row(backend, self.program, self.size, 1000, *self.options)[2]


class Connections:
    kind, unit = "rate", "a second"
    size = 0
    name = "cmtime"
    label = "`cmtime -c %d`: connections from create to destroy" % CONNECTIONS

    def measure(self, name, backend):
        # cmtime's server works for one client only. A second client finds the completion queue of
        # the first.
        server = backend.start_server(["cmtime", "-b", backend.address])
        try:
            until = time.monotonic() + LIMIT_S
            while True:
                client = backend.start_client(
                    ["cmtime", "-s", backend.address, "-c", str(CONNECTIONS)])
                if client.wait(LIMIT_S) is None or time.monotonic() > until:
                    raise Failure(client.describe())
                if CM_REJECTED not in client.output:
                    break
        finally:
            server.end()
        totals = re.findall(r"^\w[\w ]+?\s*: +([\d.]+)", client.output, re.MULTILINE)
        if len(totals) != 7 or "error" in client.output:
            raise Failure(client.describe())
        return CONNECTIONS / (sum(map(float, totals)) / 1000)


def rows():
    return ([Bandwidth(program, *size) for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw")
             for size in SIZES] +
            # perftest cannot measure the latency of a WRITE with events.
            [Latency("ib_send_lat", "-e"), Latency("ib_read_lat", "-e"), Latency("ib_write_lat"),
             Connections()])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only")
    parser.add_argument("--results")
    arguments = parser.parse_args()
    only = [text for text in arguments.only.split(",") if text]
    chosen = [row for row in rows() if not only or any(text in row.name for text in only)]
    with Emulator(prefix=IN_NAMESPACE) as emulator:
        backends = {
            "one_host": Emulated(emulator, ["one"], ["127.0.0.1"]),
            "two_hosts": Emulated(emulator, ["a", "b"], ["127.0.1.1", "127.0.1.2"]),
            "rxe": Kernel(emulator, "rxe0", "10.66.0.1", by_cm=False),
            "siw": Kernel(emulator, "siw0", "10.88.0.1", by_cm=True),
        }
        results = []
        for row in chosen:
            rounds = {name: [] for name in backends}
            for number in range(arguments.rounds):
                for name, backend in backends.items():
                    figure = None
                    try:
                        figure = row.measure(name, backend)
                    except Failure as failure:
                        print("%s on %s failed\n%s" % (row.name, name, failure), file=sys.stderr)
                    rounds[name].append(figure)
                    print("%s %s: %s" % (row.name, name, figure), file=sys.stderr, flush=True)
            results.append(summary(row, rounds))
    with open(arguments.results, "w") as text:
        json.dump({"kernel": os.uname().release, "rows": results}, text)


def summary(row, rounds):
    figures = {name: statistics.median(known) for name, known in
               ((name, [one for one in values if one is not None]) for name, values in rounds.items())
               if known}
    ratios = {}
    for name in ("rxe", "siw"):
        pairs = [ours / theirs for ours, theirs in zip(rounds["one_host"], rounds[name])
                 if ours is not None and theirs]
        if pairs:
            ratios[name] = statistics.median(pairs)
    return {"name": row.name, "label": row.label, "kind": row.kind, "size": row.size,
            "unit": row.unit, "figures": figures, "ratios": ratios, "rounds": rounds}


if __name__ == "__main__":
    main()
