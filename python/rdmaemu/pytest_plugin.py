"""The pytest plugin: a host for each test, and its timeline in the message of a test that failed.

pytest finds the plugin by itself when rdmaemu is in PYTHONPATH. Start pytest with
`python3 -m rdmaemu pytest ...`.

    def test_a_rejected_client_says_so(rdmaemu_host):
        with rdmaemu_host.expect_fault(at="cm.req", reject=28):
            assert Client("127.0.0.1", 7471).connect() == "rejected"

    @faults({"at": "cm.req", "nth": 1, "drop": True}, 'at = "cm.rtu", nth = 1, drop = true')
    def test_the_client_survives(rdmaemu_host, rdmaemu_fault):
        ...
"""

from __future__ import annotations

import gc
from typing import Any, Callable, Iterator, NoReturn

import pytest

from rdmaemu import _timeline
from rdmaemu._addresses import device_addresses
from rdmaemu._hosts import Host
from rdmaemu._library import BACKEND_VARIABLE, Backend, backend, is_preloaded
from rdmaemu._matrix import named_points
from rdmaemu._options import Options
from rdmaemu._rules import Fault, RuleLike
from rdmaemu._sweep import sweep_points


_MUST_FIRE = pytest.StashKey[bool]()


def faults(*rules: RuleLike, must_fire: bool = True, **named: RuleLike) -> pytest.MarkDecorator:
    """Runs the test once under each fault. The decorated test takes the fixture `rdmaemu_fault`.

    Rules are texts or mappings of keys; a keyword names its rule in the test's id. A test whose
    rule never fired fails. With must_fire=False such a test is skipped, which suits points that not
    every program reaches (`**rdmaemu.calls_fail()`).
    """
    points = named_points(rules) + named_points(named)
    return pytest.mark.parametrize(
        "rdmaemu_fault", [pytest.param((text, must_fire), id=name) for name, text in points],
        indirect=True)


def sweep(body: Callable[[Host], Any], **keys: Any) -> pytest.MarkDecorator:
    """Runs the test once under each fault that `body` can meet (rdmaemu.sweep_points).

    `body` gets a host, does what the test does, and must succeed. It runs once, when pytest collects
    the test. A test that did not meet its fault is skipped.
    """
    return faults(must_fire=False, **sweep_points(body, **keys))


def _skip(what: str) -> NoReturn:
    pytest.skip("Host.%s needs an embedded host, and %s is \"%s\"" % (
        what, BACKEND_VARIABLE, backend().value))


class HostProcess(Host):
    """The host process of `rdmaemu run`. Methods that need an embedded host skip the test."""

    def add(self, *_: Any, **__: Any) -> NoReturn:
        _skip("add")

    def machine(self, name: str) -> NoReturn:
        _skip("machine")

    def on_machine(self, name: str) -> NoReturn:
        _skip("on_machine")

    def timeline(self) -> NoReturn:
        _skip("timeline")

    def wait(self, timeout: float = 10.0) -> NoReturn:
        _skip("wait")


class SystemHost:
    """The machine's own devices. Methods that need the emulator skip the test and name the
    reason."""

    is_embedded = False
    name = None

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip("Host.%s needs the emulator, and %s is \"%s\"" % (
            name, BACKEND_VARIABLE, Backend.SYSTEM.value))


@pytest.fixture
def rdmaemu_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of the test's host: those of the mark `rdmaemu`. A module may override this."""
    options: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("rdmaemu"))):
        options.update(mark.kwargs)
    return options


@pytest.fixture
def rdmaemu_host(rdmaemu_options: dict[str, Any]) -> Iterator[Any]:
    """A host of the test's own, with the virtual clock.

    RDMAEMU_BACKEND=host: the host process of `rdmaemu run`, without the rules of other tests. A
    test that uses several machines or the timeline is skipped. RDMAEMU_BACKEND=system: the
    machine's devices. A test that calls any method of the host is skipped.
    """
    chosen = backend()
    if chosen is Backend.SYSTEM:
        yield SystemHost()
    elif chosen is Backend.HOST:
        process = HostProcess.attached()
        process.clear_rules()
        yield process
        process.clear_rules()
    else:
        options = dict(rdmaemu_options)
        if _timeline.report_directory():
            given = options.get("options") or Options()
            options.setdefault("report_bytes", given.report_bytes or _timeline.REPORT_BYTES)
        with Host(**options) as host:
            yield host
            gc.collect()  # collects pyverbs objects in reference cycles before their host is closed


@pytest.fixture
def rdmaemu_addresses(rdmaemu_host: Any, rdmaemu_options: dict[str, Any]) -> list[str]:
    """The addresses of the devices of rdmaemu_host, IPv4 first. An embedded host has those of its
    options. A host process and the machine have their own, or RDMAEMU_TEST_ADDRESS."""
    options = rdmaemu_options.get("options") or Options()
    return device_addresses(rdmaemu_options.get("devices", options.devices))


@pytest.fixture
def rdmaemu_address(rdmaemu_addresses: list[str]) -> str:
    """The first address of the devices of rdmaemu_host."""
    return rdmaemu_addresses[0]


@pytest.fixture
def rdmaemu_fault(request: pytest.FixtureRequest, rdmaemu_host: Any) -> Iterator[Fault]:
    """The fault of this run of a test that `faults` decorates."""
    text, must_fire = request.param
    with rdmaemu_host.fault(text) as fault:
        request.node.stash[_MUST_FIRE] = must_fire
        yield fault


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rdmaemu(**options): options of the host of rdmaemu_host")


def pytest_report_header() -> str:
    preload = ""
    if backend() is Backend.EMBEDDED:
        preload = ", preloaded" if is_preloaded() else ", not preloaded (python3 -m rdmaemu pytest ...)"
    return "rdmaemu: backend %s%s" % (backend().value, preload)


@pytest.hookimpl(trylast=True)  # type: ignore[misc]  # after a test that did not fail
def pytest_runtest_call(item: pytest.Item) -> None:
    fault = getattr(item, "funcargs", {}).get("rdmaemu_fault")
    if not isinstance(fault, Fault):
        return
    if item.stash.get(_MUST_FIRE, True):
        fault.check_fired()
    elif fault.fired == 0:
        pytest.skip("the rule matched %d times and never fired: %s" % (fault.matched, fault.text))


@pytest.hookimpl(hookwrapper=True)  # type: ignore[misc]
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    if not report.failed or backend() is not Backend.EMBEDDED:
        return
    directory, said = _timeline.report_of_failure(item.nodeid)
    text = _timeline.of_failure(item.nodeid, call.excinfo.value if call.excinfo else None, directory)
    for title, shown in (("rdmaemu timeline (seconds, host, process, kind, object)", text),
                         ("rdmaemu report", said)):
        if not shown:
            continue
        if hasattr(report.longrepr, "addsection"):  # shown with every value of --show-capture
            report.longrepr.addsection(title, shown)
        else:
            report.sections.append((title, shown))
