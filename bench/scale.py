"""Starts an emulated host and runs scale_bench on it, which measures the cost of one more call when
the host already holds many objects.

usage: scale.py BINARY [MOST_QPS [MOST_IDS [MOST_CONNECTIONS]]]
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests",
                                "support"))
from emulated import RDMAEMU, Emulator, free_addresses  # noqa: E402

LIMIT_S = 1800
DEFAULTS = ["20000", "50000", "10000"]


def main():
    binary = os.path.abspath(sys.argv[1])
    most = (sys.argv[2:] + DEFAULTS[len(sys.argv) - 2:])[:len(DEFAULTS)]
    worst = 0
    # Each part uses its own host, because memory that one part frees would hide the use of the
    # next.
    for part, count in zip(["qps", "ids", "connections"], most):
        address = free_addresses(1)[0]
        with Emulator() as emulator:
            env = {"RDMA_TEST_LOCAL": address, "RDMA_TEST_RDMAEMU": RDMAEMU}
            bench = emulator.start("scale", address, [binary, part, count], env=env)
            status = bench.wait(LIMIT_S)
            print(bench.output)
            if status is None:
                print("%s: not done in %d s" % (part, LIMIT_S))
            worst = max(worst, 1 if status is None else status)
    return worst


if __name__ == "__main__":
    sys.exit(main())
