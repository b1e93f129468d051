"""Runs the contract tests under the emulator's other clocks. The results of RDMA CM and verbs do
not depend on the clock. Tests without timers run under the virtual clock alone. run.py runs each
binary on hosts of its own, a few at once. Those that wait for minutes run beside the others, and on
the real clock here, too.

usage: clocks.py TABLE BINARY,HOSTS,KIND,PROFILE,CLOCKS...; KIND is of run.py, or `minutes`; CLOCKS is `all`
or `virtual`
RDMA_TEST_CLOCKS=virtual,manual chooses some of CLOCKS.
"""

import concurrent.futures
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402

# With scaled:4 a CM message is repeated after a second of the program's time. An event that does
# not arrive within 300 ms there would not arrive on the real clock.
CLOCKS = ("scaled:4", "virtual", "manual")
# For tests that always wait for the CM's retries.
CLOCKS_OF_MINUTES = ("real", "scaled:20", "virtual", "manual")
AT_ONCE = 4
LIMIT_S = 800


class Case:
    def __init__(self, clock, text):
        self.clock = clock
        binary, self.hosts, self.kind, self.profile, self.clocks = text.split(",")
        self.binary = os.path.abspath(binary)
        self.waits = self.kind == "minutes"

    @property
    def name(self):
        file = os.path.basename(self.binary).removesuffix("_binary")
        return "%s_%s%s" % (self.clock.replace(":", ""), file,
                            "" if self.profile == "rxe" else "_" + self.profile)

    def run(self):
        env = dict(os.environ)
        for name in ("XML_OUTPUT_FILE", "TEST_UNDECLARED_OUTPUTS_DIR"):
            env.pop(name, None)
        command = [sys.executable, os.path.join(HERE, "run.py"), self.binary, self.hosts, sys.argv[1],
                   "slow" if self.waits else self.kind, "--clock", self.clock]
        if self.profile != "rxe":
            command += ["--profile", self.profile]
        if self.clock == "virtual":
            # The other tests of two hosts use the default, shared memory.
            command += ["--wire", "udp"]
        result = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, timeout=LIMIT_S)
        if result.returncode != 0:
            raise emulated.Failure(result.stdout.decode(errors="replace"))


def cases():
    wanted = os.environ.get("RDMA_TEST_CLOCKS", "").split(",")
    for text in sys.argv[2:]:
        _, _, kind, _, clocks = text.split(",")
        for clock in CLOCKS_OF_MINUTES if kind == "minutes" else CLOCKS:
            if clocks != "all" and clock != clocks:
                continue
            if wanted == [""] or clock.split(":")[0] in wanted:
                yield Case(clock, text)


def main():
    with concurrent.futures.ThreadPoolExecutor(len(CLOCKS_OF_MINUTES)) as waiting, \
            concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {case.name: (waiting if case.waits else pool).submit(case.run) for case in cases()}
        return emulated.run_cases("contract.clocks", [(name, run.result) for name, run in runs.items()])


if __name__ == "__main__":
    sys.exit(main())
