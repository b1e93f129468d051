"""Commands that change the devices, ports, P_Keys and addresses of a running host."""

import json
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from cli_support import ADDRESS, OTHER, check, eventually, expect, hold, let_go, run  # noqa: E402
from emulated import Emulator  # noqa: E402


def devices(emulator, *arguments):
    """Returns the devices after a change, as (name, present, port, addresses)."""
    result = emulator.rdmaemu(*arguments, "--host", "h", "--json")
    expect(result, 0)
    return [(each["name"], each["present"], each["port"], each["addresses"])
            for each in json.loads(result.stdout)]


def devices_go_and_return():
    with Emulator() as emulator:
        holder = hold(emulator)
        there, gone = ("rxe0", True, "active", [ADDRESS]), ("rxe0", False, "down", [ADDRESS])
        check(devices(emulator, "device", "list") == [there], "one device")
        check(devices(emulator, "device", "remove", "rxe0") == [gone], "removed")
        expect(emulator.rdmaemu("device", "remove", "rxe0", "--host", "h"), 1,
               "no device rxe0; it has: none")
        result = emulator.rdmaemu("device", "list", "--host", "h")
        expect(result, 0)
        check(result.stdout == "rxe0 (rxe, removed): %s\n" % ADDRESS, result.stdout)
        check(devices(emulator, "device", "add", "rxe0") == [there], "back")
        expect(emulator.rdmaemu("device", "add", "rxe0", "--host", "h"), 1, "exists already")
        expect(emulator.rdmaemu("device", "add", "new", "--host", "h"), 1, "new=rxe")
        expect(emulator.rdmaemu("device", "add", "new=rxe", "--address", ADDRESS, "--host",
                                "h"), 1, ADDRESS)
        check(devices(emulator, "device", "list") == [there, ("new", False, "down", [])],
              "it stayed without its address")
        check(devices(emulator, "device", "add", "new=rxe", "--address", OTHER) ==
              [there, ("new", True, "active", [OTHER])], "a second one")
        let_go(holder)


def a_device_has_the_addresses_after_its_name():
    first, second = "mlx5_0=mlx5-roce@" + ADDRESS, "mlx5_1=mlx5-roce@" + OTHER + "/24"
    both = ("--device", first + "," + second)
    with Emulator() as emulator:
        for device, address in (("mlx5_0", ADDRESS), ("mlx5_1", OTHER)):
            shown = run(emulator, "ibv_devinfo", "-v", "-d", device, options=both)
            expect(shown, 0)
            for each in (ADDRESS, OTHER):
                check(("::ffff:" + each in shown.stdout) == (each == address), shown.stdout)
        expect(run(emulator, "true", options=("--device", first + ",two@" + ADDRESS)), 125,
               "given twice")
        expect(run(emulator, "true", options=("--device", first + ",two")), 125,
               "device two has no address")
        expect(run(emulator, "true", options=("--backend", "system", "--device", first)), 125,
               "--device " + first)


def a_device_is_added_with_a_profile_of_a_file():
    with open("emulator/verbs/profiles/rxe.toml") as file:
        text = file.read()
    with Emulator() as emulator:
        holder = hold(emulator)
        mine = os.path.join(emulator.directory, "mine.toml")

        def add(content):
            with open(mine, "w") as file:
                file.write(content)
            return emulator.rdmaemu("device", "add", "nic0=" + mine, "--host", "h")
        expect(add(text.replace('node_type = "ca"', 'node_type = "bridge"')), 1, mine + ":",
               "node_type", '"rnic"')
        expect(add(text + "#" * 12288), 1, mine, "12288 bytes")
        check(len(devices(emulator, "device", "list")) == 1, "nothing was added")
        expect(add(text.replace('name = "rxe"', 'name = "mine"')), 0)
        result = emulator.rdmaemu("device", "list", "--host", "h")
        check("nic0 (mine)" in result.stdout, result.stdout)
        expect(emulator.rdmaemu("device", "remove", "nic0", "--host", "h"), 0)
        expect(emulator.rdmaemu("device", "add", "nic0", "--host", "h"), 0)
        result = emulator.rdmaemu("device", "list", "--host", "h")
        check("nic0 (mine)" in result.stdout, "it returns with its profile: " + result.stdout)
        let_go(holder)


def ports_go_down_and_up():
    with Emulator() as emulator:
        holder = hold(emulator)
        check(devices(emulator, "port", "down", "rxe0")[0][2] == "down", "down")
        check("rxe0 (rxe, port down)" in emulator.rdmaemu("hosts").stdout, "hosts says so")
        check(devices(emulator, "port", "up", "rxe0")[0][2] == "active", "up")
        expect(emulator.rdmaemu("port", "up", "eth0", "--host", "h"), 1, "it has: rxe0")
        let_go(holder)


def p_keys_change():
    with Emulator() as emulator:
        holder = hold(emulator)
        expect(emulator.rdmaemu("pkey", "set", "rxe0", "0", "0x7fff", "--host", "h"), 0)
        expect(emulator.rdmaemu("pkey", "set", "rxe0", "0", "0x8002", "--host", "h"), 0)
        result = run(emulator, "rping", "-c", "-a", ADDRESS, "-C", "1", options=())
        check("rdma_create_qp: No such file" in result.stdout + result.stderr,
              "the default partition is there: " + result.stdout + result.stderr)
        expect(emulator.rdmaemu("pkey", "set", "rxe0", "1", "0x7fff", "--host", "h"), 1,
               "has no entry 1")
        expect(emulator.rdmaemu("pkey", "set", "rxe0", "0", "0x10000", "--host", "h"), 1,
               "not a P_Key")
        expect(emulator.rdmaemu("pkey", "set", "eth0", "0", "1", "--host", "h"), 1, "it has: rxe0")
        let_go(holder)


def addresses_come_go_and_move():
    with Emulator() as emulator, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        holder = hold(emulator)
        expect(emulator.rdmaemu("address", "add", OTHER, "--device", "rxe0", "--host", "h"), 0)
        expect(emulator.rdmaemu("address", "add", OTHER, "--device", "rxe0", "--host", "h"), 1,
               "rdmaemu address move")
        expect(emulator.rdmaemu("device", "add", "two=rxe", "--host", "h"), 0)
        after = devices(emulator, "address", "move", OTHER, "--device", "two")
        check([each[3] for each in after] == [[ADDRESS], [OTHER]], str(after))
        after = devices(emulator, "address", "remove", OTHER)
        check([each[3] for each in after] == [[ADDRESS], []], str(after))
        taken.bind((OTHER, 4791))  # the host let it go
        expect(emulator.rdmaemu("address", "add", OTHER, "--device", "two", "--host", "h"), 1,
               "UDP port 4791 of " + OTHER + " is in use")
        expect(emulator.rdmaemu("address", "add", "203.0.113.1", "--device", "two", "--host", "h"),
               1, "nor on an interface")
        expect(emulator.rdmaemu("address", "add", "224.0.0.1", "--device", "two", "--host", "h"),
               1, "not the address of one host")
        let_go(holder)


def networks(emulator):
    """Returns the networks of the host's addresses, and its gateways."""
    [host] = json.loads(emulator.rdmaemu("hosts", "--json").stdout)
    return [device["networks"] for device in host["devices"]], host["gateways"]


def resolve(emulator, address):
    """Returns the output of rping's client for the address, on the running host."""
    done = run(emulator, "rping", "-c", "-a", address, "-C", "1", options=())
    return done.stdout + done.stderr


def addresses_and_a_gateway_are_the_hosts_routes():
    gateway, far = ADDRESS.rsplit(".", 1)[0] + ".254", "203.0.113.1"
    with Emulator() as emulator:
        holder = hold(emulator, address=ADDRESS)
        check(networks(emulator) == ([["127.0.0.0/8"]], []), str(networks(emulator)))
        check("Network is unreachable" in resolve(emulator, far), "no route leads there")
        expect(emulator.rdmaemu("address", "add", OTHER + "/30", "--device", "rxe0", "--host", "h"), 0)
        check(networks(emulator)[0][0][1].endswith("/30"), str(networks(emulator)))
        expect(emulator.rdmaemu("address", "remove", OTHER, "--host", "h"), 0)
        let_go(holder)
        eventually("the host's end", lambda: emulator.hosts() == [])
        options = ("--address", ADDRESS + "/24", "--gateway", gateway)
        holder = hold(emulator, address=ADDRESS + "/24", options=("--gateway", gateway))
        near = ADDRESS.rsplit(".", 1)[0] + ".0/24"
        check(networks(emulator) == ([[near]], [gateway]), str(networks(emulator)))
        expect(run(emulator, "true", options=options), 0)
        expect(run(emulator, "true", options=("--gateway", ADDRESS)), 125, "gateway")
        expect(run(emulator, "true", options=("--address", ADDRESS)), 125, "/24")
        let_go(holder)
        for wrong in ("nowhere", "224.0.0.1"):
            expect(run(emulator, "true", options=("--gateway", wrong)), 125, wrong)
        expect(run(emulator, "true", options=("--address", ADDRESS, "--gateway", far)), 125, far,
               "none of the host's networks")


def a_change_needs_a_host_that_runs():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("device", "remove", "rxe0", "--host", "h"), 1,
               "no host h is running")


CASES = [
    devices_go_and_return,
    a_device_has_the_addresses_after_its_name,
    a_device_is_added_with_a_profile_of_a_file,
    ports_go_down_and_up,
    p_keys_change,
    addresses_come_go_and_move,
    addresses_and_a_gateway_are_the_hosts_routes,
    a_change_needs_a_host_that_runs,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("device", [(case.__name__, case) for case in CASES]))
