"""Fault rules on the system backend (docs/faults.md). An emulator's libraries stand for the
machine's own: RDMAEMU_SYSTEM_LIBRARIES names them, and their host is around the run."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
import memory  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure, free_addresses  # noqa: E402

SOURCES = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 60
OUTPUT = tempfile.mkdtemp(prefix="rdmaemu-layer-faults-", dir="/tmp")
BUILDING = threading.Lock()
LIBRARIES = ":".join(os.path.abspath(path) for path in ("shim/verbs", "shim/rdmacm"))


def check(condition, what):
    if not condition:
        raise Failure(what)


def build(name):
    program = os.path.join(OUTPUT, name)
    with BUILDING:
        if os.path.exists(program):
            return program
        made = subprocess.run(
            [emulated.need("gcc"), "-g", "-O1", "-Wall", "-Wextra", "-D_GNU_SOURCE",
             os.path.join(SOURCES, name + ".c"), "-o", program, "-lrdmacm", "-libverbs",
             "-lpthread", "-ldl"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        raise Failure("cannot compile %s.c\n%s" % (name, made.stdout))
    return program


class Machine:
    """A machine whose own devices are those of an emulated host."""

    def __init__(self, around=""):
        self.emulator = Emulator()
        self.address = free_addresses(1)[0]
        self.around = around  # rules of the host around the run

    def __enter__(self):
        self.emulator.__enter__()
        self.trace = os.path.join(self.emulator.directory, "saw.jsonl")
        return self

    def __exit__(self, *error):
        return self.emulator.__exit__(*error)

    def file(self, name, text):
        path = os.path.join(self.emulator.directory, name)
        with open(path, "w") as scenario:
            scenario.write(text)
        return path

    def start(self, argv, rules="", options=()):
        """Starts a program on the system backend. `rules`: one rule a line."""
        scenario = self.file("rules.toml", tables(rules))
        around = ["--scenario", self.file("around.toml", tables(self.around))] if self.around else []
        run = [RDMAEMU, "run", "--backend", "system", "--host", "rules", "--scenario", scenario,
               "--program-trace", self.trace, *options, "--", *argv]
        return self.emulator.start("machine", self.address, run, options=around,
                                   env={"RDMAEMU_SYSTEM_LIBRARIES": LIBRARIES})

    def run(self, argv, rules="", options=(), status=0):
        """Returns what the program printed, and the lines of its trace."""
        program = self.start(argv, rules, options)
        ended = program.wait(LIMIT_S)
        check(ended == status, "status %s instead of %s\n%s" % (ended, status, program.describe()))
        return program.output, self.lines()

    def connects(self, rules, count=2, lost=0, more=()):
        """Returns the lines that tests/layer/connects.c printed, and its trace."""
        argv = [build("connects"), self.address, str(count), str(lost), *more]
        output, lines = self.run(argv, rules, options=["--strict"])
        printed = [line.strip() for line in output.splitlines() if not line.startswith("note:")]
        check(printed[-1] == "done", output)
        return printed, lines

    def lines(self):
        with open(self.trace) as trace:
            return [json.loads(line) for line in trace]

    def fault(self, *arguments, status=0):
        """Runs `rdmaemu fault` on the run's host."""
        result = self.emulator.rdmaemu("fault", arguments[0], "--host", "rules", *arguments[1:])
        check(result.returncode == status, "%s\n%s%s" % (arguments, result.stdout, result.stderr))
        return result.stdout + result.stderr


def tables(rules):
    """Returns a scenario of rules that are written on one line each."""
    text = ""
    for rule in filter(None, map(str.strip, rules.splitlines())):
        text += "[[fault]]\n"
        text += re.sub(r', (?=[a-z_]+ = )', "\n", rule) + "\n"
    return text


def injected(lines, kind):
    return [(line["what"], line["injected"]) for line in lines
            if line["kind"] == kind and "injected" in line]


# ---- calls


def a_call_fails_with_the_errno_of_the_rule():
    with Machine() as machine:
        output, lines = machine.run([build("shapes"), "linked"],
                                    'name = "none", at = "call.alloc_pd", errno = "ENOMEM"',
                                    status=1)
    check("Cannot allocate memory" in output, output)
    check("the seed of host rules was" in output, output)
    check(injected(lines, "call") == [("alloc_pd", "none")], "%s" % lines)
    failed = [line for line in lines if line["what"] == "alloc_pd"]
    check([(line["result"], line["errno"]) for line in failed] == [(None, "ENOMEM")], "%s" % failed)


def a_delayed_call_returns_after_the_delay():
    with Machine() as machine:
        _, lines = machine.run([build("shapes"), "linked"],
                               'name = "slow", at = "call.alloc_pd", delay_ms = 30\n'
                               'name = "late", at = "call.dealloc_pd", delay_ms = 30,'
                               ' takes_effect = true')
    took = {line["what"]: line["took_ns"] for line in lines if line["kind"] == "call"}
    check(took["alloc_pd"] >= 30e6 and took["dealloc_pd"] >= 30e6, "%s" % took)
    check(injected(lines, "call") == [("alloc_pd", "slow"), ("dealloc_pd", "late")], "%s" % lines)


def a_held_call_returns_after_its_release():
    with Machine() as machine:
        program = machine.start([build("shapes"), "linked"],
                                'name = "gate", at = "call.alloc_pd", hold = true')
        wait_for_host(machine, program)
        machine.fault("wait", "gate")
        listed = json.loads(machine.fault("list", "--json"))
        check([(rule["name"], rule["held"]) for rule in listed] == [("gate", 1)], "%s" % listed)
        for clock in (["show"], ["advance", "5ms"]):
            shown = machine.emulator.rdmaemu("clock", clock[0], "--host", "rules", *clock[1:])
            check(shown.returncode == 1 and "its time is the machine's" in shown.stderr,
                  shown.stdout + shown.stderr)
        check(program.process.poll() is None, program.describe())
        machine.fault("release", "gate")
        check(program.wait(LIMIT_S) == 0, program.describe())
        check(injected(machine.lines(), "call") == [("alloc_pd", "gate")], "no mark")


def wait_for_host(machine, program):
    while machine.emulator.host("rules") is None:
        check(program.process.poll() is None, program.describe())


def a_rule_is_added_to_a_running_program():
    with Machine() as machine:
        program = machine.start([build("shapes"), "linked"],
                                'name = "gate", at = "call.open_device", hold = true')
        wait_for_host(machine, program)
        machine.fault("wait", "gate")
        machine.fault("add", 'name = "late", at = "call.alloc_pd", errno = "EPERM"')
        machine.fault("remove", "gate")
        check(program.wait(LIMIT_S) == 1, program.describe())
        check("Operation not permitted" in program.output, program.describe())


def its_host_is_not_stopped_or_joined():
    with Machine() as machine:
        program = machine.start([build("shapes"), "linked"],
                                'name = "gate", at = "call.alloc_pd", hold = true')
        wait_for_host(machine, program)
        machine.fault("wait", "gate")
        for command in (["stop", "rules"], ["run", "--host", "rules", "--", "true"],
                        ["run", "--backend", "system", "--host", "rules", "--", "true"]):
            machine.emulator.env["RDMAEMU_SYSTEM_LIBRARIES"] = LIBRARIES
            result = machine.emulator.rdmaemu(*command)
            check(result.returncode != 0 and "host rules" in result.stderr and
                  "use another --host" in result.stderr, "%s: %s" % (command, result.stderr))
        machine.fault("clear")
        check(program.wait(LIMIT_S) == 0, program.describe())
        check(machine.emulator.host("rules") is None, "the host is left")


def a_rule_that_never_fired_fails_a_strict_run():
    with Machine() as machine:
        output, _ = machine.run([build("shapes"), "linked"],
                                'name = "never", at = "call.reg_mr", errno = "ENOMEM"',
                                options=["--strict"], status=123)
    check('rule "never" never fired' in output, output)


def the_trace_has_each_firing_and_each_failed_completion():
    with Machine() as machine:
        path = machine.file("host.jsonl", "")
        program = machine.start([memory.build(OUTPUT), "write", "write"],
                                'name = "seen", at = "call.alloc_pd"\n'
                                'name = "ends", at = "wc"\n'
                                'name = "gone", at = "memory.read", nth = 1, unmapped = true',
                                ["--trace", path])
        check(program.wait(LIMIT_S) == 0, program.describe())
        with open(path) as trace:
            records = [json.loads(line) for line in trace]
    check(all(record["host"] == "rules" for record in records), "%s" % records)
    places = [(record["object"], record["at"]) for record in records if record["kind"] == "fault"]
    check(("seen", "call.alloc_pd") in places and ("gone", "memory.read") in places, "%s" % places)
    failed = [record["status"] for record in records if record["kind"] == "wc.error"]
    check(failed == [4], "%s" % records)  # IBV_WC_LOC_PROT_ERR


def a_rule_for_another_host_is_ignored():
    with Machine() as machine:
        machine.run([build("shapes"), "linked"],
                    'host = "other", at = "cm.req", reject = 28', options=["--strict"])


REFUSED = [
    ('at = "cm.req", reject = 28', "a rule at event"),
    ('at = "packet", nth = 3, drop = true', "tc-netem"),
    ('at = "link", loss = 0.1', "tc-netem"),
    ('at = "time", at_ms = 5, port = "down"', "rdmaemu fault add"),
    ('at = "wc.send", duplicate = 1', "drop or status"),
    ('at = "wc.send", remove_device = true', "device_removal"),
    ('at = "wc.send", port = "down"', "ip link"),
    ('at = "wc.send", async = "qp_fatal"', "async.NAME"),
    ('at = "wc.send", crash = true', "kill -KILL"),
]


def rules_that_need_the_emulator_are_refused_with_what_to_use_instead():
    with Machine() as machine:
        program = machine.start([build("shapes"), "linked"],
                                'name = "gate", at = "call.alloc_pd", hold = true')
        wait_for_host(machine, program)
        for rule, instead in REFUSED:
            answer = machine.fault("add", rule, status=1)
            check("--backend system has no" in answer and instead in answer, rule + "\n" + answer)
        listed = json.loads(machine.fault("list", "--json"))
        check([rule["name"] for rule in listed] == ["gate"], "%s" % listed)
        machine.fault("wait", "gate")
        machine.fault("release", "gate")
        check(program.wait(LIMIT_S) == 0, program.describe())
    with Machine() as machine:
        program = machine.start(["true"], 'name = "wire", at = "cm.req", reject = 28')
        check(program.wait(LIMIT_S) == 125 and '"wire"' in program.output, program.describe())


def the_programs_of_ab_share_the_rules():
    shapes = build("shapes")
    with Machine() as machine:
        scenario = machine.file("pair.toml", tables(
            'name = "none", at = "call.alloc_pd", nth = 2, errno = "ENOMEM"') + "".join(
                '[[program]]\nname = "%s"\ncommand = "%s linked"\n' % (name, shapes)
                for name in ("first", "second")))
        keep = os.path.join(machine.emulator.directory, "runs")
        ab = machine.emulator.start(
            "machine", machine.address,
            [RDMAEMU, "ab", "--a", "system", "--scenario", scenario, "--keep", keep],
            env={"RDMAEMU_SYSTEM_LIBRARIES": LIBRARIES})
        check(ab.wait(LIMIT_S) == 0, ab.describe())
        for side in "ab":
            for program, status in (("first", 0), ("second", 1)):
                ab.expect("note: on %s the %s ended with status %d" % (side, program, status))
            with open(os.path.join(keep, side + ".jsonl")) as trace:
                marked = injected(map(json.loads, trace), "call")
            check(marked == [("alloc_pd", "none")], "%s" % marked)


def programs_of_each_shape_run_with_rules():
    asks = 'name = "asks", at = "call.alloc_pd", nth = 1000000, errno = "EPERM"'
    for how, status in (("dlopen", 0), ("fork", 0), ("threads", 0), ("vfork", 0), ("exec", 0),
                        ("signal", 0), ("closefrom", 0), ("_exit", 0), ("kill", 137)):
        with Machine() as machine:
            machine.run([build("shapes"), how], asks, status=status)


# ---- events, completions and asynchronous events

CONNECTED = ["passive RDMA_CM_EVENT_CONNECT_REQUEST 0", "passive RDMA_CM_EVENT_ESTABLISHED 0",
             "passive RDMA_CM_EVENT_DISCONNECTED 0"]
# The rule, the event that the active side gets, and what the passive side gets.
EVENTS = [
    ('at = "event.addr_resolved", event = "addr_error", status = -19', "ADDR_ERROR -19", []),
    ('at = "event.route_resolved", event = "route_error", status = -22', "ROUTE_ERROR -22", []),
    ('at = "event.connect_response", event = "rejected", status = 28', "REJECTED 28", CONNECTED),
    ('at = "event.connect_response", event = "rejected", status = 28, private_data = "no room"',
     "REJECTED 28 no room", CONNECTED),
    ('at = "event.connect_response", event = "unreachable", status = -110', "UNREACHABLE -110",
     CONNECTED),
    ('at = "event.connect_response", event = "connect_error", status = -5', "CONNECT_ERROR -5",
     CONNECTED),
    ('at = "event.connect_response", event = "device_removal"', "DEVICE_REMOVAL 0", CONNECTED),
]


def an_event_becomes_another_one_and_its_connection_ends():
    for rule, active, passive in EVENTS:
        with Machine() as machine:
            printed, lines = machine.connects('name = "other", ' + rule, count=1)
        check("active RDMA_CM_EVENT_" + active in printed, "%s\n%s" % (rule, printed))
        seen = [line for line in printed if line.startswith("passive RDMA")]
        check(seen == passive, "%s\n%s" % (rule, printed))
        last = [line for line in printed if line.startswith("active RDMA")][-1]
        check(last == "active RDMA_CM_EVENT_" + active, "%s\n%s" % (rule, printed))
        check(injected(lines, "event") == [(active.split()[0], "other")], "%s" % lines)


def active_lines(printed):
    return [line.strip() for line in printed if line.startswith("active RDMA")]


def the_active_side_gets_the_same_events_as_on_the_emulator():
    for rule, _, _ in EVENTS:
        rule = 'name = "other", ' + rule
        with Machine() as machine:
            printed, _ = machine.connects(rule, count=1)
        with Machine(rule) as machine:
            program = machine.emulator.start(
                "emulated", machine.address, [build("connects"), machine.address, "1", "0"],
                options=["--strict", "--scenario", machine.file("around.toml", tables(rule))])
            check(program.wait(LIMIT_S) == 0, program.describe())
        emulated_lines = active_lines(program.output.splitlines())
        check(active_lines(printed) == emulated_lines, "%s\n%s" % (printed, emulated_lines))


def waits(machine, count, rules):
    """Returns the lines of tests/layer/waits.c in the order in which the completions came."""
    output, lines = machine.run([build("waits"), str(count)], rules, options=["--strict"])
    printed = [line.strip() for line in output.splitlines() if not line.startswith("note:")]
    check(printed[-1] == "done", output)
    return printed[:-1], lines


def a_delayed_completion_delays_those_behind_it_and_no_others():
    with Machine() as machine:
        printed, lines = waits(machine, 3, 'name = "late", at = "wc.recv", nth = 1, delay_ms = 50')
    check([line for line in printed if "recv" in line] ==
          ["recv %d success" % i for i in range(3)], "%s" % printed)
    check(printed[:3] == ["send %d success" % i for i in range(3)], "%s" % printed)
    check(injected(lines, "completion") == [("SUCCESS", "late")], "no mark")


def a_held_completion_reaches_a_program_that_waits_for_an_event():
    with Machine() as machine:
        program = machine.start([build("waits"), "2"],
                                'name = "gate", at = "wc.send", nth = 2, hold = true')
        wait_for_host(machine, program)
        machine.fault("wait", "gate")
        check(program.wait_for_text("recv 1 success", LIMIT_S), program.describe())
        check("send 1" not in program.output, program.describe())
        listed = json.loads(machine.fault("list", "--json"))
        check([rule["held"] for rule in listed] == [1], "%s" % listed)
        machine.fault("release", "gate")
        check(program.wait(LIMIT_S) == 0, program.describe())
        check("send 1 success" in program.output, program.describe())


def a_completion_of_an_extended_queue_is_delayed():
    with Machine() as machine:
        printed, lines = machine.connects('name = "late", at = "wc.send", delay_ms = 30',
                                          more=["cq_ex"])
    check(printed.count("active wc success") == 2, "%s" % printed)


def events_are_delayed_and_held():
    with Machine() as machine:
        printed, lines = machine.connects(
            'name = "late", at = "event.connect_response", delay_ms = 40')
        check(injected(lines, "event") == [("ESTABLISHED", "late")], "%s" % lines)
        took = [line["took_ns"] for line in lines
                if line["what"] == "rdma_get_cm_event" and line.get("took_ns", 0) >= 40e6]
        check(len(took) == 1, "%s" % took)
    with Machine() as machine:
        program = machine.start([build("connects"), machine.address, "1", "0"],
                                'name = "gate", at = "event.established", hold = true')
        wait_for_host(machine, program)
        machine.fault("wait", "gate")
        check("passive RDMA_CM_EVENT_ESTABLISHED" not in program.output, program.describe())
        machine.fault("release", "gate")
        check(program.wait(LIMIT_S) == 0, program.describe())
        check("passive RDMA_CM_EVENT_ESTABLISHED 0" in program.output, program.describe())


def an_asynchronous_event_is_held():
    around = 'name = "first", at = "event.connect_request", async = "qp_fatal"'
    with Machine(around) as machine:
        program = machine.start([build("connects"), machine.address, "1", "0"],
                                'name = "gate", at = "async.qp_fatal", hold = true')
        wait_for_host(machine, program)
        machine.fault("wait", "gate")
        check("async" not in program.output, program.describe())
        machine.fault("release", "gate")
        check(program.wait(LIMIT_S) == 0, program.describe())
        check("async local work queue catastrophic error" in program.output, program.describe())


def the_status_of_an_event_changes_alone():
    with Machine() as machine:
        printed, lines = machine.connects('name = "odd", at = "event.connect_request", status = 7')
    check("passive RDMA_CM_EVENT_CONNECT_REQUEST 7" in printed, "%s" % printed)
    check(printed.count("active wc success") == 2, "%s" % printed)
    check(injected(lines, "event") == [("CONNECT_REQUEST", "odd")], "%s" % lines)


def a_lost_event_is_not_seen():
    with Machine() as machine:
        printed, lines = machine.connects('name = "mute", at = "event.established", drop = true')
    check("passive RDMA_CM_EVENT_ESTABLISHED 0" not in printed, "%s" % printed)
    check(printed.count("active wc success") == 2, "%s" % printed)
    check(("rdma_get_cm_event", "mute") in injected(lines, "call"), "%s" % lines)


def a_completion_gets_the_status_of_the_rule_and_fails_its_queue_pair():
    for more in ([], ["cq_ex"]):
        with Machine() as machine:
            printed, lines = machine.connects(
                'name = "bad", at = "wc.send", nth = 2, status = "retry_exc_err"', more=more)
        sends = [line for line in printed if line.startswith("active wc")]
        check(sends == ["active wc success", "active wc transport retry counter exceeded"],
              "%s" % printed)
        check(printed.count("passive wc success") == 2, "%s" % printed)
        check(injected(lines, "completion") == [("RETRY_EXC_ERR", "bad")], "%s" % lines)


def a_lost_completion_is_not_seen():
    for more in ([], ["cq_ex"]):
        with Machine() as machine:
            printed, lines = machine.connects('name = "lost", at = "wc.recv", nth = 1, drop = true',
                                              lost=1, more=more)
        check(printed.count("passive wc success") == 1, "%s" % printed)
        poll = "start_poll" if more else "poll_cq"
        marked = injected(lines, "call")
        check(marked and set(marked) <= {(poll, "lost"), ("next_poll", "lost")}, "%s" % marked)


def an_asynchronous_event_becomes_another_one_or_is_lost():
    around = ('name = "first", at = "event.connect_request", async = "qp_fatal"\n'
              'name = "second", at = "event.connect_response", async = "qp_fatal"')
    with Machine(around) as machine:
        printed, lines = machine.connects(
            'name = "other", at = "async.qp_fatal", nth = 1, async = "qp_access_err"\n'
            'name = "lost", at = "async.qp_fatal", after = "other", drop = true', count=1)
    seen = [line for line in printed if line.startswith("async")]
    check(seen == ["async local access violation work queue error"], "%s" % printed)
    check(injected(lines, "async") == [("QP_ACCESS_ERR", "other")], "%s" % lines)


# ---- memory


def removed_memory_fails_the_request_in_the_device():
    for rule, operations, expected in memory.CASES:
        for way in ([], ["ex"]):
            with Machine() as machine:
                program = machine.start([memory.build(OUTPUT), *way, *operations],
                                        'name = "gone", %s, unmapped = true' % rule, ["--strict"])
                printed = memory.lines_of(program)
                marked = injected(machine.lines(), "call")
            check(printed == expected, "%s\n%s" % (rule, program.describe()))
            failures = sum(memory.PROTECTION in line or "QP operation" in line for line in expected)
            check(len(marked) == failures and {name for _, name in marked} == {"gone"},
                  "%s: %s" % (rule, marked))


def removed_memory_is_that_of_the_emulator():
    for rule, operations, _ in memory.CASES:
        rule = 'name = "gone", %s, unmapped = true' % rule
        with Machine() as machine:
            layers = memory.lines_of(machine.start([memory.build(OUTPUT), *operations], rule))
        with Machine(rule) as machine:
            emulators = memory.lines_of(machine.emulator.start(
                "emulated", machine.address, [memory.build(OUTPUT), *operations],
                options=["--scenario", machine.file("around.toml", tables(rule))]))
        check(layers == emulators, "%s\n%s\n%s" % (rule, layers, emulators))


def a_rule_at_memory_means_its_bytes():
    """The program prints the address of its first region with the operation `where`."""
    with Machine() as machine:
        program = machine.start([memory.build(OUTPUT), "where"], "")
        address = int(memory.lines_of(program)[0].split()[1], 16)
        program = machine.start(
            [memory.build(OUTPUT), "write:1024", "write:1025",
             "write:16:1040", "write:17:1039", "two:512", "two:513"],
            'name = "bytes", at = "memory", address = %d, length = 16, unmapped = true'
            % (address + 1024), ["--strict"])
        check(memory.lines_of(program) == [
            "%s %s" % (kind, status) for kind in ("write", "write", "two")
            for status in (memory.OK, memory.PROTECTION)], program.describe())


# ibv_qp_to_qp_ex returns the same object at each request.
def users_of_the_layer_wrap_an_object_once():
    with Machine() as machine:
        program = machine.start([memory.build(OUTPUT), "ex", "write", "read", "write"],
                                'at = "memory.read", nth = 2, unmapped = true', ["--check"])
        printed = memory.lines_of(program)
        check(printed[:3] == ["write " + memory.OK, "read " + memory.OK,
                              "write " + memory.PROTECTION], program.describe())


def a_request_that_the_device_refuses_is_not_changed():
    with Machine() as machine:
        program = machine.start([memory.build(OUTPUT), "many", "write"],
                                'at = "memory.read", nth = 1, unmapped = true', ["--strict"])
        check(memory.lines_of(program) == ["many refused", "write " + memory.PROTECTION],
              program.describe())


def a_post_that_a_rule_fails_names_its_request():
    for way in ([], ["ex"]):
        with Machine() as machine:
            program = machine.start([memory.build(OUTPUT), *way, "write", "write"],
                                    'at = "call.post_send", nth = 2, errno = "ENOMEM"',
                                    ["--strict"])
            check(program.wait(LIMIT_S) == 1 and "write " + memory.OK in program.output and
                  "Cannot allocate memory" in program.output and
                  "another request" not in program.output and "never" not in program.output,
                  program.describe())


def a_rule_at_a_call_means_its_queue_pair():
    # memory.c sends by its first queue pair and receives by its second.
    for order, status in ((1, 0), (2, 1)):
        with Machine() as machine:
            program = machine.start([memory.build(OUTPUT), "send"],
                                    'at = "call.post_recv", device = "rxe0", qp_order = %d,'
                                    ' errno = "ENOMEM"' % order)
            check(program.wait(LIMIT_S) == status, program.describe())


def requests_behind_a_failed_one_are_flushed():
    with Machine() as machine:
        program = machine.start([memory.build(OUTPUT), "list", "write"],
                                'at = "wc.rdma_write", nth = 1, status = "retry_exc_err"')
        check(memory.lines_of(program) ==
              ["list transport retry counter exceeded", "list Work Request Flushed Error",
               "list Work Request Flushed Error", "write " + memory.OK], program.describe())


def completions_keep_their_order_with_two_pollers():
    with Machine() as machine:
        program = machine.start([build("pollers"), "200"],
                                'at = "wc", every = 20, delay_ms = 5', ["--strict"])
        check(program.wait(LIMIT_S) == 0 and "200 completions, 0 out of order" in program.output,
              program.describe())


def rules_at_a_call_decide_before_those_at_its_memory():
    with Machine() as machine:
        program = machine.start([memory.build(OUTPUT), "write", "write"],
                                'name = "slow", at = "call.post_send", nth = 1, delay_ms = 5\n'
                                'name = "gone", at = "memory.read", nth = 1, unmapped = true\n'
                                'name = "full", at = "call.post_send", nth = 2, errno = "ENOMEM"')
        check(program.wait(LIMIT_S) == 1, program.describe())
        check("write " + memory.PROTECTION in program.output and
              "Cannot allocate memory" in program.output, program.describe())


CASES = [
    a_call_fails_with_the_errno_of_the_rule,
    a_delayed_call_returns_after_the_delay,
    a_held_call_returns_after_its_release,
    a_rule_is_added_to_a_running_program,
    its_host_is_not_stopped_or_joined,
    a_rule_that_never_fired_fails_a_strict_run,
    the_trace_has_each_firing_and_each_failed_completion,
    a_rule_for_another_host_is_ignored,
    rules_that_need_the_emulator_are_refused_with_what_to_use_instead,
    the_programs_of_ab_share_the_rules,
    programs_of_each_shape_run_with_rules,
    an_event_becomes_another_one_and_its_connection_ends,
    the_active_side_gets_the_same_events_as_on_the_emulator,
    a_delayed_completion_delays_those_behind_it_and_no_others,
    a_held_completion_reaches_a_program_that_waits_for_an_event,
    a_completion_of_an_extended_queue_is_delayed,
    events_are_delayed_and_held,
    an_asynchronous_event_is_held,
    the_status_of_an_event_changes_alone,
    a_lost_event_is_not_seen,
    a_completion_gets_the_status_of_the_rule_and_fails_its_queue_pair,
    a_lost_completion_is_not_seen,
    an_asynchronous_event_becomes_another_one_or_is_lost,
    removed_memory_fails_the_request_in_the_device,
    removed_memory_is_that_of_the_emulator,
    a_rule_at_memory_means_its_bytes,
    users_of_the_layer_wrap_an_object_once,
    a_request_that_the_device_refuses_is_not_changed,
    a_post_that_a_rule_fails_names_its_request,
    a_rule_at_a_call_means_its_queue_pair,
    requests_behind_a_failed_one_are_flushed,
    completions_keep_their_order_with_two_pollers,
    rules_at_a_call_decide_before_those_at_its_memory,
]

if __name__ == "__main__":
    try:
        sys.exit(emulated.run_cases("faults", [(case.__name__, case) for case in CASES], at_once=2))
    finally:
        shutil.rmtree(OUTPUT, ignore_errors=True)
