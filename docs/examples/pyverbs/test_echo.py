"""The echo service under faults: python3 -m rdmaemu pytest test_echo.py"""

import time

import pytest
import rdmaemu
from rdmaemu.pytest_plugin import faults

from echo import EchoClient, EchoError, EchoServer, Loop

PORT = 7471
pytestmark = pytest.mark.rdmaemu(program_time=True)  # the client's pauses take no real time


@pytest.fixture
def loop(rdmaemu_host):
    return Loop()


@pytest.fixture
def server(loop, rdmaemu_address):
    server = EchoServer(loop, rdmaemu_address, PORT)
    yield server
    server.close()


@pytest.fixture
def client(loop, rdmaemu_address):
    client = EchoClient(loop, rdmaemu_address, PORT)
    yield client
    client.close()


def test_echoes(server, client):
    assert client.ask("hello") == "hello"
    assert client.ask("again") == "again"


def test_a_second_client_is_told_that_the_server_is_busy(server, client, loop, rdmaemu_address):
    client.ask("hello")
    second = EchoClient(loop, rdmaemu_address, PORT)
    with pytest.raises(EchoError, match="REJECTED, 3 times"):
        second.ask("me too")


# Each of these faults costs the client an attempt or time, but no answer is lost.
@faults(
    rejected=dict(at="cm.req", nth=1, reject=28),
    request_lost=dict(at="cm.req", nth=1, drop=True),
    reply_lost=dict(at="cm.rep", nth=1, drop=True),
    reply_late=dict(at="cm.rep", nth=1, delay_ms=3000),
    reply_refused=dict(at="cm.rep", nth=1, reject=28),
    ready_to_use_lost=dict(at="cm.rtu", nth=1, drop=True),
    address_error=dict(at="event.addr_resolved", nth=1, event="addr_error", status=-19),
    unreachable=dict(at="cm.req", nth=1, unreachable=-110),
    no_memory_for_a_queue_pair=dict(at="call.create_qp", nth=1, errno="ENOMEM"),
    first_packet_lost=dict(at="packet.rc_send_only", nth=1, drop=True),
    packet_damaged=dict(at="packet.rc_send_only", nth=1, corrupt=True),
    acknowledgement_lost=dict(at="packet.rc_acknowledge", nth=1, drop=True),
    slow_link=dict(at="link", latency_ms=50, jitter_ms=20),
    slow_call=dict(at="call.connect", delay_ms=500),
)
def test_the_client_gets_its_answer_under(rdmaemu_fault, server, client):
    assert client.ask("hello") == "hello"


def test_the_client_waits_longer_after_each_attempt(rdmaemu_host, server, client):
    begun = time.monotonic()
    with rdmaemu_host.expect_fault(at="cm.req", first=2, reject=28):
        assert client.ask("hello") == "hello"
    assert time.monotonic() - begun == pytest.approx(1 + 2, abs=0.1)


def test_a_silent_server_is_unreachable(rdmaemu_host, server, client):
    begun = rdmaemu_host.now()
    with rdmaemu_host.expect_fault(at="cm.req", drop=True):
        with pytest.raises(EchoError, match="UNREACHABLE, 3 times"):
            client.ask("hello")
    assert rdmaemu_host.now() - begun > 180  # virtual minutes take milliseconds


def test_a_broken_send_makes_the_client_reconnect(rdmaemu_host, server, client):
    client.ask("hello")
    with rdmaemu_host.expect_fault(at="wc.send", nth=1, status="retry_exc_err"):
        assert client.ask("again") == "again"


@pytest.mark.rdmaemu(devices=[rdmaemu.Device(addresses="10.0.0.1/24")])
def test_a_client_notices_that_the_servers_machine_is_gone(rdmaemu_host, loop):
    machine = rdmaemu_host.add("server", [rdmaemu.Device(addresses="10.0.0.2/24")])
    with machine.on():
        server = EchoServer(loop, "10.0.0.2", PORT)
    client = EchoClient(loop, "10.0.0.2", PORT, attempts=1)
    assert client.ask("hello") == "hello"
    machine.remove()
    server.stop()  # its machine was removed as well
    with pytest.raises(EchoError, match="the connection broke"):
        client.ask("are you there?")
    with pytest.raises(EchoError, match="UNREACHABLE"):
        client.ask("really not?")


@pytest.mark.skipif(rdmaemu.backend() is not rdmaemu.Backend.EMBEDDED, reason="opens hosts of its own")
def test_the_same_run_leaves_the_same_trace(tmp_path):
    traces = set()
    for _ in range(10):
        with rdmaemu.open(seed=7, program_time=True, trace_path=tmp_path / "trace") as host:
            loop = Loop()
            server, client = EchoServer(loop, "127.0.0.1", PORT), EchoClient(loop, "127.0.0.1", PORT)
            with host.expect_fault(at="link", loss=0.05):
                assert [client.ask(str(n)) for n in range(20)] == [str(n) for n in range(20)]
            client.close()
            server.close()
        traces.add((tmp_path / "trace").read_bytes())
    assert len(traces) == 1
