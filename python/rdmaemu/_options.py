"""The options of a host, and struct rdmaemu_options."""

from __future__ import annotations

import ctypes
import dataclasses
import ipaddress
import os
from typing import Any, Iterable, Optional, Sequence, Union

from rdmaemu._library import DeviceStruct, encoded, unsigned

Address = Union[str, ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Interface,
                ipaddress.IPv6Interface, ipaddress.IPv4Network, ipaddress.IPv6Network]
Addresses = Union[Address, Iterable[Address]]


def joined(addresses: Optional[Addresses], what: str) -> Optional[bytes]:
    """Returns addresses or networks in the form of rdmaemu.h, separated by commas."""
    if addresses is None:
        return None
    if isinstance(addresses, Iterable) and not isinstance(addresses, (str, _NETWORKS)):
        addresses = ",".join(str(each) for each in addresses)
    return encoded(str(addresses), what)


_NETWORKS = (ipaddress.IPv4Network, ipaddress.IPv6Network)  # these types are iterable


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of an embedded host.

    `profile` is a name of docs/profiles.md, or a file. `addresses` are IPv4 or IPv6 addresses, which
    need not be the machine's; their networks are the host's routes ("10.0.0.1/24").
    """

    name: str = "rxe0"
    profile: str = "rxe"
    addresses: Addresses = ("127.0.0.1", "::1")

    def address_list(self) -> list[str]:
        """Returns the addresses, each without the prefix of its network."""
        return [address.split("/")[0]
                for address in (joined(self.addresses, "addresses") or b"").decode().split(",")]

    def _struct(self) -> DeviceStruct:
        return DeviceStruct(encoded(self.name, "name"), encoded(self.profile, "profile"),
                            joined(self.addresses, "addresses"))


def _path(value: Any, what: str) -> Optional[bytes]:
    return None if value is None else os.fsencode(value)


def _flag(value: Any, what: str) -> int:
    if not isinstance(value, bool):
        raise TypeError("%s must be True or False, not %r" % (what, value))
    return int(value)


def _option(default: Any, ctype: Any, convert: Any) -> Any:
    return dataclasses.field(default=default, metadata={"ctype": ctype, "convert": convert})


@dataclasses.dataclass
class Options:
    """The options of a host: those of struct rdmaemu_options. None and 0 mean the default.

    name               of the host, in traces: "embedded"
    devices            one device rxe0 with 127.0.0.1 and ::1
    clock              "virtual" (the default), "manual", "real", "scaled:K"
    seed               fixes keys, numbers and draws of rules; 1 (of a host that is added: follows from
                       the first one's)
    scenario_path      fault rules, as of `rdmaemu run --scenario`
    trace_path         the host writes what happens to this file, a JSON object a line
    pcap_path          the host writes all packets to this file
    silent_nets        networks in which no neighbour answers
    payload_shortcuts  "on" (the default), "off"
    gateways           neighbours by which the host reaches what is in none of its networks
    program_time       the whole process lives in the hosts' time: time.monotonic, time.time, sleeps,
                       timers and time-outs
    report_bytes       not 0: all machines keep their latest trace records and packets in memory for
                       Host.report, at most so many bytes of each
    """

    # One line here is one member of the C struct, in the struct's order.
    name: Optional[str] = _option(None, ctypes.c_char_p, encoded)
    devices: Sequence[Device] = ()
    clock: Optional[str] = _option(None, ctypes.c_char_p, encoded)
    seed: int = _option(0, ctypes.c_uint64, unsigned)
    scenario_path: Union[str, os.PathLike[str], None] = _option(None, ctypes.c_char_p, _path)
    trace_path: Union[str, os.PathLike[str], None] = _option(None, ctypes.c_char_p, _path)
    pcap_path: Union[str, os.PathLike[str], None] = _option(None, ctypes.c_char_p, _path)
    silent_nets: Optional[Addresses] = _option(None, ctypes.c_char_p, joined)
    payload_shortcuts: Optional[str] = _option(None, ctypes.c_char_p, encoded)
    gateways: Optional[Addresses] = _option(None, ctypes.c_char_p, joined)
    program_time: bool = _option(False, ctypes.c_int, _flag)
    report_bytes: int = _option(0, ctypes.c_size_t, unsigned)

    def _struct(self) -> OptionsStruct:
        struct = OptionsStruct(size=ctypes.sizeof(OptionsStruct))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "devices":
                devices = [each._struct() for each in value]
                struct.devices = (DeviceStruct * len(devices))(*devices)
                struct.device_count = len(devices)
            else:
                setattr(struct, field.name, field.metadata["convert"](value, field.name))
        return struct


def _members() -> Iterable[tuple[str, Any]]:
    yield "size", ctypes.c_size_t
    for field in dataclasses.fields(Options):
        if field.name == "devices":
            yield "devices", ctypes.POINTER(DeviceStruct)
            yield "device_count", ctypes.c_size_t
        else:
            yield field.name, field.metadata["ctype"]


class OptionsStruct(ctypes.Structure):
    """struct rdmaemu_options."""

    _fields_ = list(_members())
