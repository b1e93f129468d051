"""A client of a host process with a manual clock. `rdmaemu run` starts it with
RDMAEMU_BACKEND=host."""

import errno
import threading

import pytest
import rdmaemu
from pyverbs.device import Context, get_device_list
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError


def test_rules_go_to_the_host_process(rdmaemu_host):
    assert not rdmaemu_host.is_embedded
    context = Context(name="rxe0")
    with rdmaemu_host.expect_fault(at="call.alloc_pd", errno="ENOMEM") as fault:
        with pytest.raises(PyverbsError, match="Cannot allocate memory"):
            PD(context)
        assert fault.fired == 1
    PD(context).close()
    context.close()


def test_the_address_is_the_hosts(rdmaemu_address):
    assert rdmaemu_address.startswith("127.") and rdmaemu_address != "127.0.0.1"


def test_a_matrix_uses_the_host_process():
    def body(host, fault):
        assert not host.is_embedded
        Context(name="rxe0").close()

    matrix = rdmaemu.for_each_fault({"no": dict(at="call.open_device", errno="EIO"),
                                     "witness": 'at = "call.close_device"',
                                     "elsewhere": dict(at="call.reg_mr", errno="EIO")}, body)
    assert (matrix.failed, matrix.survived) == (["no"], ["witness"])
    assert matrix.never_fired == ["elsewhere"]


def test_rules_that_a_test_leaves_are_removed(rdmaemu_host):
    rdmaemu_host.fault(name="left", at="cm.req", drop=True)


def test_no_rule_is_left(rdmaemu_host):
    assert rdmaemu_host.rules() == []


def test_manual_time_of_the_host_process_is_moved(rdmaemu_host):
    before = rdmaemu_host.now()
    with rdmaemu_host.expect_fault(at="time", at_ms=50, port="down"):
        rdmaemu_host.advance(0.049)
        assert rdmaemu_host.rules()[0].fired == 0
        rdmaemu_host.run_until_idle()
    assert rdmaemu_host.now() == pytest.approx(before + 0.05)
    rdmaemu_host.set_port("rxe0", True)


def test_a_held_call_is_waited_for_and_released(rdmaemu_host):
    context = Context(name="rxe0")
    with rdmaemu_host.fault(at="async.port_err", hold=True) as gate:
        rdmaemu_host.set_port("rxe0", False)
        gate.wait(timeout=10)
        gate.release()
        with pytest.raises(rdmaemu.Error) as raised:
            gate.wait(times=2, timeout=0.001)
        assert raised.value.errno == errno.ETIMEDOUT
    rdmaemu_host.set_port("rxe0", True)
    context.close()


def test_devices_go_and_return(rdmaemu_host):
    rdmaemu_host.remove_device("rxe0")
    assert get_device_list() == []
    rdmaemu_host.add_device("rxe0")
    assert len(get_device_list()) == 1


def test_what_an_embedded_host_alone_has_is_refused(rdmaemu_host):
    host = rdmaemu.attach()
    for refused in (host.timeline, host.wait, rdmaemu.Machine("b").remove,
                    lambda: host.add("b", [rdmaemu.Device(addresses="10.0.0.2")])):
        with pytest.raises(rdmaemu.Error):
            refused()
    for skipped in (rdmaemu_host.timeline, lambda: rdmaemu_host.add("b", [])):
        with pytest.raises(pytest.skip.Exception, match="needs an embedded host"):
            skipped()
    with pytest.raises(rdmaemu.Error) as raised:
        rdmaemu.open(require_preload=False)
    assert raised.value.errno == errno.EBUSY


def test_rules_may_be_added_by_threads(rdmaemu_host):
    threads = [threading.Thread(target=rdmaemu_host.fault, kwargs=dict(at="cm.req", drop=True))
               for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(rdmaemu_host.rules()) == 4
