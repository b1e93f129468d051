"""Debian's own RDMA programs, unmodified, on emulated hosts. Each case succeeds only with the
program's own sign of success.

usage: programs.py GROUP; GROUP is a key of GROUPS.
"""

import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
import perftest as perftest_programs  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

LIMIT_S = 120

ROUNDS = 100


def gid_of(address):
    """Returns entry 0 of the GID table of the device with this IPv4 address (LinkLocalOf)."""
    return "fe80::%02xff:fe%02x:%02x%02x" % tuple(int(part) for part in address.split("."))


class Case:
    """A server and its client. `server` and `client` are argument lists with {server}, {client},
    {server_gid}, {client_gid} and {port}. Both must print `signs`; only one of them must print `server_signs` or
    `client_signs`."""

    def __init__(self, name, server, client, signs=(), server_signs=(), client_signs=(),
                 by_cm=True, attempts=1, limit_s=LIMIT_S, options=(),
                 server_ends=True, races=(perftest_programs.RACE, perftest_programs.IWARP_RACE)):
        self.name = name
        self.options = options  # for the hosts
        self.server = server
        self.client = client
        self.server_signs = [*signs, *server_signs]
        self.client_signs = [*signs, *client_signs]
        self.by_cm = by_cm  # how the two connect: by rdma_cm or TCP
        self.attempts = attempts
        self.races = races  # signs of a race in the programs; the case runs again
        self.limit_s = limit_s
        self.server_ends = server_ends

    def run(self, hosts):
        emulated.need(self.server[0])
        for attempt in range(self.attempts):
            try:
                return self.run_once(hosts)
            except Failure as failure:
                found = [each for each in self.races if each in str(failure)]
                if not found or attempt + 1 == self.attempts:
                    raise
                print("a race of the programs, whose sign is %r; once more" % found[0])

    def run_once(self, hosts):
        addresses = emulated.free_addresses(hosts)
        if hosts == 1:
            addresses *= 2
        port = emulated.free_tcp_port()
        fill = {"server": addresses[0], "client": addresses[1], "port": port,
                "server_gid": gid_of(addresses[0]), "client_gid": gid_of(addresses[1])}
        names = ["one", "one"] if hosts == 1 else ["one", "two"]
        with Emulator() as emulator:
            server_argv = [a.format(**fill) for a in self.server]
            if self.by_cm:
                server = emulator.start_listening(names[0], addresses[0], server_argv,
                                                  self.options)
            else:
                server = emulator.start(names[0], addresses[0], server_argv, self.options)
                emulated.wait_for_tcp_listener(port, server)
            client = emulator.start(names[1], addresses[1], [a.format(**fill) for a in self.client],
                                    [] if hosts == 1 else self.options)
            both = lambda: "\n" + client.describe() + "\n" + server.describe()
            status = client.wait(self.limit_s)
            if status != 0:
                raise Failure("the client ended with %s%s" % (status or "a time-out", both()))
            if self.server_ends:
                status = server.wait(self.limit_s)
                if status != 0:
                    raise Failure("the server ended with %s%s" % (status or "a time-out", both()))
            server.expect(*self.server_signs)
            client.expect(*self.client_signs)


def rdmacm_utils():
    rping = ["rping", "-a", "{server}", "-p", "{port}", "-v", "-V", "-C", str(ROUNDS)]
    done = (r"^test complete$", r"^return status 0$")
    ucmatose = (["ucmatose", "-b", "{server}", "-p", "{port}"],
                ["ucmatose", "-s", "{server}", "-b", "{client}", "-p", "{port}"])
    # Its port is fixed, and its -p is another option. Each host has its own ports.
    udaddy = (["udaddy", "-b", "{server}"], ["udaddy", "-s", "{server}", "-b", "{client}"])
    return [
        Case("rping", [*rping, "-s"], [*rping, "-c"],
             server_signs=(r"DISCONNECT EVENT", r"^server ping data: rdma-ping-99"),
             client_signs=(r"^ping data: rdma-ping-99",)),
        # 64 KiB with the terminating zero: rping's maximum.
        Case("rping_64KiB", [*rping, "-S", "65535", "-s"], [*rping, "-S", "65535", "-c"],
             server_signs=(r"DISCONNECT EVENT", r"^server ping data: rdma-ping-99"),
             client_signs=(r"^ping data: rdma-ping-99",)),
        Case("ucmatose", *ucmatose, signs=done),
        Case("ucmatose_many", *[[*side, "-c", "8", "-C", "50", "-S", "5000"] for side in ucmatose],
             signs=done),
        Case("ucmatose_migrate", *[[*side, "-m"] for side in ucmatose], signs=done),
        Case("udaddy", *udaddy, signs=done),
        Case("udaddy_many", *[[*side, "-c", "4", "-C", "20"] for side in udaddy], signs=done),
        Case("rdma_server", ["rdma_server", "-p", "{port}"],
             ["rdma_client", "-s", "{server}", "-p", "{port}"],
             server_signs=(r"rdma_server: end 0",), client_signs=(r"rdma_client: end 0",)),
        # Its other type, XRC, is not supported.
        Case("rdma_xserver_rc", ["rdma_xserver", "-p", "{port}", "-c", "r"],
             ["rdma_xclient", "-s", "{server}", "-p", "{port}", "-c", "r"],
             server_signs=(r"rdma_xserver: end 0",), client_signs=(r"rdma_xclient: end 0",)),
    ]


CONNECTIONS = 1000
CLIENTS = 50


def many_connections():
    """One program with a thousand connections, and fifty programs with one server."""
    # The table of rdma-core 44, and that of 56.
    steps = ("create id", "bind addr", "resolve addr", "resolve route", "create qp",
             "(cm )?connect", "disconnect", "destroy( id)?")
    signs = [r"^%s *:? +[\d.]+" % step for step in steps]
    return [cmtime(signs), PersistentServer("rping_persistent_server")]


# cmtime of rdma-core 56 connects a second time without queue pairs, with QP numbers from 1000 on. CM
# rejects a number that a connection in timewait has at the same device (IB_CM_REJ_STALE_CONN, 10).
CMTIME_RACE = "event: RDMA_CM_EVENT_REJECTED, error: 10"


def cmtime(client_signs):
    """The server and client of the cmtime that is installed. Its options depend on its release."""
    if shutil.which("cmtime") is None:
        usage = ""  # the case will be skipped
    else:
        usage = subprocess.run(["cmtime", "-h"], text=True, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    both = ["cmtime", "-p", "{port}", "-c", str(CONNECTIONS), "-b"]
    # The client's QP numbers must differ from the server's on one host, which is one device.
    other_numbers = ["-q", "100000"] if "base_qpn" in usage else []
    if "controller_address" in usage:  # rdma-core 65: {port} is that of a TCP connection
        server, client = ["-L", "-C", "{server}", "-P", "2"], ["-C", "{server}", "-P", "2"]
    else:
        server, client = [], ["-s", "{server}"]
    return Case("cmtime", [*both, "{server}", *server], [*both, "{client}", *client, *other_numbers],
                client_signs=client_signs, by_cm="-L" not in server, server_ends="-L" in server,
                races=(CMTIME_RACE,), attempts=3)


class PersistentServer:
    """`rping -P`, whose clients may overlap. It serves until it is ended.

    It has one slot for a request and takes the request in another thread. Of two simultaneous
    requests one is therefore lost, on any device, and two threads accept the other one. The second
    accept fails and destroys the id. The resulting REJ may reach a client that already has the
    response and cannot change its QP's state any more (CONNECT_ERROR -1). So each client waits for
    the one before it.
    """

    def __init__(self, name):
        self.name = name

    def run(self, hosts):
        emulated.need("rping")
        addresses = emulated.free_addresses(2)
        port = str(emulated.free_tcp_port())
        here = ("one", addresses[0])
        there = here if hosts == 1 else ("two", addresses[1])
        arguments = ["-a", addresses[0], "-p", port, "-v", "-C", "200"]
        with Emulator() as emulator:
            server = emulator.start_listening(*here, ["rping", "-s", "-P", *arguments])
            trace = os.path.join(emulator.directory, here[0] + ".trace")
            clients = []
            for number in range(1, CLIENTS + 1):
                clients.append(emulator.start(*there, ["rping", "-c", *arguments]))
                self.wait_for_established(trace, number, server)
            for client in clients:
                status = client.wait(LIMIT_S)
                if status != 0:
                    raise Failure("a client ended with %s\n%s\n%s" % (
                        status or "a time-out", client.describe(), server.describe()))
                client.expect(r"^ping data: rdma-ping-199")
            if server.process.poll() is not None:
                raise Failure("the server ended\n" + server.describe())

    @staticmethod
    def wait_for_established(trace, count, server):
        """Waits until the server's host has delivered `count` ESTABLISHED events to it. A client
        creates ESTABLISHED itself, from the response that its host delivers."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until and server.process.poll() is None:
            with open(trace) as lines:
                if sum('"RDMA_CM_EVENT_ESTABLISHED"' in line for line in lines) >= count:
                    return
            time.sleep(0.01)
        raise Failure("the server did not establish %d connections\n%s" % (count, server.describe()))


def pingpongs():
    cases = []
    for kind in ("rc", "uc", "ud", "srq"):
        for events in (False, True):
            base = ["ibv_%s_pingpong" % kind, "-d", "rxe0", "-g", "1", "-p", "{port}", "-n", "500",
                    "-s", "1024" if kind == "ud" else "65536"]
            if kind == "rc":
                base.append("-c")  # compares the received bytes
            if events:
                base.append("-e")
            cases.append(Case("ibv_%s_pingpong%s" % (kind, "_events" if events else ""), base,
                              [*base, "{server}"],
                              signs=(r"^\d+ bytes in [\d.]+ seconds = [\d.]+ Mbit/sec$",
                                     r"^\d+ iters in [\d.]+ seconds = [\d.]+ usec/iter$"),
                              by_cm=False))
    new = ["ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-p", "{port}", "-n", "500", "-N"]
    cases.append(Case("ibv_rc_pingpong_extended_send", new, [*new, "{server}"],
                      signs=(r"^\d+ iters in [\d.]+ seconds",), by_cm=False))
    link_local = ["ibv_rc_pingpong", "-d", "rxe0", "-g", "0", "-p", "{port}", "-n", "100"]
    cases.append(Case("ibv_rc_pingpong_gid_0", link_local, [*link_local, "{server}"],
                      signs=(r"^\d+ iters in [\d.]+ seconds",), by_cm=False))
    return cases


def perftest_case(name, program, arguments, sizes, iterations, by_cm, device="rxe0"):
    base = [program, "-d", device, "-F", "-p", "{port}", "-n", str(iterations), *arguments]
    if by_cm:
        base.append("-R")
    signs = [perftest_programs.ROW % (size, iterations) for size in sizes]
    return Case(name + ("_R" if by_cm else ""), base, [*base, "{server}"], client_signs=signs,
                by_cm=by_cm, attempts=perftest_programs.ATTEMPTS if by_cm else 1)


def perftest(by_cm):
    cases = []
    for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat",
                    "ib_read_lat"):
        add = lambda label, size, iterations, *more: cases.append(perftest_case(
            program + "_" + label, program, ["-s", str(size), *more], [size], iterations, by_cm))
        # Both sides of a latency program spin, each for a slice of the processor's time.
        latency = program.endswith("_lat")
        add("2B", 2, 20 if latency else 500)
        if by_cm and latency:  # -R changes how programs connect, not how they send
            continue
        add("64KiB", 65536, 10 if latency else 200)
        add("8MiB", 8 << 20, 5)
    add_bw = lambda name, arguments, size, iterations: cases.append(
        perftest_case(name, name.split("__")[0], arguments, [size], iterations, by_cm))
    add_bw("ib_atomic_bw__cas", ["-A", "CMP_AND_SWAP"], 8, 500)
    add_bw("ib_atomic_bw__faa", ["-A", "FETCH_AND_ADD"], 8, 500)
    if not by_cm:
        add_bw("ib_send_bw__uc", ["-c", "UC", "-s", "1024"], 1024, 200)
        add_bw("ib_write_bw__uc", ["-c", "UC", "-s", "1024"], 1024, 200)
        add_bw("ib_send_lat__ud", ["-c", "UD", "-s", "1024"], 1024, 200)
        add_bw("ib_send_bw__srq", ["--use-srq", "-s", "4096"], 4096, 200)
    add_bw("ib_send_bw__events", ["-e", "-s", "4096"], 4096, 200)
    add_bw("ib_write_bw__4qps", ["-q", "4", "-s", "65536"], 65536, 200)
    # perftest counts the iterations of all QPs.
    cases[-1].client_signs = [perftest_programs.ROW % (65536, 4 * 200)]
    return cases


def siw():
    """Programs that connect by rdma_cm, on a device with iWARP's habits."""
    wanted = ("rping", "rping_64KiB", "ucmatose", "ucmatose_many", "ucmatose_migrate", "rdma_server")
    cases = [case for case in rdmacm_utils() if case.name in wanted]
    for program in ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat"):
        cases.append(perftest_case(program, program, ["-s", "65536"], [65536], 200, True, "siw0"))
    for case in cases:
        case.options = ["--profile", "siw"]
    return cases


def lids():
    """Programs that address their peer by its LID alone, on a port with link layer InfiniBand."""
    cases = []
    for kind in ("rc", "uc", "ud", "srq"):
        base = ["ibv_%s_pingpong" % kind, "-d", "mlx5_0", "-p", "{port}", "-n", "500", "-s", "1024"]
        cases.append(Case("ibv_%s_pingpong" % kind, base, [*base, "{server}"],
                          signs=(r"^ +local address: +LID 0x(?!0000)[0-9a-f]{4}, .* GID ::$",
                                 r"^ +remote address: +LID 0x(?!0000)[0-9a-f]{4}, .* GID ::$",
                                 r"^500 iters in [\d.]+ seconds = [\d.]+ usec/iter$"),
                          by_cm=False))
    for name, program, arguments in (("ib_write_bw", "ib_write_bw", []),
                                     ("ib_read_lat", "ib_read_lat", []),
                                     ("ib_send_bw_ud", "ib_send_bw", ["-c", "UD"])):
        case = perftest_case(name, program, ["-s", "1024", *arguments], [1024], 200, False, "mlx5_0")
        case.client_signs += [r"^ *Link type +: IB$",
                              r"^ *local address: LID 0x(?!0000)[0-9a-f]+ QPN ",
                              r"^ *remote address: LID 0x(?!0000)[0-9a-f]+ QPN "]
        cases.append(case)
    # qperf has no option for a GID, so that without -cm 1 it needs a port with LIDs.
    cases.append(Case("qperf", ["qperf", "-lp", "{port}"],
                      ["qperf", "-lp", "{port}", "-t", "1", "-m", "1024", "{server}", "rc_bw",
                       "rc_lat", "ud_lat", "quit"],
                      client_signs=[r"^rc_bw:$", r"^rc_lat:$", r"^ud_lat:$"], by_cm=False))
    cases += [case for case in rdmacm_utils() if case.name in ("rping", "udaddy", "rdma_server")]
    # Both ends have AF_IB addresses: the GIDs of their ports.
    for program, space in (("ucmatose", "tcp"), ("ucmatose", "ib"), ("udaddy", "udp")):
        base = [program, "-f", "gid", "-P", space]
        base += ["-p", "{port}"] if program == "ucmatose" else []
        cases.append(Case("%s_gid_%s" % (program, space), [*base, "-b", "{server_gid}"],
                          [*base, "-s", "{server_gid}", "-b", "{client_gid}"],
                          signs=(r"^test complete$", r"^return status 0$")))
    cases.append(perftest_case("ib_write_bw", "ib_write_bw", ["-s", "1024"], [1024], 200, True,
                               "mlx5_0"))
    for case in cases:
        case.options = ["--profile", "mlx5-ib"]
    return cases


def devices():
    def ibv_devices():
        emulated.need("ibv_devices")
        with Emulator() as emulator:
            program = emulator.start("one", emulated.free_addresses(1)[0], ["ibv_devices"])
            if program.wait(LIMIT_S) != 0:
                raise Failure(program.describe())
            program.expect(r"^ +rxe0 +\t?[0-9a-f]{16}$")

    def two_devices():
        emulated.need("ibv_devices")
        with Emulator() as emulator:
            first, second = emulated.free_addresses(2)
            program = emulator.start("one", first, ["ibv_devices"],
                                     options=["--address", second, "--device", "rxe0",
                                              "--device", "other=rxe"])
            if program.wait(LIMIT_S) != 0:
                raise Failure(program.describe())
            program.expect(r"^ +rxe0\s", r"^ +other\s")

    def ibv_devinfo():
        emulated.need("ibv_devinfo")
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "devinfo-rxe.txt")) as f:
            wanted = [line for line in f.read().splitlines() if line and not line.startswith("#")]
        with Emulator() as emulator:
            address = emulated.free_addresses(1)[0]
            wanted.append("GID[ 1]: ::ffff:%s, RoCE v2" % address)
            program = emulator.start("one", address, ["ibv_devinfo", "-v"])
            if program.wait(LIMIT_S) != 0:
                raise Failure(program.describe())
            got = [" ".join(line.split()) for line in program.output.splitlines()]
            missing = [line for line in wanted
                       if not any(re.fullmatch(line_pattern(line), one) for one in got)]
            if missing:
                raise Failure("ibv_devinfo does not say\n  %s\nbut\n%s" %
                              ("\n  ".join(missing), program.output))

    return [("ibv_devices", ibv_devices), ("ibv_devices_two_devices", two_devices),
            ("ibv_devinfo", ibv_devinfo), ("provider_libraries", provider_libraries)]


# Libraries that need the private version node of libibverbs, by their path below the system's
# library folder. PROVIDERS and the plugins in libibverbs/ belong to ibverbs-providers, which
# perftest needs. The modules of UCX belong to libucx0, those of DPDK to librte-net-mlx5. The test
# always loads PROVIDERS, and loads the others where they are installed.
PROVIDERS = ("libmlx5.so.1", "libefa.so.1")
MORE_PROVIDERS = ("libmlx4.so.1", "libmana.so.1", "libhns.so.1", "libibverbs/lib*-rdmav*.so",
                  "ucx/libuct_ib*.so.0", "ucx/libuct_rdmacm.so.0",
                  "dpdk/pmds-*/librte_common_mlx5.so.*", "dpdk/pmds-*/librte_net_mlx[45].so.*")

LOADER = """
import ctypes, os, sys
for path in sys.argv[2:]:
    ctypes.CDLL(path, os.RTLD_NOW)
    print("loaded", path, flush=True)
with open("/proc/self/maps") as maps:
    mapped = {line.split()[-1] for line in maps if "libibverbs.so" in line}
print("libibverbs:", "the system's" if any(one.startswith(sys.argv[1]) for one in mapped)
      else "the emulator's" if len(mapped) == 1 else mapped)
"""


def provider_libraries():
    """The loader finds each symbol of each library, as it must before a program starts."""
    folder = os.path.join("/usr/lib", sysconfig.get_config_var("MULTIARCH"))
    paths = [os.path.join(folder, name) for name in PROVIDERS]
    for pattern in MORE_PROVIDERS:
        paths += sorted(glob.glob(os.path.join(folder, pattern)))
    if not os.path.exists(paths[0]):
        raise emulated.Skip("ibverbs-providers is not installed")
    with Emulator() as emulator:
        program = emulator.start("one", emulated.free_addresses(1)[0],
                                 [emulated.need("python3"), "-c", LOADER, folder, *paths])
        if program.wait(LIMIT_S) != 0:
            raise Failure(program.describe())
        program.expect(r"^libibverbs: the emulator's$")
        print(program.output)


def line_pattern(line):
    """Returns a pattern for a wanted line with joined blanks. <...> in it is a regular
    expression."""
    parts = re.split(r"<(.*?)>", " ".join(line.split()))
    return "".join("(?:%s)" % part if i % 2 else re.escape(part) for i, part in enumerate(parts))


GROUPS = {
    "rdmacm_utils": rdmacm_utils,
    "many_connections": many_connections,
    "pingpongs": pingpongs,
    "perftest": lambda: perftest(by_cm=False),
    "perftest_R": lambda: perftest(by_cm=True),
    "siw": siw,
    "lids": lids,
}

AT_ONCE = {"perftest": 2, "perftest_R": 2}  # these programs start and end slowly


def main():
    group = sys.argv[1]
    if group == "devices":
        return emulated.run_cases("apps.devices", devices())
    cases = []
    for hosts, label in ((1, "one_host"), (2, "two_hosts")):
        for case in GROUPS[group]():
            cases.append(("%s.%s" % (case.name, label), functools.partial(case.run, hosts)))
    wanted = sys.argv[2:]
    return emulated.run_cases(
        "apps." + group, [one for one in cases if not wanted or one[0] in wanted],
        at_once=AT_ONCE.get(group, 1))


if __name__ == "__main__":
    sys.exit(main())
