"""Finds the addresses that a test uses on its backend."""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import pathlib
import subprocess
from typing import Iterable, Sequence

from rdmaemu._library import Backend, Error, backend
from rdmaemu._options import Device

ADDRESS_VARIABLE = "RDMAEMU_TEST_ADDRESS"
_SYSFS = pathlib.Path("/sys/class/infiniband")
_COMMAND_LIMIT_S = 60


def device_addresses(devices: Sequence[Device] = ()) -> list[str]:
    """Returns the addresses of the RDMA devices that this process runs on, IPv4 first.

    embedded: those of `devices`, the options of the host. host: those of the host process. system:
    those that the machine's RoCE devices have as GIDs. For host and system the environment variable
    RDMAEMU_TEST_ADDRESS ("10.0.0.1,10.0.1.1") overrides them. Raises Error with ENODEV when there
    is no address.
    """
    chosen = backend()
    named = os.environ.get(ADDRESS_VARIABLE)
    if chosen is Backend.EMBEDDED:
        found = [address for device in devices or [Device()] for address in device.address_list()]
    elif named:
        found = named.split(",")
    else:
        found = list(_of_host_process() if chosen is Backend.HOST else _of_machine())
    if not found:
        raise Error(errno.ENODEV, "no RDMA device has an IP address that is known; name one in " +
                    ADDRESS_VARIABLE)
    return sorted(found, key=lambda address: ":" in address)


def _of_host_process() -> Iterable[str]:
    """Returns the addresses that `rdmaemu hosts` prints for the host of `rdmaemu run`."""
    command = os.environ.get("RDMAEMU_BIN", "rdmaemu")
    told = subprocess.run([command, "hosts", "--json"], check=True, text=True,
                          stdout=subprocess.PIPE, timeout=_COMMAND_LIMIT_S).stdout
    for host in json.loads(told):
        if host["name"] == os.environ.get("RDMAEMU_HOST"):
            for device in host["devices"]:
                yield from device["addresses"]


def _of_machine() -> Iterable[str]:
    """Returns the GIDs of the machine's devices that are IPv4 addresses or global IPv6
    addresses."""
    for file in sorted(_SYSFS.glob("*/ports/*/gids/*")):
        try:
            gid = ipaddress.IPv6Address(file.read_text().strip())
        except (OSError, ValueError):
            continue  # an unused entry
        if gid.ipv4_mapped is not None:
            yield str(gid.ipv4_mapped)
        elif not gid.is_link_local and not gid.is_unspecified:
            yield str(gid)
