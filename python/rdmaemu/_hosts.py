"""Hosts: those in this process, and the host process that serves this process."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import datetime
import errno
import os
from types import TracebackType
from typing import Any, Iterator, Optional, Sequence, TypeVar, Union

from rdmaemu import _timeline
from rdmaemu._library import (Error, call, encoded, is_preloaded, is_verbs_ours, milliseconds,
                              unsigned)
from rdmaemu._options import Address, Device, Options
from rdmaemu._rules import Fault, Rule, RuleLike, all_rules, text_of

_Host = TypeVar("_Host", bound="Host")
_NANOSECONDS = 1_000_000_000
_DEFAULT_NAME = "embedded"


def _nanoseconds(time: Union[int, float, datetime.timedelta]) -> int:
    if isinstance(time, datetime.timedelta):
        return time // datetime.timedelta(microseconds=1) * 1000
    return round(time * _NANOSECONDS)


class Machine:
    """One of the hosts of this process: rules, devices, ports and addresses.

    The methods act on this machine, whichever machine the calling thread is on.
    """

    def __init__(self, name: Optional[str]) -> None:
        """Names a machine. Only Host.add and Host.machine call it. None names a host process."""
        self.name = name

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Puts the calling thread on this machine until the with statement ends.

        Event channels, device lists and opened devices that the thread creates meanwhile belong to
        the machine, as in a network namespace. Has no effect with a host process.
        """
        if self.name is None:
            yield
            return
        before = ctypes.create_string_buffer(call("rdmaemu_host_entered", None, 0) + 1)
        call("rdmaemu_host_entered", before, len(before))
        self.enter()
        try:
            yield
        except BaseException as error:
            _timeline.mark_failure(error)
            raise
        finally:
            with contextlib.suppress(Error):  # the program closed the hosts meanwhile
                call("rdmaemu_host_enter", before.value)

    def enter(self) -> None:
        """Puts the calling thread on this machine until it enters another one."""
        if self.name is not None:
            call("rdmaemu_host_enter", encoded(self.name, "name"))

    def fault(self, rule: Optional[RuleLike] = None, /, **keys: Any) -> Fault:
        """Adds a fault rule after the machine's others: host.fault(at="cm.req", nth=3, reject=28).

        The keys are those of docs/faults.md, and rule_text describes the values. `rule` is a text
        in the syntax of that page, or a mapping. The host has the rule until Fault.remove or the
        end of the with statement. Raises Error with EINVAL when the rule is wrong.
        """
        return Fault(self.on(), text_of(rule, keys))

    def expect_fault(self, rule: Optional[RuleLike] = None, /, **keys: Any) -> Fault:
        """Adds a rule like fault(). The with statement raises NeverFired when the rule never
        fired."""
        return Fault(self.on(), text_of(rule, keys), must_fire=True)

    def remove_device(self, device: str) -> None:
        """Removes a device while programs use it, as `rdmaemu device remove`."""
        self._call("rdmaemu_device_remove", encoded(device, "device"))

    def add_device(self, device: str, profile: Optional[str] = None) -> None:
        """Adds a device, or returns a removed one. `profile` None means the earlier profile, or
        "rxe"."""
        self._call("rdmaemu_device_add", encoded(device, "device"), encoded(profile, "profile"))

    def set_port(self, device: str, up: bool) -> None:
        """Takes the port of a device up or down."""
        self._call("rdmaemu_port_set", encoded(device, "device"), int(bool(up)))

    def add_address(self, device: str, address: Address) -> None:
        """Gives an address to a device, with the prefix of its network or without."""
        self._call("rdmaemu_address_add", encoded(device, "device"), encoded(str(address), "address"))

    def remove_address(self, address: Address) -> None:
        """Takes an address from the device that has it."""
        self._call("rdmaemu_address_remove", encoded(str(address), "address"))

    def move_address(self, address: Address, to_device: str) -> None:
        """Gives an address to another device of the machine."""
        self._call("rdmaemu_address_move", encoded(str(address), "address"),
                   encoded(to_device, "to_device"))

    def remove(self) -> None:
        """Removes the machine without a message to its peers. The program's objects on it fail with
        EIO."""
        call("rdmaemu_host_remove", encoded(self.name, "name"))

    def _call(self, function: str, *arguments: Any) -> None:
        with self.on():
            call(function, *arguments)


class Host(Machine):
    """The first host of this process. It also controls the time and the rules of all hosts.

    The host is open from the constructor's return until close() or the end of the with statement.
    """

    def __init__(self, options: Optional[Options] = None, *, require_preload: bool = True,
                 **more: Any) -> None:
        """Opens the host. The options are those of Options, as an object, as keywords, or both.

        Raises Error with EBUSY when the process already has a host or is a client of a host
        process. Raises Error with ENOTSUP when the process uses another libibverbs, or started
        without the preload (is_preloaded). Raises Error with EINVAL when an option is wrong.
        `require_preload=False` opens the host without the preload. It is for programs that wait
        only in RDMA calls, or that set RDMAEMU_DRIVER_THREAD=1.
        """
        given = dataclasses.replace(options or Options(), **more)
        super().__init__(given.name or _DEFAULT_NAME)
        _check_process(require_preload, given.program_time)
        call("rdmaemu_open", ctypes.byref(given._struct()))

    @classmethod
    def attached(cls: type[_Host]) -> _Host:
        """Returns the host process that serves this process. See attach()."""
        host = cls.__new__(cls)
        Machine.__init__(host, None)
        call("rdmaemu_now")  # raises Error when this process has no host process
        return host

    @property
    def is_embedded(self) -> bool:
        """True when the host is inside this process."""
        return self.name is not None

    def close(self) -> None:
        """Ends all hosts of this process. Has no effect without hosts, or for a host process.

        Objects that the program still has open on them fail with EIO.
        """
        if not self.is_embedded:
            return
        try:
            call("rdmaemu_close")
        except Error as error:
            if error.errno != errno.ENOENT:
                raise

    def __enter__(self) -> Host:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 where: Optional[TracebackType]) -> None:
        if error is not None:
            _timeline.keep(error)
        self.close()

    # ---- several machines

    def add(self, name: str, devices: Sequence[Device], options: Optional[Options] = None,
            **more: Any) -> Machine:
        """Adds a machine to the process, with devices whose addresses no other machine has.

        The limit is eight machines between open and close, removed machines included. The first
        host's clock applies. Raises Error with EINVAL when an option is wrong.
        """
        given = dataclasses.replace(options or Options(), name=name, devices=devices, **more)
        call("rdmaemu_host_add", ctypes.byref(given._struct()))
        return Machine(name)

    def machine(self, name: str) -> Machine:
        """Returns the machine of a name. Its methods raise Error with ENOENT when no such machine
        exists."""
        return Machine(name)

    @contextlib.contextmanager
    def on_machine(self, name: str) -> Iterator[Machine]:
        """Puts the calling thread on the machine of a name until the with statement ends."""
        machine = Machine(name)
        with machine.on():
            yield machine

    # ---- time

    def now(self) -> float:
        """Returns the hosts' time in seconds."""
        return self.now_ns() / _NANOSECONDS

    def now_ns(self) -> int:
        """Returns the hosts' time in nanoseconds since the first one was opened."""
        return call("rdmaemu_now")

    def advance(self, time: Union[int, float, datetime.timedelta]) -> None:
        """Moves time forward by `time` seconds and runs everything that is due.

        0 runs what is due now. Raises Error with EOPNOTSUPP for a clock that runs by itself.
        """
        self.advance_ns(_nanoseconds(time))

    def advance_ns(self, time: int) -> None:
        """Moves time forward by `time` nanoseconds, as advance()."""
        call("rdmaemu_advance", unsigned(time, "time"))

    def run_until_idle(self) -> None:
        """Moves time to each due event in turn. Stops when nothing is due or the hosts wait for the
        program. Raises Error with ELOOP when this never ends."""
        call("rdmaemu_run_until_idle")

    def wait(self, timeout: float = 10.0) -> bool:
        """Waits until something happens on the hosts of this process, and runs them meanwhile.

        A loop that polls a completion queue calls it between two polls. `timeout` is in seconds of
        the machine's time. Returns False when nothing happened within `timeout`. Raises Error with
        EDEADLK when every thread waits and nothing is due. Raises Error with ENOENT for a host
        process.
        """
        try:
            call("rdmaemu_wait", milliseconds(timeout, "timeout"))
        except Error as error:
            if error.errno == errno.ETIMEDOUT:
                return False
            raise
        return True

    # ---- rules of all machines, and what happened

    def rules(self) -> list[Rule]:
        """Returns the rules of all machines, in their order."""
        return all_rules()

    def clear_rules(self) -> None:
        """Removes the rules of all machines."""
        call("rdmaemu_rules_clear")

    def timeline(self) -> str:
        """Returns the recent events of all machines, one line each, oldest first.

        Raises Error with ENOENT for a host process, which writes its trace to a file (`rdmaemu run
        --trace`).
        """
        return _timeline.read()

    def report(self, directory: Union[str, os.PathLike[str]], name: str) -> str:
        """Writes a report of all machines into a new directory below `directory`; returns its path.

        The new directory is called `name`, or `name`-2 and so on where that exists. It has traces,
        captures, the rules with their counts and the environment. Needs the option report_bytes:
        raises Error with EINVAL without it.
        """
        return _timeline.write_report(os.fspath(directory), name)


def open(options: Optional[Options] = None, *, require_preload: bool = True,  # noqa: A001
         **more: Any) -> Host:
    """Opens the first host of this process: with rdmaemu.open(seed=7) as host: ... See Host."""
    return Host(options, require_preload=require_preload, **more)


def attach() -> Host:
    """Returns the host process that serves this process under `rdmaemu run`.

    Rules, devices, ports, addresses and a manual clock are the host process's. It has no timeline,
    and no other machines can be added. Closing it has no effect. Raises Error with ENOENT when
    `rdmaemu run` did not start this process.
    """
    return Host.attached()


def _check_process(require_preload: bool, program_time: bool) -> None:
    if not is_verbs_ours():
        raise Error(errno.ENOTSUP, "another libibverbs.so.1 than rdmaemu's was loaded before; import "
                    "rdmaemu before pyverbs, or start with `python3 -m rdmaemu`")
    if is_preloaded():
        return
    start = "start it with `python3 -m rdmaemu pytest ...` or `python3 -m rdmaemu SCRIPT ...`"
    if program_time or os.environ.get("RDMAEMU_PROGRAM_TIME") == "1":
        raise Error(errno.ENOTSUP, "this Python was started without the preload of rdmaemu, so that its "
                    "clocks would not show the host's time; " + start)
    if require_preload and os.environ.get("RDMAEMU_DRIVER_THREAD") != "1":
        raise Error(errno.ENOTSUP, "this Python was started without the preload of rdmaemu, so that "
                    "select, poll and sleep would not run the host; " + start + ", or open the host "
                    "with require_preload=False if the program waits in RDMA calls alone")
