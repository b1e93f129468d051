"""librdmaemu.so.1 exports its API and the waits that it takes the place of, and nothing else: another name
could take the place of a function of the program.

usage: exports.py LIBRARY
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

# docs/embedding.md, "Who drives the host", with the names that _FORTIFY_SOURCE makes of some, and what
# ends a wait for a lock.
WAITS = set("""poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 read eventfd_read nanosleep
clock_nanosleep usleep sleep pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait sem_timedwait
sem_clockwait __poll_chk __ppoll_chk __read_chk pthread_cond_signal pthread_cond_broadcast
sem_post""".split())


def exports():
    listed = subprocess.run([emulated.need("nm"), "-D", "--defined-only", sys.argv[1]], text=True,
                            stdout=subprocess.PIPE, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {row[-1] for row in rows if row[-2].isupper() and row[-2] != "A"}


def the_api_and_the_waits_alone():
    names = {name for name in exports() if not name.startswith("rdmaemu_")}
    # The API has a version: rdmaemu_open@@RDMAEMU_1.0.
    if names != WAITS:
        raise Failure("missing: %s; too many: %s" % (sorted(WAITS - names), sorted(names - WAITS)))


if __name__ == "__main__":
    sys.exit(emulated.run_cases("embedded.exports",
                                [("the_api_and_the_waits_alone", the_api_and_the_waits_alone)]))
