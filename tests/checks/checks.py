"""`rdmaemu run --check` (docs/checks.md): each rule is broken by one program and kept by another."""

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


def build():
    program = os.path.join(OUTPUT, "uses")
    sources = [os.path.join(HERE, name) for name in sorted(os.listdir(HERE)) if name.endswith(".c")]
    made = subprocess.run(
        [emulated.need("gcc"), "-g", "-O1", "-Wall", "-Wextra", "-Wno-missing-field-initializers",
         "-D_GNU_SOURCE", *sources, "-o", program, "-lrdmacm", "-libverbs", "-lpthread"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        raise Failure("cannot compile the uses\n" + made.stdout)
    return program


USES = build()


def rules_of_uses():
    """Returns for each rule the rules that its mistake breaks."""
    listed = subprocess.run([USES, "list"], text=True, stdout=subprocess.PIPE, check=True).stdout
    return {line.split()[0]: set(line.split()) for line in listed.splitlines()}


class Machine:
    """An emulated host, or one whose libraries stand for those of a machine."""

    def __init__(self, on_system=False):
        self.emulator = Emulator()
        self.address = free_addresses(1)[0]
        self.on_system = on_system

    def __enter__(self):
        self.emulator.__enter__()
        self.json = os.path.join(self.emulator.directory, "findings.jsonl")
        return self

    def __exit__(self, *error):
        return self.emulator.__exit__(*error)

    def run(self, argv, mode="--check", status=0):
        """Returns the ended program, and the findings."""
        options = [mode, "--check-json", self.json]
        if self.on_system:
            run = [RDMAEMU, "run", "--backend", "system", *options, "--", *argv]
            program = self.emulator.start("machine", self.address, run,
                                          env={"RDMAEMU_SYSTEM_LIBRARIES": LIBRARIES})
        else:
            program = self.emulator.start("machine", self.address, argv, options=options)
        ended = program.wait(LIMIT_S)
        check(ended == status, "status %s instead of %s\n%s" % (ended, status, program.describe()))
        with open(self.json) as lines:
            return program, [json.loads(line) for line in lines]


def found(findings):
    return {finding["rule"].removeprefix("RDMAEMU-") for finding in findings}


def is_found(rule, rules, on_system):
    with Machine(on_system) as machine:
        program, findings = machine.run([USES, rule, "break", machine.address])
        check(found(findings) == rules, "%s\n%s" % (found(findings), program.describe()))
        shown = set(re.findall(r"^rdmaemu check: RDMAEMU-(\S+):", program.output, re.MULTILINE))
        check(shown == rules, program.describe())


def is_kept(rule, _, on_system):
    with Machine(on_system) as machine:
        program, findings = machine.run([USES, rule, "keep", machine.address])
        check(not findings and "rdmaemu check:" not in program.output, program.describe())
        check("note: the usage checks found nothing" in program.output, program.describe())


# ---- what a finding says


def a_finding_names_call_objects_places_source_and_remedy():
    with Machine() as machine:
        program, findings = machine.run([USES, "CM-005", "break", machine.address])
        check(len(findings) == 1, program.describe())
        finding = findings[0]
        check(finding["call"] == "rdma_destroy_id" and finding["place"].startswith("uses+0x"),
              "%s" % finding)
        made = {each["name"]: each for each in finding["objects"]}
        check(set(made) == {"id3", "qp2"} and made["qp2"]["made_by"] == "rdma_create_qp",
              "%s" % finding)
        for each in finding["objects"]:
            check(each["created_at"] and each["created_at"][0].startswith("uses+0x"),
                  "%s" % finding)
        check(finding["times"] == 1 and finding["source"] and finding["mend"], "%s" % finding)
        # The offsets are those of addr2line(1).
        offset = finding["place"].split("+")[1].split()[0]
        line = subprocess.run([emulated.need("addr2line"), "-e", USES, offset], text=True,
                              stdout=subprocess.PIPE).stdout
        check("cm_uses.c" in line, line)


def a_finding_is_printed_once_and_counted():
    with Machine() as machine:
        script = "%s CM-027 break %s; %s CM-027 break %s" % (USES, machine.address, USES,
                                                           machine.address)
        program, findings = machine.run(["sh", "-c", script])
        check(len(findings) == 2, program.describe())  # of two processes
        check("note: RDMAEMU-CM-027: " in program.output, program.describe())
        check("at 2 places, 2 times" in program.output, program.describe())


def with_error_a_finding_fails_the_run():
    with Machine() as machine:
        machine.run([USES, "CM-027", "break", machine.address], mode="--check=error",
                    status=CHECK_FAILED)
        machine.run([USES, "CM-027", "keep", machine.address], mode="--check=error")
        # The program's own failure comes first.
        machine.run(["sh", "-c", "%s CM-027 break %s; exit 3" % (USES, machine.address)],
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
        ended, findings = machine.run([*valgrind, USES, "CM-005", "break", machine.address])
        check(found(findings) == {"CM-005"}, ended.describe())
        ended, findings = machine.run(
            [*valgrind, "--leak-check=full", USES, "CM-005", "keep", machine.address])
        check(not findings, ended.describe())


def a_program_without_the_libraries_is_a_warning():
    with Machine() as machine:
        program, _ = machine.run(["true"])
        check("warning: nothing was checked" in program.output, program.describe())


def another_mode_is_refused():
    with Machine() as machine:
        result = machine.emulator.rdmaemu("run", "--check=all", "--", "true")
        check(result.returncode == 2 and "report" in result.stderr, result.stderr)


def each_rule_has_a_use():
    with open("shim/layer/checks/rules.inc") as table:
        rules = set(re.findall(r'^RULE\(\w+, "RDMAEMU-([A-Z]+-\d+)"', table.read(), re.MULTILINE))
    check(rules == set(RULES), "%s" % sorted(rules ^ set(RULES)))


# ---- Debian's programs. docs/checks.md says what each finding is.

PERFTEST = {"EXIT-002", "EXIT-003", "EXIT-005", "EXIT-011", "EXIT-012"}
# A program's server, its client, the port, and the rules that it breaks.
PROGRAMS = [
    ("rping -s -a {address} -C 3", "rping -c -a {address} -C 3", 7174, {"CM-005", "THREAD-001"}),
    ("ucmatose -b {address}", "ucmatose -s {address}", 7471, {"CM-024"}),
    ("udaddy -b {address}", "udaddy -s {address}", 7174, set()),
    ("rdma_server", "rdma_client -s {address}", 7471, set()),
    ("ib_write_bw -R -F -n 20", "ib_write_bw -R -F -n 20 {address}", 18515, PERFTEST),
    ("ib_send_lat -R -F -n 20", "ib_send_lat -R -F -n 20 {address}", 18515, PERFTEST),
]


def breaks_only(server, client, port, rules):
    emulated.need(server.split()[0])
    with Machine() as machine:
        script = "%s & %s wait --host machine --listening %d --timeout 30s && %s; wait" % (
            server.format(address=machine.address), RDMAEMU, port,
            client.format(address=machine.address))
        program, findings = machine.run(["sh", "-c", script])
        check(found(findings) <= rules, program.describe())


RULES = rules_of_uses()
CASES = [(case.__name__, case) for case in (
    a_finding_names_call_objects_places_source_and_remedy, a_finding_is_printed_once_and_counted,
    with_error_a_finding_fails_the_run, programs_of_each_shape_are_checked,
    sanitized_programs_are_checked, a_program_under_valgrind_is_checked, a_program_without_the_libraries_is_a_warning,
    another_mode_is_refused, each_rule_has_a_use)]
for name, case in (("is_found", is_found), ("is_kept", is_kept)):
    CASES += [("%s.%s" % (rule, name), lambda case=case, rule=rule, more=more: case(rule, more, False))
              for rule, more in RULES.items()]
# One rule of each kind on the system backend.
CASES += [("%s.is_found_on_the_system_backend" % rule,
           lambda rule=rule: is_found(rule, RULES[rule], True))
          for rule in ("CM-001", "QP-017", "MR-012", "CQ-007", "THREAD-006", "EXIT-007")]
CASES += [("%s.breaks_only_its_rules" % program[0].split()[0],
           lambda program=program: breaks_only(*program)) for program in PROGRAMS]

if __name__ == "__main__":
    try:
        sys.exit(emulated.run_cases("checks", CASES, at_once=4))
    finally:
        shutil.rmtree(OUTPUT, ignore_errors=True)
