"""An echo service over RDMA, in pyverbs: a program without any code for tests.

It does not use rdmaemu. pyverbs holds Python's lock while it waits. The program therefore waits in
its own event loop, and calls pyverbs only when data is available.
"""

import os
import selectors
import time

import pyverbs.cm_enums as cm
import pyverbs.enums as ibv
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import get_device_list
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPCap, QPInitAttr

MAX_BYTES = 1024
RESOLVE_MS = 2000


class EchoError(Exception):
    """The client could not reach the service, or the connection broke."""


class Loop:
    """Calls a callback when a descriptor becomes readable."""

    def __init__(self):
        self._selector = selectors.DefaultSelector()
        get_device_list()  # opens the library's own descriptors before with_descriptor lists them

    def watch(self, descriptor, callback):
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def forget(self, descriptor):
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def run_until(self, condition, limit=None):
        """Returns when the condition holds, or after `limit` seconds."""
        end = None if limit is None else time.monotonic() + limit
        while not condition():
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return
            for key, _ in self._selector.select(left):
                key.data()


def descriptors():
    """Returns the open descriptors, without the one of the directory listing itself."""
    return {int(name) for name in os.listdir("/proc/self/fd")
            if os.path.exists("/proc/self/fd/" + name)}


def with_descriptor(make):
    """Returns the channel that `make` creates, and the channel's descriptor. pyverbs does not show
    the descriptor: it is the newest one."""
    before = descriptors()
    channel = make()
    return channel, max(descriptors() - before)


class Connection:
    """An id with its queue pair. It sends and receives texts."""

    def __init__(self, loop, id_, on_text):
        self.is_broken = False
        self._loop, self._id, self._on_text = loop, id_, on_text
        self._channel, self._descriptor = with_descriptor(lambda: CompChannel(id_.context))
        self._cq = CQ(id_.context, 4, None, self._channel, 0)
        self._cq.req_notify()
        id_.create_qp(QPInitAttr(qp_type=ibv.IBV_QPT_RC, scq=self._cq, rcq=self._cq,
                                 cap=QPCap(max_send_wr=1, max_recv_wr=1)))
        self._sent, self._received = id_.reg_msgs(MAX_BYTES), id_.reg_msgs(MAX_BYTES)
        id_.post_recv(self._received)
        loop.watch(self._descriptor, self._on_completions)

    def send(self, text):
        data = text.encode()
        self._sent.write(data, len(data))
        self._id.post_send(self._sent, ibv.IBV_SEND_SIGNALED, len(data))

    def _on_completions(self):
        self._channel.get_cq_event(self._cq)
        self._cq.ack_events(1)
        self._cq.req_notify()
        while True:
            count, completions = self._cq.poll(1)
            if count == 0:
                return
            completion = completions[0]
            if completion.status != ibv.IBV_WC_SUCCESS:
                self.is_broken = True
            elif completion.opcode & ibv.IBV_WC_RECV:
                data = self._received.read(completion.byte_len, 0)
                self._id.post_recv(self._received)
                self._on_text(data.decode())

    def stop(self):
        """Stops answering."""
        self._loop.forget(self._descriptor)

    def close(self):
        self.stop()
        self._sent.close()
        self._received.close()
        self._id.close()  # destroys the queue pair as well
        self._cq.close()
        self._channel.close()


class EchoServer:
    """Answers each text with the same text. It has one client at a time, because pyverbs does not
    show the id of an event."""

    def __init__(self, loop, address, port):
        self.connection = None
        self._loop, self._ended = loop, []
        self._channel, self._descriptor = with_descriptor(CMEventChannel)
        self._id = CMID(creator=self._channel, port_space=cm.RDMA_PS_TCP)
        self._id.bind_addr(AddrInfo(src=address, src_service=str(port), port_space=cm.RDMA_PS_TCP,
                                    flags=cm.RAI_PASSIVE))
        self._id.listen(8)
        loop.watch(self._descriptor, self._on_event)

    def _on_event(self):
        event = CMEvent(self._channel)
        kind = event.event_type
        new = None
        if kind == cm.RDMA_CM_EVENT_CONNECT_REQUEST:
            new = CMID(creator=event, listen_id=self._id)
        event.ack_cm_event()
        if new is not None:
            self._on_request(new)
        elif kind == cm.RDMA_CM_EVENT_DISCONNECTED and self.connection is not None:
            self._id_of_connection.disconnect()
            # In pyverbs, closing this id would take the context from the listening id.
            self._ended.append(self.connection)
            self.connection = None

    def _on_request(self, id_):
        if self.connection is not None and not self.connection.is_broken:
            id_.reject()
            self._ended.append(id_)
            return
        if self.connection is not None:
            self._ended.append(self.connection)
        self.connection = Connection(self._loop, id_, lambda text: self.connection.send(text))
        self._id_of_connection = id_
        id_.accept(ConnParam())

    def stop(self):
        """Stops answering."""
        self._loop.forget(self._descriptor)
        if self.connection is not None:
            self.connection.stop()

    def close(self):
        self.stop()
        for ended in [*self._ended, *([self.connection] if self.connection else [])]:
            ended.close()
        self._id.close()
        self._channel.close()


class EchoClient:
    """Sends texts to an EchoServer. It connects at the first call of ask, and again after the
    connection broke."""

    def __init__(self, loop, address, port, attempts=3):
        self._loop, self._address, self._port, self._attempts = loop, address, port, attempts
        self._connection = self._channel = self._id = None

    def ask(self, text):
        """Returns the server's answer. Waits 1, 2, 4, ... seconds between attempts. Raises
        EchoError when all attempts failed."""
        for attempt in range(1, self._attempts + 1):
            try:
                if self._connection is None:
                    self._connect()
                return self._exchange(text)
            except (EchoError, PyverbsError) as error:
                self.close()
                if attempt == self._attempts:
                    raise EchoError("%s, %d times" % (error, attempt)) from error
                self._loop.run_until(lambda: False, 2 ** (attempt - 1))

    def _connect(self):
        self._channel, self._descriptor = with_descriptor(CMEventChannel)
        self._has_event = False
        self._loop.watch(self._descriptor, self._on_event)
        self._id = CMID(creator=self._channel, port_space=cm.RDMA_PS_TCP)
        self._id.resolve_addr(AddrInfo(dst=self._address, dst_service=str(self._port),
                                       port_space=cm.RDMA_PS_TCP), RESOLVE_MS)
        self._await(cm.RDMA_CM_EVENT_ADDR_RESOLVED)
        self._id.resolve_route(RESOLVE_MS)
        self._await(cm.RDMA_CM_EVENT_ROUTE_RESOLVED)
        self._connection = Connection(self._loop, self._id, self._on_text)
        self._id.connect(ConnParam())
        self._await(cm.RDMA_CM_EVENT_ESTABLISHED)

    def _exchange(self, text):
        self._answer = None
        self._connection.send(text)
        self._loop.run_until(lambda: self._answer is not None or self._connection.is_broken or
                             self._has_event)
        if self._answer is None:
            raise EchoError("the connection broke")
        return self._answer

    def _on_text(self, text):
        self._answer = text

    def _on_event(self):
        self._event = CMEvent(self._channel)
        self._has_event = True

    def _await(self, expected):
        self._loop.run_until(lambda: self._has_event)
        self._has_event = False
        kind, words = self._event.event_type, self._event.event_str()
        self._event.ack_cm_event()
        if kind != expected:
            raise EchoError(words)

    def close(self):
        """Ends the connection. The next call of ask connects again."""
        if self._channel is None:
            return
        if self._has_event:
            self._event.ack_cm_event()
        if self._connection is not None:
            try:
                self._id.disconnect()
            except PyverbsError:
                pass  # it was not connected, or its device was removed
            self._connection.close()
        elif self._id is not None:
            self._id.close()
        self._loop.forget(self._descriptor)
        self._channel.close()
        self._connection = self._channel = self._id = None
