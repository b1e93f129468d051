"""Two programs connect under each clock, on one host and on two. Virtual time jumps when the hosts
wait for no application. A manual clock advances only on request.

usage: time_modes.py WORKER
"""

import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses  # noqa: E402

WORKER = os.path.abspath(sys.argv[1])
PORT = "7471"
LIMIT_S = 60
MODES = ["real", "scaled:4", "virtual", "manual"]
REQUESTS_ARE_LOST = '[[fault]]\nname = "lost"\nat = "cm.req"\ndrop = true\n'
RETRIES_S = 60  # all REQs of a connect take longer


class Pair:
    """A server and its clients, each on a host of its own or all on one."""

    def __init__(self, emulator, hosts, clock, accepts_after_ms=0, scenario=""):
        addresses = free_addresses(hosts)
        self.emulator, self.client_host = emulator, "b" if hosts == 2 else "a"
        self.server_address, self.client_address = addresses[0], addresses[-1]
        self.options = ["--clock", clock]
        server_options = list(self.options)
        if scenario:
            path = os.path.join(emulator.directory, "scenario.toml")
            with open(path, "w") as text:
                text.write(scenario)
            server_options += ["--scenario", path]
        self.server = emulator.start(
            "a", self.server_address,
            [WORKER, "serve", self.server_address, PORT, str(accepts_after_ms)], server_options)
        if not self.server.wait_for_text("listening", 30):
            raise Failure(self.server.describe())

    def connect(self):
        return self.emulator.start(self.client_host, self.client_address,
                                   [WORKER, "connect", self.server_address, PORT], self.options)

    def clock(self, *arguments):
        result = self.emulator.rdmaemu("clock", *arguments, "--host", "a")
        if result.returncode != 0:
            raise Failure(result.stderr)
        return result.stdout

    def ahead_s(self):
        """Returns how many seconds virtual time is ahead of real time."""
        now_ns = json.loads(self.clock("show", "--json"))["now_ns"]
        return now_ns / 1e9 - time.monotonic()


class Advancer:
    """Advances manual time one second at a time, about ten times as fast as real time."""

    def __init__(self, pair):
        self.pair, self.ended = pair, threading.Event()
        self.thread = threading.Thread(target=self._advance)

    def _advance(self):
        while not self.ended.wait(0.1):
            self.pair.clock("advance", "1s")

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()


def expect_end(program, *lines):
    if program.wait(LIMIT_S) != 0:
        raise Failure("the program failed or hung\n" + program.describe())
    events = [line for line in program.output.splitlines() if line.startswith("RDMA_CM_EVENT_")]
    if events[2:] != list(lines):
        raise Failure("instead of %s\n%s" % (list(lines), program.describe()))


CONNECTED = ["RDMA_CM_EVENT_ESTABLISHED 0", "RDMA_CM_EVENT_DISCONNECTED 0",
             "RDMA_CM_EVENT_TIMEWAIT_EXIT 0"]
UNREACHABLE = ["RDMA_CM_EVENT_UNREACHABLE -110"]


def unreachable_by_time_out(hosts):
    """Virtual time jumps over the retries, so more virtual time than real time has passed."""
    with Emulator() as emulator:
        pair = Pair(emulator, hosts, "virtual", scenario=REQUESTS_ARE_LOST)
        expect_end(pair.connect(), *UNREACHABLE)
        if pair.ahead_s() < RETRIES_S:
            raise Failure("time has not jumped: %.3f s ahead" % pair.ahead_s())


def timewait_is_jumped_over(hosts):
    with Emulator() as emulator:
        pair = Pair(emulator, hosts, "virtual")
        expect_end(pair.connect(), *CONNECTED)
        if pair.ahead_s() <= 0:
            raise Failure("time has not jumped")


def a_slow_server_is_not_dead(hosts, mode):
    """The server accepts after three real seconds, and the connect succeeds."""
    with Emulator() as emulator:
        pair = Pair(emulator, hosts, mode, accepts_after_ms=3000)
        if mode == "manual":
            with Advancer(pair):
                expect_end(pair.connect(), *CONNECTED)
        else:
            expect_end(pair.connect(), *CONNECTED)


def time_stands_while_a_server_is_awaited(hosts):
    """The server never accepts. If time jumped, the connect would end with UNREACHABLE."""
    with Emulator() as emulator:
        pair = Pair(emulator, hosts, "virtual", accepts_after_ms=-1)
        client = pair.connect()
        if not pair.server.wait_for_text("CONNECT_REQUEST", LIMIT_S):
            raise Failure(pair.server.describe())
        before_s = pair.ahead_s()
        if client.wait_for_text("UNREACHABLE", 1):
            raise Failure(client.describe())
        if pair.ahead_s() - before_s > 1:
            raise Failure("time has jumped %.3f s" % (pair.ahead_s() - before_s))


def manual_time_moves_when_it_is_told_to(hosts):
    with Emulator() as emulator:
        pair = Pair(emulator, hosts, "manual", scenario=REQUESTS_ARE_LOST)
        client = pair.connect()
        if not client.wait_for_text("ROUTE_RESOLVED", LIMIT_S):
            raise Failure(client.describe())
        rule = []
        while not rule or rule[0]["fired"] == 0:  # the first REQ has been lost
            rule = json.loads(emulator.rdmaemu("fault", "list", "--json", "--host", "a").stdout)
        if pair.clock("show").strip() != "manual: 0.000000 s":
            raise Failure("time has moved by itself: " + pair.clock("show"))
        pair.clock("advance", "%ds" % RETRIES_S)
        if "UNREACHABLE" in client.output:
            raise Failure("too early\n" + client.describe())
        pair.clock("run-until-idle")
        expect_end(client, *UNREACHABLE)


def a_host_that_is_stopped_stops_time():
    """A stopped host has an unread datagram, so its peer must not time out."""
    with Emulator() as emulator:
        pair = Pair(emulator, 2, "virtual", accepts_after_ms=-1)
        stopped = emulator.host("a")["pid"]
        os.kill(stopped, 19)  # SIGSTOP
        try:
            client = pair.connect()
            if client.wait_for_text("UNREACHABLE", 2):
                raise Failure("time has passed a host that cannot look\n" + client.describe())
        finally:
            os.kill(stopped, 18)  # SIGCONT
        if not pair.server.wait_for_text("CONNECT_REQUEST", LIMIT_S):
            raise Failure(pair.server.describe())


def cases():
    for hosts in (1, 2):
        suffix = "_on_%d" % hosts
        for function in (unreachable_by_time_out, timewait_is_jumped_over,
                         time_stands_while_a_server_is_awaited,
                         manual_time_moves_when_it_is_told_to):
            yield function.__name__ + suffix, lambda f=function, h=hosts: f(h)
        for mode in MODES:
            yield ("a_slow_server_is_not_dead_%s%s" % (mode.replace(":", ""), suffix),
                   lambda m=mode, h=hosts: a_slow_server_is_not_dead(h, m))
    yield "a_host_that_is_stopped_stops_time", a_host_that_is_stopped_stops_time


if __name__ == "__main__":
    sys.exit(emulated.run_cases("time_modes", list(cases()), at_once=8))
