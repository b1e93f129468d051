"""Hosts, machines, time and rules."""

import asyncio
import datetime
import errno
import queue
import select
import threading
import time

import pytest
import rdmaemu
from pyverbs.cmid import CMEvent, CMEventChannel
from pyverbs.device import Context, get_device_list
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError


def devices():
    return sorted(device.name.decode() for device in get_device_list())


def refusal(code):
    return pytest.raises(rdmaemu.Error, match=errno.errorcode[code])


def test_a_host_has_devices_while_it_is_open():
    with rdmaemu.open() as host:
        assert devices() == ["rxe0"]
        assert host.is_embedded and host.name == "embedded"
    assert devices() == []
    with refusal(errno.ENOENT):
        host.now()
    host.close()


def test_every_option_reaches_the_host(tmp_path):
    scenario, trace, pcap = tmp_path / "rules.toml", tmp_path / "trace", tmp_path / "pcap"
    scenario.write_text('[[fault]]\nname = "of the scenario"\nat = "cm.req"\nreject = 28\n')
    options = rdmaemu.Options(
        name="a", devices=[rdmaemu.Device("left", addresses=["10.0.0.1/24", "10.0.1.1/24"]),
                           rdmaemu.Device("right", "siw", "10.0.2.1")],
        clock="manual", seed=2**64 - 1, scenario_path=scenario, trace_path=str(trace), pcap_path=pcap,
        silent_nets=["10.9.0.0/16", "10.8.0.0/16"], payload_shortcuts="off", gateways="10.0.0.254")
    with rdmaemu.Host(options) as host:
        assert host.name == "a"
        assert devices() == ["left", "right"]
        assert [rule.name for rule in host.rules()] == ["of the scenario"]
        host.advance(1)
        assert host.now() == 1.0
    assert trace.stat().st_size > 0 and pcap.stat().st_size > 0


@pytest.mark.parametrize("wrong, words", [
    (dict(clock="sundial"), "virtual, manual"),
    (dict(payload_shortcuts="sometimes"), "sometimes"),
    (dict(scenario_path="/nonexistent.toml"), "/nonexistent.toml"),
    (dict(silent_nets="everywhere"), "everywhere"),
    (dict(gateways="a door"), "a door"),
    (dict(clock="real", program_time=True), "program_time needs a clock"),
    (dict(devices=[rdmaemu.Device(addresses="")]), "has no address"),
])
def test_wrong_options_are_told_in_the_librarys_words(wrong, words):
    with pytest.raises(rdmaemu.Error, match=words) as raised:
        rdmaemu.open(**wrong)
    assert raised.value.errno == errno.EINVAL
    assert isinstance(raised.value, OSError)


def test_options_of_a_wrong_type_are_refused_by_the_package():
    for seed in (-1, 2**64, "1", True):
        with pytest.raises(ValueError, match="seed"):
            rdmaemu.open(seed=seed)
    with pytest.raises(TypeError, match="clock"):
        rdmaemu.open(clock=1)
    with pytest.raises(ValueError, match="NUL"):
        rdmaemu.open(name="a\0b")
    with pytest.raises(TypeError, match="program_time"):
        rdmaemu.open(program_time=1)
    with pytest.raises(TypeError):
        rdmaemu.open(sundial=True)


def test_a_process_has_one_first_host(rdmaemu_host):
    with refusal(errno.EBUSY):
        rdmaemu.open()


@pytest.mark.rdmaemu(clock="manual")
def test_manual_time_moves_when_it_is_told(rdmaemu_host):
    assert rdmaemu_host.now_ns() == 0
    rdmaemu_host.advance(0.25)
    rdmaemu_host.advance(datetime.timedelta(milliseconds=250))
    rdmaemu_host.advance_ns(1)
    assert rdmaemu_host.now_ns() == 500_000_001
    with rdmaemu_host.fault(at="time", at_ms=1500, port="down") as fault:
        rdmaemu_host.run_until_idle()
        assert fault.fired == 1
    assert rdmaemu_host.now() == pytest.approx(2.0, abs=1e-6)
    for wrong in (-1, float("nan"), float("inf"), 1e30):
        with pytest.raises((ValueError, OverflowError)):
            rdmaemu_host.advance(wrong)
    assert rdmaemu_host.now() == pytest.approx(2.0, abs=1e-6)


@pytest.mark.rdmaemu(clock="real")
def test_a_clock_that_runs_by_itself_is_not_moved(rdmaemu_host):
    with refusal(errno.EOPNOTSUPP):
        rdmaemu_host.advance(1)


def test_a_rule_fires_while_it_is_there(rdmaemu_host):
    context = Context(name="rxe0")
    with rdmaemu_host.fault(at="call.alloc_pd", nth=2, errno=errno.ENOMEM) as fault:
        PD(context).close()
        with pytest.raises(PyverbsError, match="Cannot allocate memory"):
            PD(context)
        assert (fault.matched, fault.fired) == (2, 1)
        assert "ENOMEM" in rdmaemu_host.rules()[0].does
        assert rdmaemu_host.rules()[0].at == "call.alloc_pd"
    assert rdmaemu_host.rules() == []
    assert (fault.matched, fault.fired) == (2, 1)
    fault.remove()
    PD(context).close()
    context.close()


def test_rules_are_texts_and_mappings_too(rdmaemu_host):
    faults = [rdmaemu_host.fault('at = "cm.req", nth = 3, reject = 28'),
              rdmaemu_host.fault({"at": "cm.rep", "drop": True}),
              rdmaemu_host.fault('at = "cm.rtu"', drop=True, name="both")]
    assert [rule.at for rule in rdmaemu_host.rules()] == ["cm.req", "cm.rep", "cm.rtu"]
    assert faults[2].name == "both"
    faults[0].remove()
    assert [rule.at for rule in rdmaemu_host.rules()] == ["cm.rep", "cm.rtu"]
    rdmaemu_host.clear_rules()
    assert rdmaemu_host.rules() == []
    with pytest.raises(TypeError, match="a rule is needed"):
        rdmaemu_host.fault()


def test_a_wrong_rule_says_what_would_be_right(rdmaemu_host):
    with pytest.raises(rdmaemu.Error, match="reject") as raised:
        rdmaemu_host.fault(at="cm.req", rejekt=28)
    assert raised.value.errno == errno.EINVAL
    assert rdmaemu_host.rules() == []


def test_an_expected_fault_that_never_fires_fails(rdmaemu_host):
    with pytest.raises(rdmaemu.NeverFired, match="matched 0 times and never fired"):
        with rdmaemu_host.expect_fault(at="cm.req", drop=True):
            pass
    assert rdmaemu_host.rules() == []


def test_the_error_of_a_body_hides_no_fault_that_never_fired(rdmaemu_host):
    with pytest.raises(KeyError):
        with rdmaemu_host.expect_fault(at="cm.req", drop=True):
            raise KeyError
    assert rdmaemu_host.rules() == []


def test_a_barrier_is_waited_for_and_released(rdmaemu_host):
    port_is_down = rdmaemu_host.fault(at="async.port_err", hold=True)
    with refusal(errno.EDEADLK):  # the program has one thread, and nothing is due
        port_is_down.wait(timeout=5)
    context = Context(name="rxe0")
    rdmaemu_host.set_port("rxe0", False)
    port_is_down.wait(timeout=float("inf"))
    for wrong in (dict(timeout=-1), dict(timeout=float("nan")), dict(times=-1)):
        with pytest.raises(ValueError):
            port_is_down.wait(**wrong)
    assert port_is_down.fired == 1
    port_is_down.release()
    witness = rdmaemu_host.fault(at="cm.req", reject=28)
    with refusal(errno.ENOENT):
        witness.release()  # this rule never holds anything
    context.close()


def test_devices_ports_and_addresses_change(rdmaemu_host):
    rdmaemu_host.remove_device("rxe0")
    assert devices() == []
    rdmaemu_host.add_device("rxe0")
    rdmaemu_host.add_device("rxe1", "siw")
    assert devices() == ["rxe0", "rxe1"]
    rdmaemu_host.add_address("rxe0", "10.0.0.7/24")
    rdmaemu_host.move_address("10.0.0.7", "rxe1")
    rdmaemu_host.remove_address("10.0.0.7")
    with refusal(errno.ENODEV):
        rdmaemu_host.set_port("rxe7", False)


def test_machines_have_devices_and_rules_of_their_own(rdmaemu_host):
    b = rdmaemu_host.add("b", [rdmaemu.Device("there", addresses="10.0.0.2")])
    assert devices() == ["rxe0"]
    with b.on():
        assert devices() == ["there"]
        with rdmaemu_host.on():
            assert devices() == ["rxe0"]
        assert devices() == ["there"]
    with rdmaemu_host.on_machine("b"):
        assert devices() == ["there"]
    assert devices() == ["rxe0"]
    b.enter()
    assert devices() == ["there"]
    rdmaemu_host.enter()
    assert devices() == ["rxe0"]
    b.set_port("there", False)
    with b.fault(at="call.open_device", errno="EIO"):
        Context(name="rxe0").close()
        with b.on(), pytest.raises(PyverbsError):
            Context(name="there")
    b.remove()
    with refusal(errno.ENOENT):
        b.remove()
    with refusal(errno.ENOENT):
        rdmaemu_host.machine("c").set_port("rxe0", True)


def test_a_thread_begins_on_the_first_machine(rdmaemu_host):
    b = rdmaemu_host.add("b", [rdmaemu.Device("there", addresses="10.0.0.2")])
    seen = []
    with b.on():
        thread = threading.Thread(target=lambda: seen.append(devices()))
        thread.start()
        thread.join()
        assert devices() == ["there"]
    assert seen == [["rxe0"]]


def test_what_fired_on_a_machine_that_has_ended_is_known(rdmaemu_host):
    b = rdmaemu_host.add("b", [rdmaemu.Device("there", addresses="10.0.0.2")])
    with b.fault(at="call.open_device", nth=3) as witness:
        with b.expect_fault(at="call.open_device", nth=5, crash=True) as fault:
            with b.on():
                for _ in range(5):
                    try:
                        Context(name="there")
                    except PyverbsError:
                        pass
    assert fault.fired == 1 and witness.fired == 1


def test_what_fired_is_known_after_the_only_machine_has_ended(rdmaemu_host):
    with rdmaemu_host.expect_fault(at="call.list_devices", crash=True) as fault:
        devices()
    assert fault.fired == 1


def test_a_wait_that_nothing_can_end_is_an_error(rdmaemu_host):
    channel = CMEventChannel()
    with pytest.raises(PyverbsError, match="Resource deadlock avoided"):
        CMEvent(channel)
    channel.close()


@pytest.mark.rdmaemu(devices=[rdmaemu.Device(addresses=["fd00::1/64", "10.0.0.1/24"]),
                              rdmaemu.Device("rxe1", addresses="10.0.1.1")])
def test_addresses_are_those_of_the_options(rdmaemu_address, rdmaemu_addresses):
    assert rdmaemu_address == "10.0.0.1"
    assert rdmaemu_addresses == ["10.0.0.1", "10.0.1.1", "fd00::1"]


def test_the_default_address_is_the_machines_own(rdmaemu_addresses):
    assert rdmaemu_addresses == ["127.0.0.1", "::1"]


def test_the_timeline_tells_what_happened(rdmaemu_host):
    context = Context(name="rxe0")
    context.close()
    assert "embedded" in rdmaemu_host.timeline()


def test_the_same_seed_gives_the_same_trace(tmp_path):
    traces = []
    for run, seed in enumerate((1, 1, 2)):
        trace = tmp_path / str(run)
        with rdmaemu.open(seed=seed, trace_path=trace):
            context = Context(name="rxe0")
            pd = PD(context)
            pd.close()
            context.close()
        traces.append(trace.read_bytes())
    assert traces[0] == traces[1]


def test_a_matrix_tells_which_faults_were_survived():
    def body(host, fault):
        context = Context(name="rxe0")
        PD(context).close()
        context.close()

    matrix = rdmaemu.for_each_fault({
        "slow": dict(at="call.alloc_pd", delay_ms=5),
        "no memory": dict(at="call.alloc_pd", errno="ENOMEM"),
        "another call": dict(at="call.reg_mr", errno="ENOMEM"),
    }, body)
    assert matrix.survived == ["slow"]
    assert matrix.failed == ["no memory"]
    assert matrix.never_fired == ["another call"]
    with pytest.raises(AssertionError, match="1 survived, 1 failed, 1 never fired") as raised:
        matrix.check()
    assert "Cannot allocate memory" in str(raised.value)
    rdmaemu.for_each_fault(['at = "call.alloc_pd", delay_ms = 5'], body).check()


def test_points_are_the_places_of_a_point():
    points = rdmaemu.points_at("cm", nth=2, drop=True)
    assert points["cm.req"] == {"at": "cm.req", "nth": 2, "drop": True}
    assert "wc.recv" in rdmaemu.completions_fail() and "cm.rtu" in rdmaemu.cm_messages_lost()
    with refusal(errno.EINVAL):
        rdmaemu.points_at("abacus")
    with rdmaemu.open() as host:  # each point is a valid rule
        for rule in [*rdmaemu.calls_fail().values(), *rdmaemu.completions_fail().values(),
                     *rdmaemu.cm_messages_lost(3).values()]:
            host.fault(rule).remove()


def test_sweep_points_are_the_faults_that_a_body_can_meet():
    def body(_host, _fault=None):
        with Context(name="rxe0") as context:
            for _ in range(5):
                PD(context).close()

    points = rdmaemu.sweep_points(body, points=["call.*_pd"], faults=["errno=ENO*"])
    assert list(points) == ["call.alloc_pd#%d: errno=ENOMEM" % nth for nth in (1, 3, 5)]
    matrix = rdmaemu.for_each_fault(points, body)
    assert matrix.failed == list(points)

    def count(**keys):
        return len(rdmaemu.sweep_points(body, points=["call.alloc_pd"], **keys))

    assert (count(per_site=0), count(per_site=1), count(per_site=0, max_runs=2)) == (5, 1, 2)
    with pytest.raises(ValueError, match="nothing to sweep: the body met 0 places"):
        rdmaemu.sweep_points(body, points=["cm.*"])

    def failing(_host):
        raise KeyError("a mistake of the body")
    with pytest.raises(KeyError):
        rdmaemu.sweep_points(failing)


def test_waiting_runs_the_host(rdmaemu_host):
    with rdmaemu_host.expect_fault(at="time", at_ms=5000, port="down"):
        assert rdmaemu_host.wait()
    assert rdmaemu_host.now() == 5.0
    with refusal(errno.EDEADLK):
        rdmaemu_host.wait()


@pytest.mark.rdmaemu(program_time=True)
def test_the_program_lives_in_the_hosts_time(rdmaemu_host):
    begun = time.monotonic(), time.time()
    time.sleep(3600)
    assert (time.monotonic() - begun[0], time.time() - begun[1]) == pytest.approx((3600, 3600))
    with pytest.raises(queue.Empty):
        queue.Queue().get(timeout=30)
    asyncio.run(asyncio.sleep(100))
    select.select([], [], [], 5)
    assert rdmaemu_host.now() == pytest.approx(3735)


@pytest.mark.rdmaemu(program_time=True)
def test_threads_meet_in_the_hosts_time(rdmaemu_host):
    woken = []

    def sleep(seconds):
        for _ in range(2):
            time.sleep(seconds)
            woken.append(seconds)

    threads = [threading.Thread(target=sleep, args=(seconds,)) for seconds in (10, 16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert woken == [10, 16, 10, 16]
    assert 32 <= rdmaemu_host.now() < 40
