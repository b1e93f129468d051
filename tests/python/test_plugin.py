"""The pytest plugin, tested by pytest's output and exit status."""

import json
import os
import re
import subprocess

import pytest
from rdmaemu import _timeline

OPENS = """
    from pyverbs.device import Context
    import pytest, rdmaemu

    def work(times=100):
        for _ in range(times):
            Context(name="rxe0").close()
"""


@pytest.fixture
def run(pytester, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("TEST_UNDECLARED_OUTPUTS_DIR", raising=False)

    def run(code, *arguments):
        pytester.makepyfile(OPENS + code)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)
    return run


def timeline_lines(result):
    return [line for line in result.outlines if re.match(r"\S+ embedded ", line.strip())]


def test_a_failing_test_shows_sixty_lines_and_names_the_file_with_the_rest(run, tmp_path):
    result = run("""
    def test_fails(rdmaemu_host):
        work()
        assert False
    """)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*rdmaemu timeline*", "*lines * of *; all of them: *"])
    head = re.search(r"\[lines (\d+) to (\d+) of (\d+); all of them: (\S+)\]", result.stdout.str())
    first, last, count = map(int, head.groups()[:3])
    assert last - first + 1 == _timeline.LINES and last == count > 100
    with open(head.group(4)) as file:
        assert len(file.read().splitlines()) == count
    assert os.path.dirname(head.group(4)) == str(tmp_path)
    assert "test_fails" in head.group(4)
    assert len(timeline_lines(result)) <= _timeline.LINES


def test_the_lines_are_those_around_the_failure(run):
    result = run("""
    def test_fails(rdmaemu_host):
        try:
            with rdmaemu_host.fault(at="cm.req", drop=True):
                work(50)
                assert False
        finally:
            work(50)
    """)
    head = re.search(r"\[lines (\d+) to (\d+) of (\d+);", result.stdout.str())
    first, last, count = map(int, head.groups())
    assert first > 1 and last < count, head.group()


def test_a_passing_test_shows_nothing(run):
    result = run("""
    def test_passes(rdmaemu_host):
        work()
    """, "-rA")
    result.assert_outcomes(passed=1)
    assert "timeline" not in result.stdout.str()


def test_a_host_that_the_test_opened_itself_is_shown_too(run):
    result = run("""
    def test_fails():
        with rdmaemu.open(name="mine"):
            work(1)
            assert False
    """, "--show-capture=no")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*rdmaemu timeline*", "* mine *"])


def test_a_failure_that_was_expected_is_not_the_one_that_is_shown(run):
    result = run("""
    def test_fails(rdmaemu_host):
        with pytest.raises(KeyError):
            with rdmaemu_host.fault(at="cm.req", drop=True):
                raise KeyError
        work()
        assert False

    def test_raises_from():
        try:
            with rdmaemu.open(name="mine"):
                work()
                raise KeyError
        except KeyError as error:
            raise ValueError from error

    def test_has_no_host():
        with pytest.raises(KeyError):
            with rdmaemu.open():
                raise KeyError
        assert False
    """)
    result.assert_outcomes(failed=3)
    shown = [tuple(map(int, each)) for each in re.findall(
        r"\[lines (\d+) to (\d+) of (\d+);", result.stdout.str())]
    assert len(shown) == 2 == result.stdout.str().count("rdmaemu timeline")
    assert all(last == count for _, last, count in shown), shown


def test_failed_tests_leave_reports(run, tmp_path, monkeypatch):
    reports = tmp_path / "reports"
    monkeypatch.setenv("RDMAEMU_REPORT", str(reports))
    result = run("""
    def test_fails(rdmaemu_host):
        rdmaemu_host.fault(name="late", at="call.open_device", delay_ms=5)
        work(1)
        assert False

    @pytest.fixture
    def broken(rdmaemu_host):
        raise KeyError

    def test_has_a_broken_fixture(broken):
        pass

    def test_passes(rdmaemu_host):
        work()

    def test_has_no_report():
        with rdmaemu.open():
            assert False
    """, "--show-capture=no")
    result.assert_outcomes(failed=2, errors=1, passed=1)
    fails, broken = sorted(reports.iterdir(), key=lambda each: each.name.endswith("fixture"))
    assert fails.name.endswith(".py__test_fails")
    assert broken.name.endswith(".py__test_has_a_broken_fixture")
    for report in (fails, broken):
        result.stdout.fnmatch_lines(["the report of this test is in %s; open its ladder.html" % report])
        assert {each.name for each in report.iterdir()} == {
            "embedded.jsonl", "embedded.pcapng", "environment.txt", "ladder.html", "rules.json",
            "timeline.txt"}
    rule, = json.loads((fails / "rules.json").read_text())
    assert (rule["name"], rule["matched"], rule["fired"]) == ("late", 1, 1)
    rdmaemu = os.path.join(os.environ["RDMAEMU_TEST_PREFIX"], "bin/rdmaemu")
    trace, capture = str(fails / "embedded.jsonl"), str(fails / "embedded.pcapng")
    for command, said in (("show", "open_device"), ("summary", "open_device")):
        assert said in subprocess.check_output([rdmaemu, "trace", command, trace, capture], text=True)
    assert "\nsame\n" in subprocess.check_output([rdmaemu, "trace", "diff", trace, trace], text=True)


def test_objects_that_a_failure_leaves_open_harm_no_later_test(run):
    result = run("""
    from pyverbs.cq import CQ
    from pyverbs.pd import PD
    from pyverbs.mr import MR
    from pyverbs.cmid import CMID, CMEventChannel
    import pyverbs.enums as e

    @pytest.mark.parametrize("run", range(3))
    def test_fails(rdmaemu_host, run):
        context = Context(name="rxe0")
        pd, cq = PD(context), CQ(context, 10, None, None, 0)
        mr = MR(pd, 100, e.IBV_ACCESS_LOCAL_WRITE)
        channel = CMEventChannel()
        id_ = CMID(creator=channel)
        assert False

    def test_passes(rdmaemu_host):
        work()
    """)
    result.assert_outcomes(failed=3, passed=1)


def test_marks_and_the_options_fixture_reach_the_host(run):
    result = run("""
    pytestmark = pytest.mark.rdmaemu(name="module", clock="manual")

    @pytest.mark.rdmaemu(name="nearest")
    def test_marks(rdmaemu_host):
        assert rdmaemu_host.name == "nearest"
        rdmaemu_host.advance(1)
        assert rdmaemu_host.now() == 1

    class TestOverride:
        @pytest.fixture
        def rdmaemu_options(self):
            return dict(name="override")

        def test_overrides(self, rdmaemu_host):
            assert rdmaemu_host.name == "override"
    """, "--strict-markers")
    result.assert_outcomes(passed=2)


def test_faults_runs_a_test_under_each_fault(run):
    result = run("""
    from rdmaemu.pytest_plugin import faults

    @faults('at = "call.open_device", delay_ms = 5',
            refused=dict(at="call.open_device", errno="EIO"),
            elsewhere=dict(at="call.reg_mr", errno="EIO"))
    def test_survives(rdmaemu_fault):
        work(1)
    """, "-v")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*test_survives[[]refused[]] FAILED*",
                                 "*NeverFired: the rule * matched 0 times and never fired*"])


def test_sweep_runs_a_test_under_each_fault_that_it_meets(run):
    result = run("""
    from pyverbs.pd import PD
    from pyverbs.pyverbs_error import PyverbsRDMAError
    from rdmaemu.pytest_plugin import sweep

    def body(host):
        with Context(name="rxe0") as context:
            PD(context).close()

    @sweep(body, points=["call.alloc_pd", "call.open_device"])
    def test_fails_cleanly(rdmaemu_host, rdmaemu_fault):
        with pytest.raises(PyverbsRDMAError):
            body(rdmaemu_host)

    @sweep(body, points=["call.alloc_pd"])
    def test_does_less_than_the_body(rdmaemu_host, rdmaemu_fault):
        work(1)
    """, "-v")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["*call.alloc_pd#1: errno=ENOMEM*"])


def test_faults_of_all_calls_skip_those_that_the_test_never_makes(run):
    result = run("""
    from rdmaemu.pytest_plugin import faults
    from pyverbs.pyverbs_error import PyverbsError

    @faults(**rdmaemu.calls_fail("EIO"), must_fire=False)
    def test_survives(rdmaemu_fault):
        try:
            work(1)
        except PyverbsError:
            pass
    """, "-v")
    outcomes = result.parseoutcomes()
    assert outcomes["skipped"] > 20 and "failed" not in outcomes
    result.stdout.fnmatch_lines(["*test_survives[[]call.open_device[]] PASSED*",
                                 "*test_survives[[]call.reg_mr[]] SKIPPED*"])


def test_the_system_backend_skips_what_needs_the_emulator(run, monkeypatch):
    monkeypatch.setenv("RDMAEMU_BACKEND", "system")
    result = run("""
    assert "cm.req" in rdmaemu.cm_messages_lost()

    def test_uses_the_device_alone(rdmaemu_host):
        assert not rdmaemu_host.is_embedded

    def test_asks_for_a_fault(rdmaemu_host):
        with rdmaemu_host.fault(at="cm.req", drop=True):
            assert False
    """, "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(['*Host.fault needs the emulator, and RDMAEMU_BACKEND is "system"*'])


def test_the_address_of_a_machine_is_named_where_it_cannot_be_found(run, monkeypatch):
    monkeypatch.setenv("RDMAEMU_BACKEND", "system")
    monkeypatch.setenv("RDMAEMU_TEST_ADDRESS", "fd00::7,10.7.7.7")
    result = run("""
    def test_address(rdmaemu_address):
        assert rdmaemu_address == "10.7.7.7"
    """)
    result.assert_outcomes(passed=1)


def test_an_unknown_backend_is_named(run, monkeypatch):
    monkeypatch.setenv("RDMAEMU_BACKEND", "abacus")
    result = run("""
    def test_anything():
        pass
    """)
    assert result.ret != 0
    assert "use embedded, host, system" in result.stderr.str() + result.stdout.str()
