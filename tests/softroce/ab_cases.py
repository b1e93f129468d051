"""`rdmaemu ab` (docs/ab.md): Debian's programs and the epoll example make the same calls, and see the
same events and completions, on the emulator and on the machine's own rdma_rxe."""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from emulated import RDMAEMU, Emulator, Failure  # noqa: E402
from peers import KERNEL  # noqa: E402

LIMIT_S = 150
SERVICE = os.path.abspath("docs/examples/epoll/service")
PORT = 7471
HERE = os.path.dirname(os.path.abspath(__file__))


def sees_the_same(server, client, known=None):
    ab(["--server", server, "--client", client], known)


def ab(what, known):
    with Emulator() as emulator:
        done = subprocess.run(
            [RDMAEMU, "ab", "--timeout", "60s", "--b-address", KERNEL[4], *what,
             *(["--accept", os.path.join(HERE, known)] if known else [])],
            env=dict(os.environ, RDMAEMU_DIR=emulator.directory), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=LIMIT_S)
    if done.returncode != 0:
        raise Failure("status %d\n%s" % (done.returncode, done.stdout))


def rping_sees_the_same_on_both_backends():
    sees_the_same("rping -s -a {address} -C 3", "rping -c -a {address} -C 3", "ab_rping.toml")


def ucmatose_sees_the_same_on_both_backends():
    sees_the_same("ucmatose -b {address}", "ucmatose -s {address} -b {address}")


def udaddy_sees_the_same_on_both_backends():
    sees_the_same("udaddy -b {address}", "udaddy -s {address} -b {address}", "ab_udaddy.toml")


def the_epoll_example_sees_the_same_on_both_backends():
    # The service runs until a signal ends it. With two requests, the second one's buffer would depend
    # on whether the first answer's completion was polled before.
    with tempfile.NamedTemporaryFile(prefix="service-") as pid:
        sees_the_same(
            "echo $$ >%s; exec %s serve %d" % (pid.name, SERVICE, PORT),
            "%s ask {address} %d hello && kill -TERM $(cat %s)" % (SERVICE, PORT, pid.name),
            "ab_service.toml")


def ib_write_bw_with_rdma_cm_sees_the_same_on_both_backends():
    # The scenario's rule delays the client's second connection until the server listens again.
    ab(["--scenario", os.path.join(HERE, "ab_perftest_scenario.toml")], "ab_perftest.toml")


def ab_cases():
    return [("ab." + case.__name__, case) for case in (
        rping_sees_the_same_on_both_backends, ucmatose_sees_the_same_on_both_backends,
        udaddy_sees_the_same_on_both_backends, the_epoll_example_sees_the_same_on_both_backends,
        ib_write_bw_with_rdma_cm_sees_the_same_on_both_backends)]
