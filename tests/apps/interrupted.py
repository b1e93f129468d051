"""Calls that a fault rule interrupts (errno = "EINTR") lose nothing. A program that repeats them
gets the same results as without the rule. No step of a library's call is omitted.

usage: interrupted.py RETRIER
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure, free_addresses  # noqa: E402

RETRIER = os.path.abspath(sys.argv[1])
LIMIT_S = 60
SCHEMA = "docs/scenario.schema.json"
# Calls that today's librdmacm and libibverbs make never, or only in rare cases.
UNREACHED = {
    "bind_ip", "resolve_ip", "query_route", "join_ip_mcast", "get_option",  # of older libraries
    "notify", "join_mcast", "leave_mcast", "resolve_ib_service", "write_cm_event",
    "take_channel_overflow"}
# Steps inside librdmacm's calls. The caller never sees that one was interrupted.
STEPS = ["query", "init_qp_attr", "modify_qp", "destroy_qp", "destroy_cq", "cm_destroy_channel",
         "close_device"]


def calls():
    with open(SCHEMA) as file:
        at = json.load(file)["properties"]["fault"]["items"]["properties"]["at"]
    words = next(each["enum"] for each in [at, *at.get("anyOf", [])] if "enum" in each)
    return [word.split(".")[1] for word in words if word.startswith("call.")]


def rdmaemu(emulator, *arguments):
    done = emulator.rdmaemu(*arguments, "--host", "a")
    if done.returncode != 0:
        raise Failure(done.stderr)
    return done.stdout


def seen(emulator, address):
    """Returns the program's output."""
    program = emulator.start_outside([RDMAEMU, "run", "--host", "a", "--", RETRIER, address],
                                     emulator.env)
    status = program.wait(LIMIT_S)
    # Removes the output of `rdmaemu run` about rules.
    lines = [line for line in program.output.splitlines() if not line.startswith("warning:")]
    if status != 0 or lines[-1:] != ["done"]:
        raise Failure("status %s\n%s" % (status, program.describe()))
    return lines


class Host:
    """A host, and the program's output there without a rule."""

    def __enter__(self):
        self.emulator = Emulator()
        self.emulator.__enter__()
        self.address = free_addresses(1)[0]
        self.emulator.start_host("a", ["--address", self.address])
        self.expected = seen(self.emulator, self.address)
        return self

    def __exit__(self, *what):
        self.emulator.__exit__(*what)

    def run_under(self, rule):
        """Returns how often the rule fired."""
        rdmaemu(self.emulator, "fault", "clear")
        rdmaemu(self.emulator, "fault", "add", rule)
        try:
            found = seen(self.emulator, self.address)
        except Failure as failure:
            raise Failure("%s\n%s" % (rule, failure))
        if found != self.expected:
            raise Failure("%s\n%s\ninstead of\n%s" % (rule, found, self.expected))
        return json.loads(rdmaemu(self.emulator, "fault", "list", "--json"))[0]["fired"]


def each_call_interrupted_once():
    with Host() as host:
        fired = {name for name in calls()
                 if host.run_under('at = "call.%s", nth = 1, errno = "EINTR"' % name)}
        if set(calls()) - fired != UNREACHED:
            raise Failure("not made by the program: %s" % sorted(set(calls()) - fired))


def an_event_stays_when_its_call_would_block():
    with Host() as host:
        for name in ("get_event", "get_async_event"):
            if not host.run_under('at = "call.%s", nth = 1, errno = "EAGAIN"' % name):
                raise Failure("the rule at call.%s never fired" % name)


def one_call_in_five_interrupted():
    with Host() as host:
        if host.run_under('at = "call", probability = 0.2, errno = "EINTR"') == 0:
            raise Failure("the rule never fired")


def debians_programs_see_nothing_of_interrupted_steps():
    for program in ("rping", "ucmatose"):
        emulated.need(program)
    rules = "".join('[[fault]]\nat = "call.%s"\nprobability = 0.05\nerrno = "EINTR"\n' % name
                    for name in STEPS)
    for command in (["rping", "-C", "20"], ["ucmatose"]):
        with Emulator() as emulator:
            path = os.path.join(emulator.directory, "rules.toml")
            with open(path, "w") as file:
                file.write(rules)
            address = free_addresses(1)[0]
            trace = os.path.join(emulator.directory, "trace")
            emulator.start_host("a", ["--address", address, "--scenario", path, "--trace", trace])
            is_rping = command[0] == "rping"
            server = emulator.start_outside(
                [RDMAEMU, "run", "--host", "a", "--", *command,
                 *(["-s", "-a", address] if is_rping else ["-b", address])], emulator.env)
            emulated.wait_for_calls([trace], "LISTEN", 1)
            client = emulator.start_outside(
                [RDMAEMU, "run", "--host", "a", "--", *command,
                 *(["-c", "-a", address] if is_rping else ["-s", address])], emulator.env)
            for program in (client, server):
                if program.wait(LIMIT_S) != 0:
                    raise Failure("%s\n%s" % (client.describe(), server.describe()))


if __name__ == "__main__":
    sys.exit(emulated.run_cases("apps.interrupted", [
        ("each_call_interrupted_once", each_call_interrupted_once),
        ("an_event_stays_when_its_call_would_block", an_event_stays_when_its_call_would_block),
        ("one_call_in_five_interrupted", one_call_in_five_interrupted),
        ("debians_programs_see_nothing_of_interrupted_steps",
         debians_programs_see_nothing_of_interrupted_steps)], at_once=3))
