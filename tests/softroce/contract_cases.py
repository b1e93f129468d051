"""The contract tests with their two sides on two machines: one on the emulator, one on rdma_rxe.
They cover messages of many packets, READs, atomics, RNR, NAKs with their statuses, UD data and CM
events."""

import functools
import os
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from emulated import Failure, Skip, Unsteady  # noqa: E402
from peers import EMULATOR, KERNEL, Peers, run  # noqa: E402

LIMIT_S = 400
BINARIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "contract")

# The programs and their selected tests. Slow tests run at one path MTU.
PROGRAMS = (
    ("rc_data_test", "*/Mtu1024*:*/Mtu256Read:*/Mtu4096Write:*RcLayouts*:Rc.*:RcEnds.*"),
    ("uc_data_test", "*Mtu1024*"),
    # The emulator's link-local GID is derived from its address and belongs to no interface
    # (docs/design.md). The kernel's neighbour discovery cannot resolve such a GID.
    ("ud_data_test", "*-Ud.BetweenLinkLocalGidsTheRouteIsAnIpv6HeaderThatLeadsBack"),
    ("errors_test", "*"),
    # The kernel's listener loses requests that were not fetched when it migrates, and blocks
    # (measured between two programs on rdma_rxe).
    ("cm_event_test", "*-Connection.AListenersUnfetchedRequestsMigrateWithIt"),
)
# rdma_rxe waits for its ack timeout after each lost READ response, and then requests all the
# remaining data again. With large packets 8 MiB arrive within a test's time limit.
UNDER_LOSS = (("rc_data_test", "*/Mtu4096Send:*/Mtu4096Write:*/Mtu4096Read:Rc.*"),)

# Deviations of rdma_rxe by the emulator's role. The control (both sides on rdma_rxe) must fail too,
# or the case counts as failed.
QUIRKS = {
    # The completion of a receive that ended a window lacks IBV_WC_WITH_INV and the key.
    ("Rc.SendWithInvalidateEndsTheWindowItNames", "as_active"),
}

EMULATOR_ACTIVE, EMULATOR_PASSIVE, CONTROL = "as_active", "as_passive", "control"


def environment(peers, role):
    """Returns the environment that puts the test's own side here and its peer's side there."""
    env = dict(peers.emulator.env)
    if role == CONTROL:
        return dict(env, RDMA_TEST_LOCAL=KERNEL[4], RDMA_TEST_REMOTE=KERNEL[4])
    emulated_side = peers.program_environment()
    if role == EMULATOR_ACTIVE:
        return dict(env, **emulated_side, RDMA_TEST_LOCAL=EMULATOR[4], RDMA_TEST_REMOTE=KERNEL[4],
                    RDMA_TEST_PEER_ENV="LD_LIBRARY_PATH=")
    return dict(env, RDMA_TEST_LOCAL=KERNEL[4], RDMA_TEST_REMOTE=EMULATOR[4],
                RDMA_TEST_PEER_ENV=";".join("%s=%s" % one for one in emulated_side.items()))


def run_tests(program, tests, role, record=False):
    """Returns results by test name (failure text, or None), and the program's output."""
    binary = os.path.join(BINARIES, program + "_binary")
    with Peers(record=record) as peers:
        # A host runs as long as it has clients, so a program holds it.
        holder = peers.start(True, [binary, "--hold"])
        if not holder.wait_for_text("holding", 60):
            raise Failure("the emulated host did not start\n" + holder.describe())
        results = os.path.join(peers.emulator.directory, "results.xml")
        test = peers.emulator.start_outside(
            [binary, "--gtest_filter=" + tests, "--gtest_output=xml:" + results],
            env=environment(peers, role))
        status = test.wait(LIMIT_S)
        if not os.path.exists(results):
            raise Failure("%s ended with %s\n%s" % (program, status or "a time-out", test.describe()))
        found = {}
        for case in xml.etree.ElementTree.parse(results).iter("testcase"):
            if case.get("status") != "run":
                continue
            failures = [one.get("message", "") for one in case.findall("failure")]
            found["%s.%s" % (case.get("classname"), case.get("name"))] = "\n".join(failures) or None
        if record and any(found.values()):
            raise Failure(test.describe())
        return found


class Group:
    """Tests of one program in one role. They run together when the first result is requested."""

    def __init__(self, program, tests, role):
        self.program = program
        self.tests = tests
        self.role = role
        self.results = None
        self.error = None

    def judge(self, name):
        if self.results is None and self.error is None:
            try:
                self.results = run_tests(self.program, self.tests, self.role)
            except Failure as failure:
                self.error = failure
        if self.error:
            raise self.error
        if name not in self.results:
            raise Failure("it did not run")
        text = self.results[name]
        quirk = (name, self.role) in QUIRKS
        if text is None and not quirk:
            return
        control = run_tests(self.program, name, CONTROL)[name]
        if quirk and text is not None and control is not None:
            raise Skip("so does rdma_rxe with itself: " + control)
        if quirk:
            raise Failure("rdma_rxe has changed: take it from QUIRKS (here: %s; control: %s)" %
                          (text or "passes", control or "passes"))
        try:
            run_tests(self.program, name, self.role, record=True)
        except Failure as failure:
            raise Failure("%s\n\ncontrol, both sides on rdma_rxe: %s\n\nonce more, recorded: %s" %
                          (text, control or "passes", failure))
        raise Unsteady("passes alone; beside others: " + text)


def names_of(program, tests):
    """Returns the tests that a filter selects, by the names of the results."""
    listed = run(os.path.join(BINARIES, program + "_binary"), "--gtest_list_tests",
                 "--gtest_filter=" + tests)
    names, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            names.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return names


def cases_of(programs, label):
    cases = []
    for program, tests in programs:
        names = names_of(program, tests)
        for role in (EMULATOR_ACTIVE, EMULATOR_PASSIVE):
            group = Group(program, tests, role)
            cases += [("%s.%s%s" % (name, label, role), functools.partial(group.judge, name))
                      for name in names]
    return cases


def contract_cases():
    return cases_of(PROGRAMS, "")


def contract_under_loss():
    return cases_of(UNDER_LOSS, "loss.")
