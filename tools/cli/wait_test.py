"""`rdmaemu wait`: its conditions and time-outs, and that a wait does not count as a client."""

import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses  # noqa: E402

SERVER, CLIENT = free_addresses(2)
# A host on a busy machine answers within this time.
SHORT = ("--timeout", "1s")
CLOCK_NANOSLEEP = {"x86_64": "230", "aarch64": "115"}[os.uname().machine]


def check(holds, text):
    if not holds:
        raise Failure(text)


def expect(result, status, *words):
    said = result.stdout + result.stderr
    check(result.returncode == status, "status %s instead of %s: %s" % (result.returncode, status, said))
    for word in words:
        check(word in said, "%r is not in: %s" % (word, said))


def wait(emulator, *conditions, host="a"):
    return emulator.rdmaemu("wait", "--host", host, *conditions)


def start_wait(emulator, *conditions):
    return emulator.start_outside([emulated.RDMAEMU, "wait", "--host", "a", *conditions], emulator.env)


def in_system_call(pid, number):
    with open("/proc/%d/syscall" % pid) as file:
        return file.read().startswith(number + " ")


def hold(emulator, host, address):
    program = emulator.start(host, address, ["sh", "-c", "echo up; exec cat"])
    check(program.wait_for_text("up\n", 30), program.describe())
    return program


def the_clients_of_the_readme_find_their_servers():
    """Runs a server and its client without reading the server's output."""
    emulated.need("rping")
    with Emulator() as emulator:
        for _ in range(10):
            server = emulator.start("a", SERVER, ["rping", "-s", "-a", SERVER, "-C", "3"])
            expect(wait(emulator, "--listening", "7174"), 0)
            client = emulator.start("b", CLIENT, ["rping", "-c", "-a", SERVER, "-C", "3", "-V"])
            check(client.wait(30) == 0, client.describe())
            check(server.wait(30) == 0, server.describe())


def a_wait_may_begin_before_its_host():
    emulated.need("rping")
    with Emulator() as emulator:
        waits = [start_wait(emulator, "--listening", "7174", "--timeout", "60s"),
                 start_wait(emulator, "--event", "ESTABLISHED", "--timeout", "60s"),
                 start_wait(emulator, "--timeout", "60s")]
        server = emulator.start("a", SERVER, ["rping", "-s", "-a", SERVER, "-P", "-p", "7174"])
        check(waits[0].wait(60) == 0, waits[0].describe())
        check(waits[2].wait(60) == 0, waits[2].describe())
        check(waits[1].process.poll() is None, waits[1].describe())
        expect(emulator.rdmaemu("run", "--host", "b", "--address", CLIENT, "--", "rping", "-c", "-a", SERVER,
                                "-C", "1"), 0)
        check(waits[1].wait(60) == 0, waits[1].describe())
        server.end()


def a_time_out_says_what_was_there_instead():
    emulated.need("rping")
    with Emulator() as emulator:
        expect(wait(emulator, *SHORT), 124, "error: waited 1s: no host a is running", "running: none")
        server = emulator.start("a", SERVER, ["rping", "-s", "-a", SERVER, "-P"])
        expect(wait(emulator, "--listening", "7174"), 0)
        expect(wait(emulator, "--listening", "7175", *SHORT), 124,
               "host a has no program that listens on port 7175; it has listeners on: 7174")
        expect(wait(emulator, "--device", "rxe1", *SHORT), 124, "host a has no device rxe1; it has: rxe0")
        expect(wait(emulator, "--event", "established", *SHORT), 124,
               "host a delivered RDMA_CM_EVENT_ESTABLISHED 0 of 1 times")
        server.end()


def a_device_is_there_when_its_port_is_active():
    with Emulator() as emulator:
        holder = hold(emulator, "a", SERVER)
        expect(wait(emulator, "--device", "rxe0"), 0)
        expect(emulator.rdmaemu("port", "down", "rxe0", "--host", "a"), 0)
        expect(wait(emulator, "--device", "rxe0", *SHORT), 124, "device rxe0, whose port is down")
        waiting = start_wait(emulator, "--device", "rxe0", "--timeout", "60s")
        expect(emulator.rdmaemu("port", "up", "rxe0", "--host", "a"), 0)
        check(waiting.wait(60) == 0, waiting.describe())
        holder.end()


def an_event_is_counted_from_the_hosts_start():
    emulated.need("rping")
    with Emulator() as emulator:
        server = emulator.start("a", SERVER, ["rping", "-s", "-a", SERVER, "-P"])
        expect(wait(emulator, "--listening", "7174"), 0)
        for _ in range(2):
            expect(emulator.rdmaemu("run", "--host", "b", "--address", CLIENT, "--", "rping", "-c", "-a",
                                    SERVER, "-C", "1"), 0)
        expect(wait(emulator, "--event", "RDMA_CM_EVENT_ESTABLISHED", "--times", "2"), 0)
        expect(wait(emulator, "--event", "established", "--times", "3", *SHORT), 124, "2 of 3 times")
        server.end()


def all_conditions_must_hold_and_the_status_can_be_had():
    with Emulator() as emulator:
        holder = hold(emulator, "a", SERVER)
        expect(wait(emulator, "--device", "rxe0", "--listening", "7174", *SHORT), 124, "port 7174")
        result = wait(emulator, "--device", "rxe0", "--json")
        expect(result, 0)
        check(json.loads(result.stdout)["name"] == "a", result.stdout)
        holder.end()


def a_wait_does_not_keep_a_host_alive():
    with Emulator() as emulator:
        waiting = start_wait(emulator, "--listening", "7174", "--timeout", "60s")
        expect(emulator.rdmaemu("run", "--host", "a", "--address", SERVER, "--", "true"), 0)
        ended = emulator.start_outside(["sh", "-c", "while [ -e %s/a.lock ]; do :; done" %
                                        emulator.directory])
        check(ended.wait(30) == 0, "the host has not ended in 30 s")
        check(waiting.process.poll() is None, waiting.describe())
        waiting.end()


def a_host_that_does_not_answer_is_named():
    with Emulator() as emulator:
        holder = hold(emulator, "a", SERVER)
        host = emulator.host("a")["pid"]
        os.kill(host, signal.SIGSTOP)
        try:
            expect(wait(emulator, *SHORT), 124,
                   "waited 1s: host a (pid %d) does not answer" % host)
        finally:
            os.kill(host, signal.SIGCONT)
        holder.end()


def a_host_that_replied_before_is_not_reported_as_hung():
    with Emulator() as emulator:
        holder = hold(emulator, "a", SERVER)
        host = emulator.host("a")["pid"]
        waiting = start_wait(emulator, "--event", "established", "--timeout", "2s")
        # It sleeps only after a reply.
        while not in_system_call(waiting.process.pid, CLOCK_NANOSLEEP):
            check(waiting.process.poll() is None, waiting.describe())
        os.kill(host, signal.SIGSTOP)
        try:
            check(waiting.wait(30) == 124, waiting.describe())
        finally:
            os.kill(host, signal.SIGCONT)
        check("ESTABLISHED 0 of 1 times; its last reply is " in waiting.output, waiting.describe())
        check("kill -9" not in waiting.output, waiting.describe())
        holder.end()


def wrong_words_are_errors():
    with Emulator() as emulator:
        expect(wait(emulator, "--event", "ESTABLISHD"), 2, "there is no event \"ESTABLISHD\"")
        expect(wait(emulator, "--timeout", "soon"), 2, "soon")
        expect(wait(emulator, "--listening", "65536"), 2, "--listening", "from 1 to 65535")
        expect(wait(emulator, "--event", ""), 2, "there is no event")
        expect(wait(emulator, "--device", ""), 2, "--device is empty")
        expect(wait(emulator, "--times", "3"), 2, "--event NAME")
        expect(wait(emulator, "--event", "ESTABLISHED", "--times", "-1"), 2, "--times")
        expect(wait(emulator, "--event", "ESTABLISHED", "--times", "0"), 2, "--times")
        expect(emulator.rdmaemu("wait", "--help"), 0, "Example")


CASES = [
    the_clients_of_the_readme_find_their_servers,
    a_wait_may_begin_before_its_host,
    a_time_out_says_what_was_there_instead,
    a_device_is_there_when_its_port_is_active,
    an_event_is_counted_from_the_hosts_start,
    all_conditions_must_hold_and_the_status_can_be_had,
    a_wait_does_not_keep_a_host_alive,
    a_host_that_does_not_answer_is_named,
    a_host_that_replied_before_is_not_reported_as_hung,
    wrong_words_are_errors,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("wait", [(case.__name__, case) for case in CASES]))
