"""A host dies (SIGKILL) and restarts at once at the same address, while its peer still has the
earlier connections. New connections succeed at once.

usage: restart.py
"""

import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses, free_tcp_port  # noqa: E402

LIVES = 4


def client(address, port, count):
    return ["rping", "-c", "-a", address, "-p", str(port), "-C", str(count), "-v"]


def connects_again_at_once():
    emulated.need("rping")
    local, peer = free_addresses(2)
    port = free_tcp_port()
    with Emulator() as emulator:
        emulator.start_listening("peer", peer,
                                 ["rping", "-s", "-P", "-a", peer, "-p", str(port)])
        for life in range(LIVES):
            endless = emulator.start("mortal", local, client(peer, port, 1 << 30))
            if not endless.wait_for_text("rdma-ping-3:", 30):
                raise Failure("life %d: no connection\n%s" % (life, endless.describe()))
            os.kill(emulator.host("mortal")["pid"], signal.SIGKILL)
            if endless.wait(30) is None:
                raise Failure("life %d: a program outlived its host\n%s" % (
                    life, endless.describe()))
            # Earlier connections may time out meanwhile, but the latest one is new.
            if emulator.host("peer")["connections"] == 0:
                raise Failure("life %d: the peer had forgotten already; nothing was tried" % life)
            again = emulator.start("mortal", local, client(peer, port, 5))
            if again.wait(30) != 0 or "rdma-ping-4:" not in again.output:
                raise Failure("life %d: no new connection\n%s" % (life, again.describe()))


if __name__ == "__main__":
    sys.exit(emulated.run_cases("restart", [("connects_again_at_once", connects_again_at_once)]))
