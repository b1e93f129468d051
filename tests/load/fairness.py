"""A misbehaving program slows only itself. Beside each kind of hog another program finishes its
rounds, and the hog continues.

usage: fairness.py WORKER
"""

import os
import resource
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip, free_addresses  # noqa: E402

ROUNDS = 2000
CONNECTIONS = 4200  # more than CallServer::kMaxConnections
LIMIT_S = 100  # for work that takes a fraction of a second undisturbed
HOGS = ["calls", "cm_events", "completion_events", "async_events", "doorbells", "full_counters"]
HOST_STATUS = struct.pack("II", 3, 0)  # CallOp::kHostStatus, no body (emulator/abi/calls.h)


def start_host(emulator):
    address = free_addresses(1)[0]
    emulator.start_host("shared", ["--address", address])
    return address


def run_victim(emulator, address, worker):
    victim = emulator.start("shared", address, [worker, "victim", str(ROUNDS)])
    if victim.wait(LIMIT_S) != 0 or "%d rounds" % ROUNDS not in victim.output:
        raise Failure("the other program did not get through\n" + victim.describe())


def beside(kind, worker):
    with Emulator() as emulator:
        address = start_host(emulator)
        hog = emulator.start("shared", address, [worker, "hog", kind],
                             env={"RDMA_TEST_LOCAL": address})
        if not hog.wait_for_text("hogging", 60):
            raise Failure("the hog did not start\n" + hog.describe())
        run_victim(emulator, address, worker)
        if hog.process.poll() is not None:
            raise Failure("the hog did not last\n" + hog.describe())


def beside_one_who_never_reads(worker):
    """Makes endless calls on a connection and never reads the replies. The host closes the
    connection."""
    with Emulator() as emulator:
        address = start_host(emulator)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(os.path.join(emulator.directory, "shared.sock"))
        dropped = threading.Event()

        def flood():
            try:
                while True:
                    connection.send(HOST_STATUS)
            except OSError:
                dropped.set()

        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        run_victim(emulator, address, worker)
        if not dropped.wait(LIMIT_S):
            raise Failure("the host still serves who never reads")
        thread.join()
        connection.close()


def beside_one_who_takes_all_connections(worker):
    """Opens as many connections as a host allows. One process gets only few of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most != resource.RLIM_INFINITY and most < CONNECTIONS + 100:
        raise Skip("only %d descriptors for a process" % most)
    with Emulator() as emulator:
        address = start_host(emulator)
        taken = []
        try:
            for _ in range(CONNECTIONS):
                taken.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                taken[-1].connect(os.path.join(emulator.directory, "shared.sock"))
            run_victim(emulator, address, worker)
        finally:
            for one in taken:
                one.close()


def main():
    worker = os.path.abspath(sys.argv[1])
    cases = [(kind, lambda kind=kind: beside(kind, worker)) for kind in HOGS]
    cases.append(("never_reads", lambda: beside_one_who_never_reads(worker)))
    cases.append(("all_connections", lambda: beside_one_who_takes_all_connections(worker)))
    return emulated.run_cases("fairness", cases)


if __name__ == "__main__":
    sys.exit(main())
