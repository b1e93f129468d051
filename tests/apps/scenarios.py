"""The ready scenarios (tools/scenarios) against Debian's programs: the effect of each on a program,
and that a correct program survives. Those that count received messages run against a program that
receives by RDMA WRITE with immediate data, too.

usage: scenarios.py WRITER"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure  # noqa: E402

SCENARIOS = "tools/scenarios"
WRITER = os.path.abspath(sys.argv[1])
LIMIT_S = 60
LAST_PING = r"^ping data: rdma-ping-2"
CASES = []


def scenario(function):
    """Adds a case under its scenario's name."""
    CASES.append((function.__name__.replace("_", "-"), function))
    return function


class Hosts:
    """The hosts of a server and a client, with one virtual time. The host `on` has the scenario's
    rules. A context manager."""

    def __init__(self, name, on="server", finite_retries=False):
        self.on = on
        self.finite_retries = finite_retries
        self.rules = ["--scenario", os.path.join(SCENARIOS, name + ".toml")]
        self.emulator = Emulator()
        self.addresses = dict(zip(("server", "client"), emulated.free_addresses(2)))
        self.trace = os.path.join(self.emulator.directory, "trace")
        self.listeners = 0

    def __enter__(self):
        self.emulator.__enter__()
        for host, address in self.addresses.items():
            self.emulator.start_host(host, [
                "--address", address, "--clock", "virtual", *self.device(),
                *(self.rules if host == self.on else []),
                *(["--trace", self.trace] if host == "server" else [])])
        return self

    def __exit__(self, *_):
        self.emulator.__exit__()

    def device(self):
        """Returns the device. rdma_rxe treats retry_cnt 7, which rping requests, as endless;
        hardware treats it as seven."""
        if not self.finite_retries:
            return []
        profile = os.path.join(self.emulator.directory, "finite.toml")
        with open("emulator/verbs/profiles/rxe.toml") as rxe, open(profile, "w") as file:
            file.write(rxe.read().replace("retry_count_7_is_endless = true",
                                          "retry_count_7_is_endless = false"))
        return ["--device", "rxe0=" + profile]

    def start(self, host, *argv, options=()):
        emulated.need(argv[0])
        return self.emulator.start_outside([RDMAEMU, "run", "--host", host, *options, "--", *argv],
                                           self.emulator.env)

    def listen(self, *argv, options=()):
        program = self.start("server", *argv, options=options)
        self.listeners += 1
        emulated.wait_for_calls([self.trace], "listen", self.listeners)
        return program

    def rping(self, *more):
        return ["rping", "-a", self.addresses["server"], "-C", "3", "-v", *more]

    def serve_rping(self, *more):
        return self.listen(*self.rping("-s", *more))

    def connect_rping(self):
        client = self.start("client", *self.rping("-c"))
        return client, client.wait(LIMIT_S)

    def ping_through(self, server=None):
        """Runs a client to its successful end, with a server that ends as well."""
        server = server or self.serve_rping()
        succeeds(*self.connect_rping(), LAST_PING)
        succeeds(server, server.wait(LIMIT_S), "DISCONNECT EVENT")

    def fired(self):
        """Returns how often each rule fired."""
        listed = self.emulator.rdmaemu("fault", "list", "--json", "--host", self.on).stdout
        return [rule["fired"] for rule in json.loads(listed)]

    def expect_fired(self, *times):
        if self.fired() != list(times):
            raise Failure("the rules fired %s times instead of %s" % (self.fired(), times))

    def wait_until_fired(self, *times):
        until = time.monotonic() + LIMIT_S
        while self.fired() != list(times):
            if time.monotonic() > until:
                self.expect_fired(*times)
            time.sleep(0.02)


def succeeds(program, status, *signs):
    if status != 0:
        raise Failure("the program ended with %s\n%s" % (status, program.describe()))
    program.expect(*signs)


def fails(program, status, *signs):
    if status in (0, None):
        raise Failure("the program ended with %s\n%s" % (status, program.describe()))
    program.expect(*signs)


@scenario
def reject_storm():
    with Hosts("reject-storm") as hosts:
        server = hosts.serve_rping()
        for _ in range(3):
            fails(*hosts.connect_rping(), "^cma event RDMA_CM_EVENT_REJECTED, error 28")
        hosts.ping_through(server)
        hosts.expect_fired(3)


@scenario
def slow_accept():
    with Hosts("slow-accept") as hosts:
        hosts.ping_through()
        with open(hosts.trace) as lines:
            records = [json.loads(line) for line in lines]
        accepted = next(r["time"] for r in records if r["kind"] == "call" and r["what"] == "accept")
        made = next(r["time"] for r in records if r["kind"] == "cm.receive" and r["what"] == "RTU")
        if made - accepted < 20:
            raise Failure("the answer took %f s" % (made - accepted))
        if hosts.fired()[0] < 2:
            raise Failure("the repeated answers were not late")


@scenario
def backlog_overflow():
    with Hosts("backlog-overflow") as hosts:
        hosts.ping_through()
        hosts.expect_fired(2)


@scenario
def stale_connection():
    with Hosts("stale-connection") as hosts:
        server = hosts.serve_rping()
        fails(*hosts.connect_rping(), "^cma event RDMA_CM_EVENT_REJECTED, error 10")
        hosts.ping_through(server)
        hosts.expect_fired(1)


@scenario
def half_open_connection():
    with Hosts("half-open-connection") as hosts:
        server = hosts.serve_rping()
        succeeds(*hosts.connect_rping(), LAST_PING)
        # rping does not check for this and waits for ever, as incorrect programs do.
        if server.process.poll() is not None or "DISCONNECT" in server.output:
            raise Failure("the server knows\n" + server.describe())
        held = hosts.emulator.host("server")
        if held["connections"] < 1:
            raise Failure("the server's connection is gone: %s" % held)


@scenario
def rnr_storm():
    with Hosts("rnr-storm", on="client") as hosts:
        server = hosts.serve_rping()
        fails(*hosts.connect_rping(), "^cq completion failed status 13")
        # The server only gets its peer's DISCONNECTED.
        if server.wait(LIMIT_S) is None:
            raise Failure("the server did not end\n" + server.describe())
        hosts.expect_fired(1)


@scenario
def peer_crash():
    with Hosts("peer-crash", finite_retries=True) as hosts:
        hosts.serve_rping()
        fails(*hosts.connect_rping(), "^cq completion failed status 12")
        if hosts.emulator.host("server") is not None:
            raise Failure("the server's host lives on")


@scenario
def hot_removal():
    with Hosts("hot-removal") as hosts:
        server = hosts.serve_rping()
        client, _ = hosts.connect_rping()
        client.expect("DISCONNECT EVENT")
        fails(server, server.wait(LIMIT_S), "device removal")
        hosts.expect_fired(1)
        hosts.ping_through()


@scenario
def link_flap():
    for left in reversed(range(5)):
        with Hosts("link-flap", on="client") as hosts:
            server = hosts.serve_rping()
            client, status = hosts.connect_rping()
            if status == 0 and left:  # a busy machine did not run it during those 300 ms
                continue
            fails(client, status, "^cq completion failed")
            server.end()
            hosts.expect_fired(1)
            return hosts.ping_through()


@scenario
def cq_overrun():
    with Hosts("cq-overrun", on="client") as hosts:
        hosts.serve_rping()
        client = hosts.start("client", *hosts.rping("-c"))
        # rping reads no asynchronous events and waits for ever, as incorrect programs do.
        hosts.wait_until_fired(1, 1)
        if client.process.poll() is not None:
            raise Failure("the client ended\n" + client.describe())


@scenario
def one_percent_loss():
    with Hosts("one-percent-loss") as hosts:
        server = hosts.serve_rping("-S", "60000", "-C", "50")
        client = hosts.start("client", *hosts.rping("-c", "-S", "60000", "-C", "50"))
        succeeds(client, client.wait(LIMIT_S), "^ping data: rdma-ping-49")
        succeeds(server, server.wait(LIMIT_S))
        if hosts.fired()[0] == 0:
            raise Failure("nothing was lost")


@scenario
def partition_and_heal():
    with Hosts("partition-and-heal") as hosts:
        hosts.ping_through()
        hosts.expect_fired(1, 6)


def by_writes(name, on, client_signs, server_signs=()):
    """Returns a case: a scenario fires for programs that receive by RDMA WRITE with immediate data.
    `run --strict` checks this. The programs end successfully."""
    def case():
        with Hosts(name, on=on) as hosts:
            strict = {on: ["--strict"]}
            server = hosts.listen(WRITER, "server", hosts.addresses["server"],
                                  options=strict.get("server", ()))
            client = hosts.start("client", WRITER, "client", hosts.addresses["server"],
                                 options=strict.get("client", ()))
            succeeds(client, client.wait(LIMIT_S), *client_signs)
            if server_signs is None:
                return server.end()
            succeeds(server, server.wait(LIMIT_S), *server_signs)
    return name + "-by-writes-with-immediate-data", case


DISCONNECTED = "^event RDMA_CM_EVENT_DISCONNECTED$"
BY_WRITES = [
    by_writes("hot-removal", "server", [DISCONNECTED], ["^event RDMA_CM_EVENT_DEVICE_REMOVAL$"]),
    # On a busy machine the client may miss those 300 ms. Its DREQ may be lost, too. The server then
    # keeps a half-open connection.
    by_writes("link-flap", "client", ["of 5 rounds$"], None),
    by_writes("partition-and-heal", "server", ["^5 of 5 rounds$"], ["^5 of 5 rounds$"]),
    by_writes("cq-overrun", "client", ["^asynchronous event CQ error$", "^2 of 5 rounds$"],
              [DISCONNECTED]),
    by_writes("rnr-storm", "client", ["^completion RNR retry counter exceeded$", "^2 of 5 rounds$"],
              [DISCONNECTED]),
]


def main():
    undone = sorted(name.removesuffix(".toml") for name in os.listdir(SCENARIOS)
                    if name.endswith(".toml"))
    missing = set(undone) ^ {name for name, _ in CASES}

    def each_has_a_case():
        if missing:
            raise Failure("a scenario without a case, or a case without one: %s" % missing)
    return emulated.run_cases("scenarios", [("each_has_a_case", each_has_a_case), *CASES,
                                             *BY_WRITES])


if __name__ == "__main__":
    sys.exit(main())
