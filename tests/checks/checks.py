"""`rdmaemu run --check` (docs/checks.md): each rule is broken by one program and kept by another."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure, free_addresses  # noqa: E402

LIMIT_S = 60
CHECK_FAILED = 121
OUTPUT = tempfile.mkdtemp(prefix="rdmaemu-checks-", dir="/tmp")
LIBRARIES = ":".join(os.path.abspath(path) for path in ("shim/verbs", "shim/rdmacm"))


def check(condition, what):
    if not condition:
        raise Failure(what)


USAGE = os.path.abspath("tests/checks/usage")
# The call that breaks the rule blocks for ever.
BLOCKING = {"CM-001", "CM-002", "CM-010", "CQ-004"}
# What the device must be for a rule: the MTU of loopback is the largest of all.
PROFILES = {"QP-024": 'name = "small"\nbase = "rxe"\n[port]\nmax_mtu = 1024\n'}


def programs():
    """The programs that break and keep a rule: RULE, or RULE@VARIANT."""
    return subprocess.run([USAGE, "list"], text=True, stdout=subprocess.PIPE, check=True).stdout.split()


def rules():
    with open("shim/layer/checks/rules.inc") as table:
        return re.findall(r'^RULE\(\w+, "RDMAEMU-([A-Z]+-\d+)"', table.read(), re.MULTILINE)


@functools.cache
def has_breakpoints():
    """Whether a breakpoint of perf_event_open(2) reports an access on this machine."""
    return subprocess.run([USAGE, "breakpoints"], timeout=LIMIT_S).returncode == 0


class Machine:
    """An emulated host, or one whose libraries stand for those of a machine."""

    def __init__(self, on_system=False):
        self.emulator = Emulator()
        self.address = free_addresses(1)[0]
        self.on_system = on_system
        self.options = []

    def __enter__(self):
        self.emulator.__enter__()
        self.json = os.path.join(self.emulator.directory, "findings.jsonl")
        return self

    def __exit__(self, *error):
        return self.emulator.__exit__(*error)

    def use_profile_of(self, rule):
        if rule not in PROFILES:
            return
        path = os.path.join(self.emulator.directory, "profile.toml")
        with open(path, "w") as profile:
            profile.write(PROFILES[rule])
        self.options = ["--profile", path]

    def start(self, argv, mode="--check"):
        options = [mode, "--check-json", self.json, *self.options]
        if self.on_system:
            run = [RDMAEMU, "run", "--backend", "system", *options, "--", *argv]
            return self.emulator.start("machine", self.address, run,
                                       env={"RDMAEMU_SYSTEM_LIBRARIES": LIBRARIES})
        return self.emulator.start("machine", self.address, argv, options=options)

    def run(self, argv, mode="--check", status=0):
        """Returns the ended program, and the findings. `status` None: any."""
        program = self.start(argv, mode)
        ended = program.wait(LIMIT_S)
        check(status is None or ended == status, "status %s instead of %s\n%s" % (ended, status, program.describe()))
        with open(self.json) as lines:
            return program, [json.loads(line) for line in lines]


def found(findings):
    return {finding["rule"].removeprefix("RDMAEMU-") for finding in findings}


def is_found(name, on_system=False):
    rule = name.split("@")[0]
    with Machine(on_system) as machine:
        machine.use_profile_of(rule)
        argv = [USAGE, name, "break", machine.address]
        if rule in BLOCKING:
            program = machine.start(argv)
            check(program.wait_for_text("RDMAEMU-%s: " % rule, LIMIT_S), program.describe())
            program.end()
            return
        program, findings = machine.run(argv, status=None)
        if rule == "MR-008" and not has_breakpoints():
            check("RDMAEMU-MR-008 was not checked" in program.output, program.describe())
            raise emulated.Skip("perf_event_open(2) has no working breakpoints on this machine")
        check(rule in found(findings), "%s\n%s" % (found(findings), program.describe()))
        shown = set(re.findall(r"^rdmaemu check: RDMAEMU-(\S+):", program.output, re.MULTILINE))
        check(shown == found(findings), program.describe())


def is_kept(rule):
    with Machine() as machine:
        machine.use_profile_of(rule)
        program, findings = machine.run([USAGE, rule, "keep", machine.address])
        check(not findings and "rdmaemu check:" not in program.output, program.describe())
        check("note: the usage checks found nothing" in program.output, program.describe())


# ---- what a finding says


def a_finding_names_call_objects_places_source_and_remedy():
    with Machine() as machine:
        program, findings = machine.run([USAGE, "CM-005", "break", machine.address])
        check(len(findings) == 1, program.describe())
        finding = findings[0]
        check(finding["call"] == "rdma_destroy_id" and finding["place"].startswith("usage+0x"),
              "%s" % finding)
        made = {each["name"]: each for each in finding["objects"]}
        check(len(made) == 2 and "rdma_create_qp" in [each["made_by"] for each in made.values()],
              "%s" % finding)
        for each in finding["objects"]:
            check(each["created_at"] and each["created_at"][0].startswith("usage+0x"), finding)
        check(finding["times"] == 1 and finding["source"] and finding["mend"], "%s" % finding)
        # The offsets are those of addr2line(1).
        offset = finding["place"].split("+")[1].split()[0]
        line = subprocess.run([emulated.need("addr2line"), "-e", USAGE, offset], text=True,
                              stdout=subprocess.PIPE).stdout
        check("cm_cases.cc" in line, line)


def a_finding_is_printed_once_and_counted():
    with Machine() as machine:
        script = "%s CM-027 break %s; %s CM-027 break %s" % (USAGE, machine.address, USAGE,
                                                           machine.address)
        program, findings = machine.run(["sh", "-c", script])
        check(len(findings) == 2, program.describe())  # of two processes
        check("note: RDMAEMU-CM-027: " in program.output, program.describe())
        check("at 2 places, 2 times" in program.output, program.describe())


def with_error_a_finding_fails_the_run():
    with Machine() as machine:
        machine.run([USAGE, "CM-027", "break", machine.address], mode="--check=error",
                    status=CHECK_FAILED)
        machine.run([USAGE, "CM-027", "keep", machine.address], mode="--check=error")
        # The program's own failure comes first.
        machine.run(["sh", "-c", "%s CM-027 break %s; exit 3" % (USAGE, machine.address)],
                    mode="--check=error", status=3)


# How shapes.c uses the library, the rules that it breaks, and its status. It does not close its
# device.
SHAPES = [
    ("linked", {"EXIT-011"}, 0), ("dlopen", {"EXIT-008", "EXIT-011", "EXIT-012"}, 0), ("fork", {"EXIT-011"}, 0),
    ("threads", set(), 0), ("short_threads", {"EXIT-011"}, 0), ("vfork", {"EXIT-011"}, 0),
    ("exec", {"EXIT-011"}, 0), ("kill", set(), 128 + signal.SIGKILL), ("_exit", set(), 0),
    ("signal", {"EXIT-011", "THREAD-006"}, 0), ("destructor", {"EXIT-011"}, 0),
    ("closefrom", {"EXIT-011"}, 0),
]


def build_shapes(*options):
    program = os.path.join(OUTPUT, "shapes" + "".join(options).replace("=", "_"))
    subprocess.run([emulated.need("gcc"), "-g", *options, os.path.join(HERE, "../layer/shapes.c"),
                    "-o", program, "-libverbs", "-lpthread", "-ldl"], check=True)
    return program


def programs_of_each_shape_are_checked():
    program = build_shapes()
    for how, rules, status in SHAPES:
        with Machine() as machine:
            ended, findings = machine.run([program, how], status=status)
            check(found(findings) == rules, "%s: %s\n%s" % (how, found(findings), ended.describe()))


def sanitized_programs_are_checked():
    for sanitizer in ("address", "thread", "undefined"):
        with Machine() as machine:
            ended, findings = machine.run([build_shapes("-fsanitize=" + sanitizer), "threads"])
            check(not findings and "ERROR" not in ended.output, ended.describe())


def a_program_under_valgrind_is_checked():
    emulated.need("valgrind")
    valgrind = ["valgrind", "-q", "--error-exitcode=9"]
    with Machine() as machine:
        ended, findings = machine.run([*valgrind, USAGE, "CM-005", "break", machine.address])
        check(found(findings) == {"CM-005"}, ended.describe())
        ended, findings = machine.run(
            [*valgrind, "--leak-check=full", USAGE, "CM-005", "keep", machine.address])
        check(not findings, ended.describe())


def a_program_without_the_libraries_is_a_warning():
    with Machine() as machine:
        program, _ = machine.run(["true"])
        check("warning: nothing was checked" in program.output, program.describe())


def a_program_that_a_signal_ended_is_not_called_clean():
    with Machine() as machine:
        program, findings = machine.run(["sh", "-c", "ibv_devinfo >/dev/null; kill -SEGV $$"],
                                        status=128 + signal.SIGSEGV)
        check(not findings, "%s" % findings)
        check("found nothing before the program ended with status 139 (signal 11)" in program.output,
              program.describe())


def another_mode_is_refused():
    with Machine() as machine:
        result = machine.emulator.rdmaemu("run", "--check=all", "--", "true")
        check(result.returncode == 2 and "report" in result.stderr, result.stderr)


def each_rule_has_a_case():
    listed = {name.split("@")[0] for name in programs()}
    check(listed == set(rules()), "%s" % sorted(listed ^ set(rules())))


CASES = [(case.__name__, case) for case in (
    a_finding_names_call_objects_places_source_and_remedy, a_finding_is_printed_once_and_counted,
    with_error_a_finding_fails_the_run, programs_of_each_shape_are_checked,
    sanitized_programs_are_checked, a_program_under_valgrind_is_checked, a_program_without_the_libraries_is_a_warning,
    a_program_that_a_signal_ended_is_not_called_clean, another_mode_is_refused, each_rule_has_a_case)]
for rule in programs():
    CASES.append(("%s.is_found" % rule, functools.partial(is_found, rule)))
    CASES.append(("%s.is_kept" % rule, functools.partial(is_kept, rule)))
# Rules of each kind on the system backend.
CASES += [("%s.is_found_on_the_system_backend" % rule, functools.partial(is_found, rule, True))
          for rule in ("CM-001", "QP-017", "QP-003", "MR-012", "CQ-007", "THREAD-006", "EXIT-007")]

if __name__ == "__main__":
    try:
        sys.exit(emulated.run_cases("checks", CASES, at_once=4))
    finally:
        shutil.rmtree(OUTPUT, ignore_errors=True)
