"""Measures how long UNREACHABLE by time-out takes with the virtual clock, on one host and on two.
16 REQs are all lost, which takes about 100 seconds of the hosts' time.

usage: unreachable.py WORKER [RUNS]
"""

import os
import re
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests",
                                "support"))
from emulated import Emulator, Failure, free_addresses  # noqa: E402

LOST = '[[fault]]\nname = "lost"\nat = "cm.req"\ndrop = true\n'
PORT, LIMIT_S = "7471", 300


def measure_ms(worker, hosts, runs):
    server, client = free_addresses(2) if hosts == 2 else free_addresses(1) * 2
    with Emulator() as emulator:
        scenario = os.path.join(emulator.directory, "lost.toml")
        with open(scenario, "w") as text:
            text.write(LOST)
        options = ["--clock", "virtual"]
        serving = emulator.start("a", server, [worker, "serve", server, PORT, "0"],
                                 [*options, "--scenario", scenario])
        if not serving.wait_for_text("listening", 30):
            raise Failure(serving.describe())
        took_ms = []
        for _ in range(runs):
            program = emulator.start("b" if hosts == 2 else "a", client,
                                     [worker, "connect", server, PORT], options)
            program.wait(LIMIT_S)
            program.expect("^RDMA_CM_EVENT_UNREACHABLE -110$")
            took_ms.append(float(re.search(r"^after ([0-9.]+) ms$", program.output,
                                           re.MULTILINE).group(1)))
        return took_ms


def main():
    worker = os.path.abspath(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    for hosts in (1, 2):
        took_ms = measure_ms(worker, hosts, runs)
        print("rdma_connect to UNREACHABLE, %d host%s: median %.1f ms, worst %.1f ms of %d" %
              (hosts, "s" if hosts > 1 else "", statistics.median(took_ms), max(took_ms), runs))


if __name__ == "__main__":
    main()
