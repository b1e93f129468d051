"""librdmaemu.so.1 exports its API, and the waits, clocks and timers that it replaces. It exports no
other name, because the name could replace a function of the program. Functions that a forked child
calls have no static variables that a thread of the parent may be initializing.

usage: exports.py LIBRARY
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

# docs/embedding.md, "Who drives the host" and "Program time". Includes the names that
# _FORTIFY_SOURCE gives to some functions, and the functions that end a wait for a lock.
WAITS = set("""poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 read eventfd_read nanosleep
clock_nanosleep usleep sleep pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait sem_timedwait
sem_clockwait __poll_chk __ppoll_chk __read_chk pthread_cond_signal pthread_cond_broadcast
sem_post cnd_wait cnd_timedwait cnd_signal cnd_broadcast thrd_sleep mtx_timedlock pthread_mutex_timedlock
pthread_mutex_clocklock pthread_rwlock_timedrdlock pthread_rwlock_timedwrlock pthread_rwlock_clockrdlock
pthread_rwlock_clockwrlock pthread_timedjoin_np pthread_clockjoin_np sigtimedwait syscall clock_gettime
gettimeofday time timespec_get timerfd_create timerfd_settime timerfd_gettime timer_create timer_settime
timer_gettime timer_getoverrun timer_delete alarm ualarm setitimer getitimer""".split())


def exports():
    listed = subprocess.run([emulated.need("nm"), "-D", "--defined-only", sys.argv[1]], text=True,
                            stdout=subprocess.PIPE, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {row[-1].partition("@@GLIBC_")[0] for row in rows if row[-2].isupper() and row[-2] != "A"}


def the_api_and_the_waits_alone():
    names = {name for name in exports() if not name.startswith("rdmaemu_")}
    # The API has a version: rdmaemu_open@@RDMAEMU_1.0.
    if names != WAITS:
        raise Failure("missing: %s; too many: %s" % (sorted(WAITS - names), sorted(names - WAITS)))


# Static variables that are initialized before a child of fork(2) needs them, or thread-local.
INITIALIZED_BEFORE = {"rdmaemu::runtime::EventfdSignal::OfProcess()::signal",
                      "rdmaemu::embedded::ProcessHost::Get()::host",
                      "rdmaemu::embedded::LastError[abi:cxx11]()::message"}


def no_child_waits_for_a_static_variable():
    """The first call of a function initializes its static variable, and other threads wait for it.
    If a program forks meanwhile, its child would wait for ever."""
    listed = subprocess.run([emulated.need("nm"), "-C", sys.argv[1]], text=True,
                            stdout=subprocess.PIPE, check=True).stdout
    prefix = " b guard variable for "
    found = {line.partition(prefix)[2] for line in listed.splitlines() if prefix in line}
    if not INITIALIZED_BEFORE & found:
        raise Failure("the library has no symbols")
    found = {name for name in found if "::runtime::" in name or "::embedded::" in name}
    if not found <= INITIALIZED_BEFORE:
        raise Failure("use an atomic variable for %s" % sorted(found - INITIALIZED_BEFORE))


if __name__ == "__main__":
    sys.exit(emulated.run_cases("embedded.exports", [(case.__name__, case) for case in (
        the_api_and_the_waits_alone, no_child_waits_for_a_static_variable)]))
