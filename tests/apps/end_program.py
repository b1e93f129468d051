"""The rule action `end_program` against rping: the right program ends, and the program at the other
end sees what it sees when its peer is killed.

usage: end_program.py"""

import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure  # noqa: E402

LIMIT_S = 30
KILLED = 128 + signal.SIGKILL  # as `rdmaemu run` reports it
CASES = []


def case(function):
    CASES.append((function.__name__, function))
    return function


class Pair:
    """A server and a client of rping, on one host or on two. A context manager."""

    def __init__(self, rule, hosts=1):
        self.rule = rule
        self.addresses = emulated.free_addresses(hosts)
        self.emulator = Emulator()

    def trace(self, number):
        return os.path.join(self.emulator.directory, "host%d.jsonl" % number)

    def __enter__(self):
        emulated.need("rping")
        self.emulator.__enter__()
        for number, address in enumerate(self.addresses):
            self.emulator.start_host("h%d" % number, [
                "--address", address, "--clock", "virtual", "--trace", self.trace(number)])
        added = self.emulator.rdmaemu("fault", "add", "--host", self.client_host, self.rule)
        check(added.returncode == 0, added.stdout + added.stderr)
        return self

    def __exit__(self, *_):
        self.emulator.__exit__()

    @property
    def client_host(self):
        return "h%d" % (len(self.addresses) - 1)

    def run(self):
        """Returns both programs and the exit statuses of both."""
        rping = ["rping", "-a", self.addresses[0], "-C", "3", "-v"]
        server = self.start("h0", [*rping, "-s"])
        emulated.wait_for_calls([self.trace(0)], "listen", 1)
        client = self.start(self.client_host, [*rping, "-c"])
        return server, server.wait(LIMIT_S), client, self.end_of(client)

    @staticmethod
    def end_of(client):
        """Returns the exit status of the client. If DISCONNECTED arrives before rping's main thread
        has seen the connection, rping waits for a flushed receive without moving its queue pair to
        the error state (err3 in rdma-core's rping.c). No device lets it end then."""
        if (client.wait_for_text("connect error -1", LIMIT_S) and
                "client DISCONNECT EVENT" in client.output):
            client.end()
            return 1
        return client.wait(LIMIT_S)

    def start(self, host, argv):
        return self.emulator.start_outside([RDMAEMU, "run", "--host", host, "--", *argv],
                                           self.emulator.env)

    def records(self, kind):
        with open(self.trace(len(self.addresses) - 1)) as lines:
            records = [json.loads(line) for line in lines]
        return [record for record in records if record["kind"] == kind]


def check(holds, text):
    if not holds:
        raise Failure(text)


def expect(program, status, wanted):
    check(status == wanted, "%s instead of %s\n%s" % (status, wanted, program.describe()))


@case
def a_server_that_is_killed_when_established_disconnects_its_client():
    with Pair('name = "r", at = "event.established", end_program = "self"') as pair:
        server, server_status, client, client_status = pair.run()
        expect(server, server_status, KILLED)
        check(client_status not in (None, KILLED), client.describe())
        client.expect("^client DISCONNECT EVENT")
        check([one["object"] for one in pair.records("fault")] == ["r"], "one firing")


@case
def a_client_ends_its_server_before_the_connection_is_established():
    with Pair('at = "event.connect_response", end_program = "peer"') as pair:
        server, server_status, client, client_status = pair.run()
        expect(server, server_status, KILLED)
        check(client_status not in (0, None, KILLED), client.describe())


@case
def a_program_that_is_killed_at_a_post_disconnects_its_peer():
    with Pair('at = "call.post_send", nth = 3, end_program = "self"') as pair:
        server, server_status, client, client_status = pair.run()
        statuses = sorted([server_status == KILLED, client_status == KILLED])
        check(statuses == [False, True], server.describe() + client.describe())
        survivor = server if client_status == KILLED else client
        survivor.expect("DISCONNECT EVENT")


@case
def on_two_hosts_the_trace_says_that_there_is_no_such_program():
    with Pair('name = "r", at = "call.connect", end_program = "peer"', hosts=2) as pair:
        server, server_status, client, client_status = pair.run()
        expect(server, server_status, 0)
        expect(client, client_status, 0)
        failed = pair.records("fault.failed")
        check([one["object"] for one in failed] == ["r"], "one failure: %s" % failed)
        check("no such program on this host" in failed[0]["reason"], str(failed))


if __name__ == "__main__":
    sys.exit(emulated.run_cases("end_program", CASES))
