"""Contract tests under a clock that is not the real one: what RDMA CM and verbs say does not depend on
how time passes. Each binary is run by run.py on hosts of its own, a few at once.

usage: clocks.py CLOCK HOSTS TABLE SLOW_BINARY BINARY...
"""

import concurrent.futures
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402

AT_ONCE = 3
LIMIT_S = 800


def run(binary, kind, clock, hosts, table):
    env = dict(os.environ)
    for name in ("XML_OUTPUT_FILE", "TEST_UNDECLARED_OUTPUTS_DIR"):
        env.pop(name, None)
    result = subprocess.run(
        [sys.executable, os.path.join(HERE, "run.py"), binary, hosts, table, kind, "--clock", clock],
        env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=LIMIT_S)
    if result.returncode != 0:
        raise emulated.Failure(result.stdout.decode(errors="replace"))


def main():
    clock, hosts, table, slow = sys.argv[1:5]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {binary: pool.submit(run, binary, "slow" if binary == slow else "common", clock,
                                    hosts, table) for binary in sys.argv[4:]}
        return emulated.run_cases("contract.clock." + clock, [
            (os.path.basename(binary).removesuffix("_binary"), one.result)
            for binary, one in runs.items()])


if __name__ == "__main__":
    sys.exit(main())
