"""One test program on each backend of RDMAEMU_BACKEND. Checks which tests pass, which tests are
skipped, and the reasons.

usage: backends.py GOOGLETEST CATCH2 DOCTEST
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

LIMIT_S = 120
SKIPPED_ALL = 4  # of Catch2 3
GOOGLETEST, CATCH2, DOCTEST = (os.path.abspath(path) for path in sys.argv[1:4])
SHIM = ":".join(os.path.abspath(path) for path in ("shim/rdmacm", "shim/verbs"))
LIBRARIES = os.path.abspath("emulator/embedded") + ":" + SHIM


def check(holds, text):
    if not holds:
        raise Failure(text)


def says(output, text):
    """Checks that the output contains the text. Frameworks break long lines at any position, so
    blanks do not count."""
    check("".join(text.split()) in "".join(output.split()), "\"%s\" is not in:\n%s" % (text, output))


def variables(backend, **extra):
    return dict({"LD_LIBRARY_PATH": LIBRARIES, "RDMAEMU_BACKEND": backend}, **extra)


def run_on_host(backend, argv, options=(), status=0, **extra):
    """Runs a program under `rdmaemu run`."""
    with Emulator() as emulator:
        program = emulator.start("a", emulated.free_addresses(1)[0], argv,
                                 env=variables(backend, **extra), options=options)
        ended = program.wait(LIMIT_S)
        check(ended in (status, SKIPPED_ALL) if status == 0 else ended == status,
              program.describe())
        return program.output


def run_alone(backend, argv, status):
    with Emulator() as emulator:
        program = emulator.start_outside(argv, env=dict(emulator.env, **variables(backend)))
        ended = program.wait(LIMIT_S)
        check((ended == 0) == (status == 0), program.describe())
        return program.output


def passed(output):
    return {name.split(".")[1] for name in re.findall(r"^\[       OK \] (\S+)", output, re.MULTILINE)}


def skipped(output):
    return {name.split(".")[1] for name in
            re.findall(r"^\[  SKIPPED \] (\S+?)(?: \(|,|$)", output, re.MULTILINE)}


def expect_sets(output, passes, skips):
    check(passed(output) == passes, "passed: %s\n%s" % (sorted(passed(output)), output))
    skips = skips | {"TheEnvironmentNamesTheAddress"}
    check(skipped(output) == skips, "skipped: %s\n%s" % (sorted(skipped(output)), output))


# This test waits for its time-out on all backends except the embedded host.
SLOW = "AWaitForWhatNeverComesIsAFailure"
BUT_SLOW = "--gtest_filter=-*." + SLOW
EVERYWHERE = {"AMessageArrives", "TheAddressIsTheDevices"}
RULES = {"ARuleRejectsARequest", "ARuleAtACallFailsIt", "EveryFaultPointHasItsTurn", "ARuleIsLeftBehind",
         "ATestBeginsWithoutRulesOfOthers"}
TWO_DEVICES = {"EachHasItsAddress"}


def an_embedded_host_is_the_default():
    output = run_alone("", [GOOGLETEST], 0)
    expect_sets(output, {SLOW} | EVERYWHERE | RULES | TWO_DEVICES | {"TimeIsMoved", "AnotherMachineIsAdded"},
                set())


def the_host_process_has_rules_but_one_host():
    output = run_on_host("host", [GOOGLETEST, BUT_SLOW])
    expect_sets(output, EVERYWHERE | RULES,
                {"TimeIsMoved", "AnotherMachineIsAdded"} | TWO_DEVICES)
    says(output, "the test needs 2 RDMA devices with addresses; there are 1")
    says(output, "start the host with `rdmaemu run --clock manual`")
    says(output, "the test needs several hosts in one process")


def the_host_process_has_time_by_hand():
    output = run_on_host("host", [GOOGLETEST, "--gtest_filter=*TimeIsMoved"],
                         options=["--clock", "manual"])
    check(passed(output) == {"TimeIsMoved"}, output)


def a_machine_has_no_emulator():
    # rdmaemu's device replaces the machine's here, because the test uses only libibverbs.
    output = run_on_host("system", [GOOGLETEST, BUT_SLOW])
    expect_sets(output, EVERYWHERE,
                RULES | {"TimeIsMoved", "AnotherMachineIsAdded"} | TWO_DEVICES)
    says(output, "the test needs fault rules")
    says(output, "the test needs the emulator's time")


def the_system_backend_takes_rules_that_it_can_apply():
    """The emulator's libraries stand for the machine's own."""
    with Emulator() as emulator:
        run = [emulated.RDMAEMU, "run", "--backend", "system", "--host", "rules", "--", GOOGLETEST,
               "--gtest_filter=*ARule*:*ATestBegins*"]
        program = emulator.start("machine", emulated.free_addresses(1)[0], run,
                                 env=dict(variables("system"), RDMAEMU_SYSTEM_LIBRARIES=SHIM))
        check(program.wait(LIMIT_S) == 0, program.describe())
        check(passed(program.output) == {"ARuleAtACallFailsIt", "ARuleIsLeftBehind",
                                            "ATestBeginsWithoutRulesOfOthers"},
              program.output)
        says(program.output, "--backend system has no cm.req")
        says(program.output, "use a rule at event")


def an_address_is_taken_from_the_environment():
    with Emulator() as emulator:
        first, second = emulated.free_addresses(2)
        program = emulator.start("a", "%s,%s" % (first, second), [GOOGLETEST, BUT_SLOW],
                                 env=variables("system", RDMAEMU_TEST_ADDRESS=second))
        check(program.wait(LIMIT_S) == 0, program.describe())
        check(EVERYWHERE | {"TheEnvironmentNamesTheAddress"} == passed(program.output),
              program.output)
    output = run_on_host("system", [GOOGLETEST, BUT_SLOW], status=1, RDMAEMU_TEST_ADDRESS="192.0.2.1")
    says(output, "RDMAEMU_TEST_ADDRESS names 192.0.2.1")


def a_wait_ends_with_its_time_out():
    for backend in ("host", "system"):
        output = run_on_host(backend, [GOOGLETEST, "--gtest_filter=*." + SLOW],
                             RDMAEMU_TEST_TIMEOUT_MS="50")
        check(passed(output) == {SLOW}, output)


def other_frameworks_skip_too():
    output = run_on_host("system", [CATCH2, "a fault is seen"])
    says(output, "the test needs fault rules")
    check("what the host did" not in output, output)
    output = run_on_host("system", [DOCTEST, "--test-case=a fault is seen,an address is resolved"])
    says(output, "1 passed")
    says(output, "the test needs fault rules")
    for program in ([CATCH2, "a fault is seen"], [DOCTEST, "--test-case=a fault is seen"]):
        run_on_host("host", program)


def a_wrong_backend_is_an_error_that_says_what_to_do():
    for program in (GOOGLETEST, CATCH2, DOCTEST):
        output = run_alone("nosuch", [program], 1)
        says(output, "set it to embedded, host or system")
        output = run_alone("host", [program], 1)
        says(output, "rdmaemu run -- ./my_test")
        # This program uses rdmaemu's libibverbs.so.1, which does not have the machine's device.
        output = run_alone("system", [program], 1)
        says(output, "rdmaemu run --backend system")


if __name__ == "__main__":
    sys.exit(emulated.run_cases("backends", [(case.__name__, case) for case in (
        an_embedded_host_is_the_default,
        the_host_process_has_rules_but_one_host,
        the_host_process_has_time_by_hand,
        a_machine_has_no_emulator,
        the_system_backend_takes_rules_that_it_can_apply,
        an_address_is_taken_from_the_environment,
        a_wait_ends_with_its_time_out,
        other_frameworks_skip_too,
        a_wrong_backend_is_an_error_that_says_what_to_do,
    )]))
