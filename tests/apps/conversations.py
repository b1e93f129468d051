"""Programs that send small messages use lanes, and keep to them. A lane closes for many
reasons, and then the messages pass the hosts until there is another one. No program can see the
difference, so a conversation that stays off its lanes shows only in the counters."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses, free_tcp_port  # noqa: E402

TALKER = os.path.abspath(sys.argv[1])
LIMIT_S = 120
MESSAGES = 20000
# The most of a hundred messages that pass hosts. One of 500 is too large for a lane. On a busy machine
# a conversation loses its lanes now and then. One that cannot return has almost all messages there.
MOST_BY_HOSTS = 5
# The least of a hundred messages that a stream on several queue pairs passes without the host. Beside
# other work 16 to 26 were measured, and 0 while a completion queue had one lane.
LEAST_OF_STREAM = 3


def counters_after(hosts, options, addresses, server, await_server, client):
    """The counters of all hosts after both programs have ended, added up. `await_server` returns when the client
    may start."""
    with Emulator() as emulator:
        holders = []
        for host, address in zip(hosts, addresses):
            holders.append(emulator.start(host, address, ["sh", "-c", "echo up; exec cat"], options))
            if not holders[-1].wait_for_text("up\n", 30):
                raise Failure(holders[-1].describe())
        first = emulator.start(hosts[0], addresses[0], server)
        await_server(first)
        second = emulator.start(hosts[-1], addresses[-1], client)
        if second.wait(LIMIT_S) != 0 or first.wait(LIMIT_S) != 0:
            raise Failure(second.describe() + first.describe())
        each = [emulator.host(host)["counters"] for host in hosts]
        for holder in holders:
            holder.end()
        return {name: sum(counters[name] for counters in each)
                for name in ("messages_sent", "messages_by_permit", "messages_by_lane")}


def await_talker(server):
    if not server.wait_for_text("listens\n", 30):
        raise Failure(server.describe())


def counters_of(hosts, options, receives, polled):
    """The counters after a conversation. One call posts so many receives, and one returns at most so many
    completions."""
    addresses = free_addresses(len(hosts))
    talker = [TALKER, addresses[0], str(free_tcp_port()), str(MESSAGES), str(receives), str(polled)]
    return counters_after(hosts, options, addresses, talker, await_talker, [*talker, "client"])


def stream_uses_lanes(queue_pairs):
    emulated.need("ib_send_bw")
    addresses = free_addresses(1)
    port = free_tcp_port()
    program = ["ib_send_bw", "-F", "-s", "64", "-n", "5000", "-q", str(queue_pairs), "-p", str(port)]
    counters = counters_after(("a",), (), addresses, program,
                              lambda server: emulated.wait_for_tcp_listener(port, server), [*program, addresses[0]])
    if counters["messages_by_lane"] * 100 < counters["messages_sent"] * LEAST_OF_STREAM:
        raise Failure("the host executed nearly all messages of a stream: %s" % counters)


def keeps_to_lanes(hosts, receives=1, polled=2):
    counters = counters_of(hosts, (), receives, polled)
    by_hosts = counters["messages_sent"] - counters["messages_by_lane"]
    if counters["messages_sent"] < 2 * MESSAGES or by_hosts * 100 > counters["messages_sent"] * MOST_BY_HOSTS:
        raise Failure("of %d messages, %d passed hosts: %s" % (counters["messages_sent"], by_hosts, counters))


def passes_hosts(hosts, options):
    counters = counters_of(hosts, options, 1, 2)
    if counters["messages_sent"] < 2 * MESSAGES or counters["messages_by_lane"] + counters["messages_by_permit"] > 0:
        raise Failure("%s" % counters)


if __name__ == "__main__":
    off = ("--payload-shortcuts", "off")
    sys.exit(emulated.run_cases("conversations", [
        ("one_host", lambda: keeps_to_lanes(("a",))),
        ("two_hosts", lambda: keeps_to_lanes(("a", "b"))),
        # With many receives posted at a time, a closed lane is found open by polls only.
        ("one_host_receives_in_lists", lambda: keeps_to_lanes(("a",), 16, 16)),
        ("two_hosts_receives_in_lists", lambda: keeps_to_lanes(("a", "b"), 16, 16)),
        ("two_hosts_receives_in_lists_polled_singly", lambda: keeps_to_lanes(("a", "b"), 16, 1)),
        # A poll gives room for 64 messages only.
        ("two_hosts_receives_in_long_lists", lambda: keeps_to_lanes(("a", "b"), 128, 16)),
        ("one_host_streams", lambda: stream_uses_lanes(8)),
        ("one_host_without_shortcuts", lambda: passes_hosts(("a",), off)),
        ("two_hosts_without_shortcuts", lambda: passes_hosts(("a", "b"), off)),
        ("two_hosts_by_udp", lambda: passes_hosts(("a", "b"), ("--wire", "udp"))),
    ]))
