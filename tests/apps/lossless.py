"""Two hosts of one machine lose no packets between them, however many packets they send and however
small the receive buffers of their sockets are. Runs perftest's programs over UC, UD and RC, and
checks the counters afterwards."""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses, free_tcp_port  # noqa: E402

LIMIT_S = 120
# Packets lost on the way, at any place.
LOSSES = ("socket_full", "network_full", "out_of_sequence")


def hold(emulator, host, address):
    """Keeps a host running, so that its counters can be read at the end."""
    program = emulator.start(host, address, ["sh", "-c", "echo up; exec cat"])
    if not program.wait_for_text("up\n", 30):
        raise Failure(program.describe())
    return program


def nothing_is_lost(kind, size, count, prefix=()):
    emulated.need("ib_send_bw")
    server_address, client_address = free_addresses(2)
    port = str(free_tcp_port())
    with Emulator(prefix) as emulator:
        holders = [hold(emulator, "a", server_address), hold(emulator, "b", client_address)]
        # The receiver's ring is as long as the run. UC and UD drop a message that finds no receive, and
        # ib_send_bw then waits for it without end, however slow the machine lets the receiver be.
        program = ["ib_send_bw", "-d", "rxe0", "-F", "-c", kind, "-s", str(size), "-n", str(count), "-p",
                   port, "-r", str(count)]
        server = emulator.start("a", server_address, program)
        emulated.wait_for_tcp_listener(int(port), server)
        client = emulator.start("b", client_address, [*program, server_address])
        ended = client.wait(LIMIT_S) == 0 and server.wait(LIMIT_S) == 0
        counters = {name: emulator.host(name)["counters"] for name in ("a", "b")}
        if not ended:
            raise Failure("%s%scounters: %s" % (client.describe(), server.describe(), counters))
        for name, each in counters.items():
            for loss in LOSSES:
                if each["dropped"][loss] != 0:
                    raise Failure("host %s: %s %d; of %s" % (name, loss, each["dropped"][loss], counters))
        if counters["a"]["datagrams_received"] < counters["b"]["datagrams_sent"]:
            raise Failure("%s" % counters)
        for holder in holders:
            holder.end()


def with_ordinary_buffers(kind, size, count):
    """Without the right to receive buffers larger than the system's limit."""
    if shutil.which("setpriv") is None:
        raise emulated.Skip("setpriv is not installed")
    nothing_is_lost(kind, size, count, ["setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin"]
                    if os.geteuid() == 0 else ())


if __name__ == "__main__":
    cases = [("%s_%d_bytes" % (kind.lower(), size),
              lambda kind=kind, size=size, count=count: with_ordinary_buffers(kind, size, count))
             for kind, size, count in (("UC", 65536, 2000), ("UC", 4097, 4000), ("UC", 64, 4000),
                                       ("UD", 1024, 4000), ("UD", 64, 4000), ("RC", 65536, 2000))]
    sys.exit(emulated.run_cases("lossless", cases))
