"""Calls that a fault rule interrupts (errno = "EINTR") lose nothing. A program that repeats them
gets the same results as without the rule. No step of a library's call is omitted.

usage: interrupted.py RETRIER
"""

import functools
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
import perftest  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure, free_addresses  # noqa: E402

RETRIER = os.path.abspath(sys.argv[1])
LIMIT_S = 60
SCHEMA = "docs/scenario.schema.json"
# Calls that these libraries never make.
UNREACHED = {
    "bind_ip": "for a kernel without AF_IB; else librdmacm makes bind",
    "resolve_ip": "for a kernel without AF_IB; else librdmacm makes resolve_addr",
    "query_route": "for a kernel without AF_IB; else librdmacm makes query",
    "join_ip_mcast": "for a kernel without AF_IB; else librdmacm makes join_mcast",
    "get_option": "it has a number in rdma_user_cm.h, but no code in the kernel or in a librdmacm",
    "query_clock": "rxe has no device clock, and its libibverbs does not ask the host",
    "resolve_ib_service": "rdma_resolve_addrinfo with RAI_SA fails before it: RoCE has no subnet "
                          "administrator"}
# Debian's programs repeat no call. They end when one of these fails, whatever its errno is.
NOT_REPEATED = """cm_create_channel create_id bind listen resolve_addr resolve_route connect get_event
    join_mcast create_channel create_cq create_qp create_ah reg_mr post_send post_recv poll_cq
    req_notify_cq query_port query_gids query_qp alloc_pd""".split()
# These programs open the device themselves, and end with an error when they cannot destroy a part.
OPENS_ITSELF = """list_devices open_device dealloc_pd dereg_mr destroy_cq destroy_channel
    destroy_qp destroy_id""".split()
# Without librdmacm this call is the program's own, too.
WITHOUT_CM = ["modify_qp"]
# When rdma_disconnect fails, the program ends, or waits for a DISCONNECTED that no one causes.
WAITS = ["disconnect"]
# A program's server and client, and the calls that it does not repeat beside NOT_REPEATED. All
# other calls are steps inside the libraries' functions, or calls whose result the program ignores.
# rstream is missing, because there are no rsockets.
PROGRAMS = {
    "rping": ("rping -s -a {address} -p {port} -C 20", "rping -c -a {address} -p {port} -C 20", []),
    "ucmatose": ("ucmatose -b {address} -p {port} -c 8", "ucmatose -s {address} -p {port} -c 8",
                 WAITS),
    "udaddy": ("udaddy -b {address} -c 8", "udaddy -s {address} -b {address} -c 8", []),
    "mckey": ("mckey -m {group} -b {address} -c 8", "mckey -m {group} -b {address} -c 8 -s",
              ["leave_mcast"]),  # the last group's result is the program's
    "cmtime": ("cmtime -b {address} -p {port} -c 50",
               "cmtime -s {address} -b {address} -p {port} -c 50", WAITS),
    "rdma_client": ("rdma_server -p {port}", "rdma_client -s {address} -p {port}", []),
    "ibv_rc_pingpong": ("ibv_rc_pingpong -g 1 -e -n 20 -p {port}",
                        "ibv_rc_pingpong -g 1 -e -n 20 -p {port} {address}",
                        OPENS_ITSELF + WITHOUT_CM),
    "ib_send_bw": ("ib_send_bw -x 1 -F -n 5 -p {port}",
                   "ib_send_bw -x 1 -F -n 5 -p {port} {address}",
                   OPENS_ITSELF + WITHOUT_CM),
    "ib_send_bw_R": ("ib_send_bw -R -F -n 5 -p {port}", "ib_send_bw -R -F -n 5 -p {port} {address}",
                     OPENS_ITSELF + WAITS)}


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


def seen(emulator, arguments):
    """Returns the program's output."""
    program = emulator.start_outside([RDMAEMU, "run", "--host", "a", "--", RETRIER, *arguments],
                                     emulator.env)
    status = program.wait(LIMIT_S)
    # Removes the output of `rdmaemu run` about rules.
    lines = [line for line in program.output.splitlines() if not line.startswith("warning:")]
    if status != 0 or lines[-1:] != ["done"]:
        raise Failure("status %s\n%s" % (status, program.describe()))
    return lines


def rules_of(emulator):
    return json.loads(rdmaemu(emulator, "fault", "list", "--json"))


class Host:
    """A host, and the program's output there without a rule."""

    def __init__(self, *mode):
        self.mode = mode

    def __enter__(self):
        self.emulator = Emulator()
        self.emulator.__enter__()
        address = free_addresses(1)[0]
        self.arguments = [address, *self.mode]
        self.emulator.start_host("a", ["--address", address])
        self.expected = seen(self.emulator, self.arguments)
        return self

    def __exit__(self, *what):
        self.emulator.__exit__(*what)

    def run_under(self, *rules):
        """Runs the program under these rules. Returns how often each rule fired."""
        rdmaemu(self.emulator, "fault", "clear")
        for rule in rules:
            rdmaemu(self.emulator, "fault", "add", rule)
        try:
            found = seen(self.emulator, self.arguments)
        except Failure as failure:
            raise Failure("%s\n%s" % (", ".join(rules), failure))
        if found != self.expected:
            raise Failure("%s\n%s\ninstead of\n%s" % (", ".join(rules), found, self.expected))
        return [rule["fired"] for rule in rules_of(self.emulator)]


def each_call_interrupted_once():
    reached = set()
    for mode in ((), ("overflow",)):
        with Host(*mode) as host:
            fired = host.run_under(*('at = "call.%s", nth = 1, errno = "EINTR"' % name
                                     for name in calls()))
        reached |= {name for name, times in zip(calls(), fired) if times == 1}
    if set(calls()) - reached != set(UNREACHED):
        raise Failure("not made by the program: %s" % sorted(set(calls()) - reached))


def an_event_stays_when_its_call_would_block():
    with Host() as host:
        for name in ("get_event", "get_async_event"):
            if host.run_under('at = "call.%s", nth = 1, errno = "EAGAIN"' % name) != [1]:
                raise Failure("the rule at call.%s never fired" % name)


def one_call_in_five_interrupted():
    with Host() as host:
        if host.run_under('at = "call", probability = 0.2, errno = "EINTR"') == [0]:
            raise Failure("the rule never fired")


def all_but(refused):
    """Rules that interrupt every twentieth call on average, except those calls."""
    return "".join('[[fault]]\nat = "call.%s"\nprobability = 0.05\nerrno = "EINTR"\n' % name
                   for name in calls() if name not in refused)


def start_debians(name, emulator, address, rules):
    """Starts a host with these rules and a program's two sides on the host."""
    path = os.path.join(emulator.directory, "rules.toml")
    with open(path, "w") as file:
        file.write(rules)
    trace = os.path.join(emulator.directory, "trace")
    emulator.start_host("a", ["--address", address, "--scenario", path, "--trace", trace])
    port = emulated.free_tcp_port()
    fill = {"address": address, "port": port, "group": "239.1.%d.%d" % divmod(port, 256)}
    server, client = ([RDMAEMU, "run", "--host", "a", "--", *side.format(**fill).split()]
                      for side in PROGRAMS[name][:2])
    server = emulator.start_outside(server, emulator.env)
    if WITHOUT_CM[0] in PROGRAMS[name][2]:
        emulated.wait_for_tcp_listener(port, server)
    else:
        emulated.wait_for_calls([trace], *(("join_mcast", 8) if name == "mckey" else ("listen", 1)))
    return server, emulator.start_outside(client, emulator.env)


def debians_program_sees_nothing_of_interrupted_steps(name):
    emulated.need(PROGRAMS[name][0].split()[0])
    perftest.without_race(lambda: run_debians(name))


def run_debians(name):
    with Emulator() as emulator:
        server, client = start_debians(name, emulator, free_addresses(1)[0],
                                       all_but(NOT_REPEATED + PROGRAMS[name][2]))
        # cmtime's server does not end.
        for program in (client, server) if name != "cmtime" else (client,):
            if program.wait(LIMIT_S) != 0:
                raise Failure("%s\n%s" % (client.describe(), server.describe()))
        if name == "cmtime" and not any(rule["fired"] for rule in rules_of(emulator)):
            raise Failure("no rule fired in some hundred calls")


if __name__ == "__main__":
    sys.exit(emulated.run_cases("apps.interrupted", [
        ("each_call_interrupted_once", each_call_interrupted_once),
        ("an_event_stays_when_its_call_would_block", an_event_stays_when_its_call_would_block),
        ("one_call_in_five_interrupted", one_call_in_five_interrupted),
        *(("%s_sees_nothing_of_interrupted_steps" % name,
           functools.partial(debians_program_sees_nothing_of_interrupted_steps, name))
          for name in PROGRAMS)], at_once=3))
