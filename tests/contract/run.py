"""Runs a contract test on one emulated host, or on two that are joined by UDP on loopback.

usage: run.py BINARY HOSTS [TEST ARGUMENTS...]
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from emulated import RDMAEMU, Emulator, free_addresses  # noqa: E402

LIMIT_S = int(os.environ.get("TEST_TIMEOUT", "900")) - 20  # before Bazel ends us without a word


def main():
    binary, hosts = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    addresses = free_addresses(hosts)
    local, remote = addresses[0], addresses[-1]
    with Emulator() as emulator:
        # A host lives as long as it has clients: somebody holds each one.
        machines = [("a", local)] + ([("b", remote)] if hosts == 2 else [])
        for name, address in machines:
            holder = emulator.start(name, address, [binary, "--hold"])
            if not holder.wait_for_text("holding", 60):
                print("host %s did not start\n%s" % (name, holder.describe()))
                return 1
        env = {
            "RDMA_TEST_LOCAL": local,
            "RDMA_TEST_REMOTE": remote,
            "RDMA_TEST_RDMAEMU": RDMAEMU,
            "RDMA_TEST_HOSTS": ",".join(name for name, _ in machines),
        }
        if hosts == 2:
            env["RDMA_TEST_PEER_ENV"] = "RDMAEMU_HOST=b"
        test = emulator.start("a", local, [binary, *sys.argv[3:]], env=env)
        status = test.wait(LIMIT_S)
        print(test.output)
        if status is None:
            print("the test did not end in %d s" % LIMIT_S)
        return 1 if status is None else status


if __name__ == "__main__":
    sys.exit(main())
