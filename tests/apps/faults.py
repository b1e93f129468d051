"""Fault rules apply to unmodified programs on the short paths as well: calls by the shared page,
and payloads in shared memory.

usage: faults.py CALLER
"""

import functools
import json
import os
import platform
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses, free_tcp_port  # noqa: E402

CALLER = os.path.abspath(sys.argv[1])
LIMIT_S = 60
FUTEX = {"x86_64": "202", "aarch64": "98"}  # its system call number
# The sizes: small and largest in shared memory, by process_vm_* alone, offered to a polling thread.
SIZES = (64, 256, 257, 65536)


def with_rules(emulator, *rules):
    path = os.path.join(emulator.directory, "rules.toml")
    with open(path, "w") as out:
        out.write("".join("[[fault]]\n%s\n" % rule for rule in rules))
    return ["--scenario", path]


def fault(emulator, *arguments):
    done = emulator.rdmaemu("fault", *arguments, "--host", "a")
    if done.returncode != 0:
        raise Failure(done.stderr)
    return done.stdout


def wait_until_fired(emulator, name, times):
    fault(emulator, "wait", name, "--times", str(times), "--timeout", "%ds" % LIMIT_S)


def held(emulator):
    return {rule["name"]: rule["held"] for rule in json.loads(fault(emulator, "list", "--json"))}


def advance(emulator, by):
    moved = emulator.rdmaemu("clock", "advance", by, "--host", "a")
    if moved.returncode != 0:
        raise Failure(moved.stderr)


def pid_of(program, name):
    """Returns the process that `rdmaemu run` started."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as stat, open("/proc/%s/comm" % pid) as comm:
                if stat.read().split(") ")[1].split()[1] == str(program.process.pid) and \
                        comm.read().strip() == name:
                    return pid
        except OSError:  # the process has ended
            continue
    raise Failure("no %s\n%s" % (name, program.describe()))


def sleeps_on_its_page(pid):
    """Returns whether the process sleeps on a futex. A process that waits for a message on its
    socket is in another system call."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        with open("/proc/%s/syscall" % pid) as text:
            if text.read().split()[0] == FUTEX[platform.machine()]:
                return True
        time.sleep(0.02)
    return False


def a_delayed_call_comes_late():
    """Tests the page and the socket. The call returns after its time, not before."""
    with Emulator() as emulator:
        program = emulator.start("a", free_addresses(1)[0], [CALLER], ["--clock", "manual", *with_rules(
            emulator, 'name = "page"\nat = "call.query_port"\nnth = 1\ndelay_ms = 50',
            'name = "socket"\nat = "call.create_cq"\ndelay_ms = 50')])
        for rule, call in (("page", "query_port"), ("socket", "create_cq")):
            if not program.wait_for_text(call + "\n", LIMIT_S):
                raise Failure(program.describe())
            wait_until_fired(emulator, rule, 1)
            advance(emulator, "49ms")
            if rule == "page" and platform.machine() in FUTEX and not sleeps_on_its_page(
                    pid_of(program, os.path.basename(CALLER))):
                raise Failure("the call did not go by the page\n" + program.describe())
            if call + " returned" in program.output:
                raise Failure("too early\n" + program.describe())
            advance(emulator, "1ms")
            if not program.wait_for_text(call + " returned 0", LIMIT_S):
                raise Failure(program.describe())
        if program.wait(LIMIT_S) != 0:
            raise Failure(program.describe())


def a_wait_ends_by_its_rule_also_where_the_host_stands_still():
    with Emulator() as emulator:
        program = emulator.start("a", free_addresses(1)[0], [CALLER], [
            "--clock", "manual", *with_rules(
                emulator, 'name = "gate"\nat = "call.query_port"\nnth = 1\nhold = true',
                'name = "stop"\nat = "call.create_cq"\npause_ms = 60000')])
        if not program.wait_for_text("query_port\n", LIMIT_S):
            raise Failure(program.describe())
        wait_until_fired(emulator, "gate", 1)
        early = emulator.rdmaemu("fault", "wait", "stop", "--timeout", "1ns", "--host", "a")
        if early.returncode != 124:
            raise Failure("status %d of a wait for what has not come\n%s" %
                          (early.returncode, early.stderr))
        waiting = emulator.start_outside([emulated.RDMAEMU, "fault", "wait", "stop", "--timeout",
                                          "%ds" % LIMIT_S, "--host", "a"])
        fault(emulator, "release", "gate")
        if waiting.wait(LIMIT_S) != 0:
            raise Failure(waiting.describe() + program.describe())
        program.end()


def a_held_call_stays_until_it_is_let_go():
    """Tests the page and the socket. Virtual time does not jump meanwhile."""
    with Emulator() as emulator:
        program = emulator.start("a", free_addresses(1)[0], [CALLER], [
            "--clock", "virtual", *with_rules(
                emulator, 'name = "page"\nat = "call.query_port"\nnth = 1\nhold = true',
                'name = "socket"\nat = "call.create_cq"\nhold = true\ntakes_effect = true')])
        for rule, call in (("page", "query_port"), ("socket", "create_cq")):
            if not program.wait_for_text(call + "\n", LIMIT_S):
                raise Failure(program.describe())
            wait_until_fired(emulator, rule, 1)
            if held(emulator)[rule] != 1 or call + " returned" in program.output:
                raise Failure("%s\n%s" % (held(emulator), program.describe()))
            fault(emulator, "release", rule)
            if not program.wait_for_text(call + " returned 0", LIMIT_S):
                raise Failure(program.describe())
        if program.wait(LIMIT_S) != 0:
            raise Failure(program.describe())


def a_held_call_goes_with_its_program():
    with Emulator() as emulator:
        address = free_addresses(1)[0]
        emulator.start_host("a", ["--address", address, *with_rules(
            emulator, 'name = "gate"\nat = "call.query_port"\nhold = true')])
        program = emulator.start("a", address, [CALLER])
        wait_until_fired(emulator, "gate", 1)
        os.kill(int(pid_of(program, os.path.basename(CALLER))), 9)
        program.wait(LIMIT_S)
        until = time.monotonic() + LIMIT_S
        while held(emulator)["gate"] != 0:  # the host detects the end by itself
            if time.monotonic() > until:
                raise Failure("the host still holds what nobody waits for")
            time.sleep(0.02)


def pingpong(rule, size, *signs):
    """Runs two programs that exchange messages under a rule. Each sign is in the output of one of
    them."""
    emulated.need("ibv_rc_pingpong")
    address, port = free_addresses(1)[0], free_tcp_port()
    command = ["ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-p", str(port), "-n", "20", "-s", str(size)]
    with Emulator() as emulator:
        server = emulator.start("a", address, command, with_rules(emulator, rule))
        emulated.wait_for_tcp_listener(port, server)
        client = emulator.start("a", address, [*command, address])
        until = time.monotonic() + LIMIT_S
        while not all(sign in client.output + server.output for sign in signs):
            if time.monotonic() > until:
                raise Failure("no '%s'\n%s\n%s" % ("', '".join(signs), client.describe(),
                                                   server.describe()))
            time.sleep(0.02)


def memory_cases():
    for size in SIZES:
        # The server answers with the received bytes, so the third message is the client's second.
        yield "bytes_to_send_are_gone_%d" % size, functools.partial(
            pingpong, 'at = "memory.read"\nnth = 3\nunmapped = true', size,
            "Failed status local protection error (4)")
        yield "bytes_to_receive_into_are_gone_%d" % size, functools.partial(
            pingpong, 'at = "memory.write"\nnth = 3\nunmapped = true', size,
            "Failed status local QP operation error (2)", "Failed status remote operation error (11)")


def posting_cases():
    yield "a_post_fails", functools.partial(
        pingpong, 'at = "call.post_send"\nnth = 3\nerrno = "ENOMEM"', 64, "Couldn't post send")
    yield "a_poll_fails", functools.partial(
        pingpong, 'at = "call.poll_cq"\nnth = 50\nerrno = "EFAULT"', 64, "poll CQ failed -1")


if __name__ == "__main__":
    sys.exit(emulated.run_cases("apps.faults", [
        ("a_delayed_call_comes_late", a_delayed_call_comes_late),
        ("a_held_call_stays_until_it_is_let_go", a_held_call_stays_until_it_is_let_go),
        ("a_held_call_goes_with_its_program", a_held_call_goes_with_its_program),
        ("a_wait_ends_by_its_rule_also_where_the_host_stands_still",
         a_wait_ends_by_its_rule_also_where_the_host_stands_still),
        *memory_cases(), *posting_cases()], at_once=3))
