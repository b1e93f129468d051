"""`rdmaemu run --backend system`: programs on the machine's own rdma_rxe, also started from the
environment of an emulated host."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "layer"))
import emulated  # noqa: E402
import memory  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure  # noqa: E402
from peers import KERNEL, wait_for_kernel_listener  # noqa: E402

ON_SYSTEM = [RDMAEMU, "run", "--backend", "system"]
LIMIT_S = 60


def run_on_system(*arguments, env=None):
    return subprocess.run([*ON_SYSTEM, *arguments], env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)


def shows(result, status, *words):
    for word in words:
        if result.returncode != status or word not in result.stdout:
            raise Failure("status %d and %s were expected: status %d, %s" %
                          (status, words, result.returncode, result.stdout))


def the_machines_device_is_shown():
    shows(run_on_system("--device", "rxe0", "--", "ibv_devinfo"), 0, "hca_id:\trxe0", "PORT_ACTIVE")
    shows(run_on_system("--", "ibv_devinfo", "-l"), 0, "rxe0")


def a_device_that_is_not_there_is_refused_with_those_that_are():
    shows(run_on_system("--device", "rxe7", "--", "true"), 125, "no RDMA device rxe7", "rxe0")


def it_leaves_the_emulated_host_around_it():
    on_system = " ".join([*ON_SYSTEM, "--device", "rxe0", "--"])
    inside = subprocess.run(
        ["sh", "-c", """eval "$(%s env --host around)"; echo "${LD_LIBRARY_PATH:?}" &&
         %s sh -c 'echo "$LD_LIBRARY_PATH$RDMAEMU_HOST."; ibv_devinfo'""" % (RDMAEMU, on_system)],
        text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=LIMIT_S)
    shows(inside, 0, "shim/verbs")
    # The GUID identifies the device.
    outside = run_on_system("--", "ibv_devinfo")
    if inside.stdout.split("\n", 1)[1] != ".\n" + outside.stdout:
        raise Failure("inside:\n%s\noutside:\n%s" % (inside.stdout, outside.stdout))


def rping_runs_against_itself():
    port = str(emulated.free_tcp_port())
    common = ["--device", "rxe0", "--", "rping", "-a", KERNEL[4], "-p", port, "-C", "3", "-v"]
    with Emulator() as emulator:
        server = emulator.start_outside([*ON_SYSTEM, *common, "-s"])
        wait_for_kernel_listener(server)
        client = emulator.start_outside([*ON_SYSTEM, *common, "-c"])
        if client.wait(LIMIT_S) != 0 or server.wait(LIMIT_S) != 0:
            raise Failure(client.describe() + "\n" + server.describe())
        client.expect("^ping data: rdma-ping-2")


def a_program_trace_has_what_rping_saw():
    port = str(emulated.free_tcp_port())
    with Emulator() as emulator:
        traces = [os.path.join(emulator.directory, name) for name in ("s.jsonl", "c.jsonl")]
        common = ["--", "rping", "-a", KERNEL[4], "-p", port, "-C", "3"]
        server = emulator.start_outside([*ON_SYSTEM, "--program-trace", traces[0], *common, "-s"])
        wait_for_kernel_listener(server)
        client = emulator.start_outside([*ON_SYSTEM, "--program-trace", traces[1], *common, "-c"])
        if client.wait(LIMIT_S) != 0 or server.wait(LIMIT_S) != 0:
            raise Failure(client.describe() + "\n" + server.describe())
        for path in traces:
            with open(path) as lines:
                saw = [json.loads(line) for line in lines]
            kinds = {(line["kind"], line["what"]) for line in saw}
            # libibverbs's ibv_reg_mr jumps to it.
            if ("call", "reg_mr_iova2") in kinds:
                raise Failure("a call of libibverbs counts as the program's")
            for wanted in (("event", "ESTABLISHED"), ("call", "post_send"), ("call", "reg_mr"),
                           ("completion", "SUCCESS"), ("end", "exit")):
                if wanted not in kinds:
                    raise Failure("%s is not in %s: %s" % (wanted, path, sorted(kinds)))
            if saw[0]["arguments"]["backend"] != "system":
                raise Failure("%s" % saw[0])


# A rule, and what rping's client prints.
RULES = [
    ('at = "event.addr_resolved"\nevent = "addr_error"\nstatus = -19',
     "RDMA_CM_EVENT_ADDR_ERROR, error -19"),
    ('at = "event.connect_response"\nevent = "rejected"\nstatus = 28',
     "RDMA_CM_EVENT_REJECTED, error 28"),
    ('at = "event.connect_response"\nevent = "unreachable"\nstatus = -110',
     "RDMA_CM_EVENT_UNREACHABLE, error -110"),
    # libibverbs's ibv_reg_mr calls ibv_reg_mr_iova2, which must not count as a second call.
    ('at = "call.reg_mr"\nnth = 2\nerrno = "ENOMEM"', "send_buf reg_mr failed"),
    ('at = "wc.send"\nnth = 1\nstatus = "retry_exc_err"', "cq completion failed status 12"),
    # What is delayed comes later, and nothing else changes.
    ('at = "wc.recv"\nnth = 2\ndelay_ms = 100', "ping data: rdma-ping-2"),
    ('at = "event.addr_resolved"\ndelay_ms = 100', "ping data: rdma-ping-2"),
]


def fault_rules_apply_on_the_machines_device():
    port = str(emulated.free_tcp_port())
    common = ["--", "rping", "-a", KERNEL[4], "-p", port, "-C", "3", "-v"]
    with Emulator() as emulator:
        server = emulator.start_outside([*ON_SYSTEM, *common, "-s", "-P"])
        wait_for_kernel_listener(server)
        for rule, expected in RULES:
            scenario = os.path.join(emulator.directory, "rules.toml")
            with open(scenario, "w") as text:
                text.write("[[fault]]\n" + rule + "\n")
            client = emulator.start_outside(
                [*ON_SYSTEM, "--scenario", scenario, "--strict", *common, "-c"])
            client.wait(LIMIT_S)
            if expected not in client.output or "never fired" in client.output:
                raise Failure("%s was expected with\n%s\n%s" % (expected, rule, client.describe()))


INLINE, INLINE_BY_RXE = "inline success", "inline local QP operation error"


# Outside its region an address fails as on the emulator.
def removed_memory_fails_requests_on_the_machines_device():
    with Emulator() as emulator:
        program = memory.build(emulator.directory)
        for rule, operations, expected in memory.CASES:
            for way in ([], ["ex"]):
                scenario = os.path.join(emulator.directory, "rules.toml")
                with open(scenario, "w") as text:
                    text.write("[[fault]]\n%s\nunmapped = true\n" % rule.replace(", ", "\n"))
                ran = emulator.start_outside([*ON_SYSTEM, "--device", "rxe0", "--scenario", scenario,
                                              "--strict", "--", program, *way, *operations])
                # docs/differences.md: rdma_rxe sends no inline data of ibv_wr_set_inline_data.
                wanted = [INLINE_BY_RXE if way and line == INLINE else line for line in expected]
                if memory.lines_of(ran) != wanted:
                    raise Failure("%s was expected with\n%s\n%s" % (wanted, rule, ran.describe()))


# The same binary is a unit test on an embedded host (docs/embedding.md).
def a_unit_test_runs_on_the_machines_device():
    test = os.path.abspath("tests/embedded/backends_test")
    libraries = os.path.abspath("emulator/embedded")
    result = run_on_system("--device", "rxe0", "--", test,
                           env=dict(os.environ, LD_LIBRARY_PATH=libraries,
                                    RDMAEMU_TEST_ADDRESS=KERNEL[4],
                                    RDMAEMU_TEST_TIMEOUT_MS="5000"))
    shows(result, 0, "[       OK ] BackendsTest.AMessageArrives",
          "[       OK ] BackendsTest.TheAddressIsTheDevices", "the test needs fault rules")


def usage_checks_find_mistakes_on_the_machines_device():
    usage = os.path.abspath("tests/checks/usage")
    # MR-008 needs the processor's breakpoints.
    for rule in ("CM-005", "QP-003", "CQ-007", "MR-008"):
        shows(run_on_system("--device", "rxe0", "--check=error", "--", usage, rule, "break", KERNEL[4]),
              121, "rdmaemu check: RDMAEMU-%s: " % rule)
        shows(run_on_system("--device", "rxe0", "--check=error", "--", usage, rule, "keep", KERNEL[4]),
              0, "the usage checks found nothing")


def a_sweep_finds_what_is_planted_and_nothing_else():
    planted = os.path.abspath("tests/sweep/planted")
    with Emulator() as emulator:
        for mistake, points, case, verdict in (
                ("none", "call.reg_mr,event.established,wc.send", None, None),
                ("null-mr", "call.reg_mr", "call.reg_mr#1: errno=ENOMEM", "crashed")):
            swept = subprocess.run(
                [RDMAEMU, "sweep", "--backend", "system", "--device", "rxe0", "--json",
                 "--time-budget", "0", "--max-runs", "12", "--limit", "60s", "--points", points,
                 "--report",
                 os.path.join(emulator.directory, mistake), "--", planted, mistake, KERNEL[4]],
                text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, timeout=10 * LIMIT_S)
            if swept.returncode != (0 if case is None else 1):
                raise Failure("status %d: %s%s" % (swept.returncode, swept.stdout, swept.stderr))
            cases = json.loads(swept.stdout)["cases"]
            found = {one["case"]: one["verdict"] for one in cases if "command" in one}
            if len(cases) < 4 or found.get(case) != verdict or set(found.values()) - {verdict}:
                raise Failure("%s of %d cases: %s" % (mistake, len(cases), found))


def system_cases():
    return [("system." + case.__name__, case) for case in (
        the_machines_device_is_shown, a_device_that_is_not_there_is_refused_with_those_that_are,
        it_leaves_the_emulated_host_around_it, rping_runs_against_itself,
        a_program_trace_has_what_rping_saw, fault_rules_apply_on_the_machines_device,
        removed_memory_fails_requests_on_the_machines_device, a_unit_test_runs_on_the_machines_device,
        usage_checks_find_mistakes_on_the_machines_device,
        a_sweep_finds_what_is_planted_and_nothing_else)]
