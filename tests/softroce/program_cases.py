"""Debian's programs with the emulator at one end and rdma_rxe at the other."""

import functools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
import perftest  # noqa: E402
from emulated import Failure, Unsteady  # noqa: E402
from peers import EMULATOR, GID_INDEX, KERNEL, Peers  # noqa: E402

LIMIT_S = 120
ROUNDS = 20


class Case:
    """A program and its arguments at both ends; {server}, {client}, {gid} and {port} are replaced.
    The output must contain the signs, by lines."""

    def __init__(self, name, server, client, signs=(), server_signs=(), client_signs=(),
                 by_cm=True, attempts=1):
        self.name = name
        self.server = server
        self.client = client
        self.server_signs = [*signs, *server_signs]
        self.client_signs = [*signs, *client_signs]
        self.by_cm = by_cm
        self.attempts = attempts

    def run(self, family, emulator_serves):
        """Runs a failing pair once more, because an emulated processor can be slower than a
        time-out. A failure also reports the result of the same pair between two programs on
        rdma_rxe."""
        server, client = (EMULATOR, KERNEL) if emulator_serves else (KERNEL, EMULATOR)
        try:
            self.run_retried(family, server[family], client[family], emulator_serves,
                             not emulator_serves)
        except Failure as failure:
            try:
                self.run_retried(family, server[family], client[family], emulator_serves,
                                 not emulator_serves)
            except Failure:
                pass
            else:
                raise Unsteady("passes once more; before: %s" % failure)
            try:
                self.run_retried(family, KERNEL[family], KERNEL[family], False, False)
                control = "ends well"
            except Failure as same:
                control = "fails too: %s" % same
            raise Failure("%s\n\ncontrol: the same between two programs on rdma_rxe %s" %
                          (failure, control))

    def run_retried(self, *arguments):
        for attempt in range(self.attempts):
            try:
                return self.run_once(*arguments)
            except Failure as failure:
                if perftest.RACE not in str(failure) or attempt + 1 == self.attempts:
                    raise
                print("perftest's client came before its server listened again; once more")

    def run_once(self, family, server_address, client_address, server_emulated, client_emulated):
        port = emulated.free_tcp_port()
        fill = {"server": server_address, "client": client_address, "port": port,
                "gid": GID_INDEX[family],
                # perftest exchanges its parameters over TCP of IPv4 only.
                "server4": (EMULATOR if server_emulated else KERNEL)[4]}
        with Peers() as peers:
            server = peers.start_listening(server_emulated, [a.format(**fill) for a in self.server],
                                           self.by_cm, port)
            client = peers.start(client_emulated, [a.format(**fill) for a in self.client])
            both = lambda: "\n" + client.describe() + "\n" + server.describe()
            status = client.wait(LIMIT_S)
            if status != 0:
                raise Failure("the client ended with %s%s" % (status or "a time-out", both()))
            status = server.wait(LIMIT_S)
            if status != 0:
                raise Failure("the server ended with %s%s" % (status or "a time-out", both()))
            server.expect(*self.server_signs)
            client.expect(*self.client_signs)


def rdmacm_programs():
    done = (r"^test complete$", r"^return status 0$")
    rping = ["rping", "-a", "{server}", "-p", "{port}", "-v", "-V", "-C", str(ROUNDS)]
    last = "rdma-ping-%d" % (ROUNDS - 1)
    ucmatose = (["ucmatose", "-b", "{server}", "-p", "{port}"],
                ["ucmatose", "-s", "{server}", "-b", "{client}", "-p", "{port}"])
    udaddy = (["udaddy", "-b", "{server}"], ["udaddy", "-s", "{server}", "-b", "{client}"])

    def rping_case(name, *more):
        return Case(name, [*rping, *more, "-s"], [*rping, *more, "-c"],
                    server_signs=(r"DISCONNECT EVENT", "^server ping data: " + last),
                    client_signs=("^ping data: " + last,))

    both = [rping_case("rping"), Case("ucmatose", *ucmatose, signs=done),
            Case("udaddy", *udaddy, signs=done)]
    return both, [
        rping_case("rping_64KiB", "-S", "65535"),  # rping's maximum
        Case("ucmatose_many", *[[*side, "-c", "8", "-C", "20", "-S", "5000"] for side in ucmatose],
             signs=done),
        Case("udaddy_many", *[[*side, "-c", "4", "-C", "20"] for side in udaddy], signs=done),
    ]


def perftest_case(name, program, size, iterations, *more):
    base = [program, "-d", "rxe0", "-F", "-p", "{port}", "-s", str(size), "-n", str(iterations),
            "-x", "{gid}", *more]
    return Case(name, base, [*base, "{server4}"], by_cm=False,
                client_signs=[perftest.ROW % (size, iterations)])


def perftest_cm_case(name, program, size, iterations):
    base = [program, "-R", "-d", "rxe0", "-F", "-p", "{port}", "-s", str(size),
            "-n", str(iterations)]
    return Case(name, base, [*base, "{server}"], attempts=perftest.ATTEMPTS,
                client_signs=[perftest.ROW % (size, iterations)])


def perftest_programs():
    # IPv6 changes the headers below the operation only: one program for each operation.
    both = [
        perftest_case("ib_write_bw", "ib_write_bw", 65536, 100),
        perftest_case("ib_read_bw", "ib_read_bw", 65536, 100),
        perftest_case("ib_send_bw", "ib_send_bw", 65536, 100),
        perftest_case("ib_atomic_bw_faa", "ib_atomic_bw", 8, 200, "-A", "FETCH_AND_ADD"),
    ]
    return both, [
        perftest_case("ib_send_lat_events", "ib_send_lat", 64, 100, "-e"),
        perftest_case("ib_read_lat_events", "ib_read_lat", 64, 100, "-e"),
        # perftest has no events for the latency of a WRITE.
        perftest_case("ib_write_lat", "ib_write_lat", 64, 100),
        # With rdma_cm, perftest 4.5 resolves IPv4 only, on any device.
        perftest_cm_case("ib_write_bw_R", "ib_write_bw", 65536, 100),
        perftest_cm_case("ib_read_bw_R", "ib_read_bw", 65536, 100),
        perftest_cm_case("ib_send_bw_R", "ib_send_bw", 65536, 100),
        perftest_case("ib_write_bw_64B", "ib_write_bw", 64, 500),
        perftest_case("ib_read_bw_1MiB", "ib_read_bw", 1 << 20, 10),
        perftest_case("ib_send_bw_events", "ib_send_bw", 4096, 200, "-e"),
        perftest_case("ib_send_bw_uc", "ib_send_bw", 1024, 100, "-c", "UC"),
        perftest_case("ib_send_lat_ud", "ib_send_lat", 1024, 100, "-c", "UD"),
        perftest_case("ib_atomic_bw_cas", "ib_atomic_bw", 8, 200, "-A", "CMP_AND_SWAP"),
    ]


def program_cases():
    """Returns the cases of both families, and those of only one."""
    cases = []
    rdmacm, perf = rdmacm_programs(), perftest_programs()
    for family, programs in ((4, rdmacm[0] + rdmacm[1] + perf[0] + perf[1]), (6, rdmacm[0] + perf[0])):
        for serves, role in ((True, "as_server"), (False, "as_client")):
            for case in programs:
                cases.append(("%s.ipv%d.%s" % (case.name, family, role),
                              functools.partial(case.run, family, serves)))
    return cases


def programs_under_loss():
    """The ack timeout of a connection by rdma_cm is two seconds. rdma_rxe waits for it after each
    lost READ response, so the emulator is the reading end here."""
    rping_64KiB = rdmacm_programs()[1][0]
    ucmatose = rdmacm_programs()[0][1]
    return [("rping_64KiB.loss.as_server", functools.partial(rping_64KiB.run, 4, True)),
            ("ucmatose.loss.as_server", functools.partial(ucmatose.run, 4, True)),
            ("ucmatose.loss.as_client", functools.partial(ucmatose.run, 4, False))]
