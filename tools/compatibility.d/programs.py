"""Runs programs of Debian packages that no test runs on emulated hosts, with their own signs of success.

iser      tgt's iSER target and libiscsi's initiator: login, inquiry, capacity, reads, writes
librpma   a program on librpma: connection, write, flush, read, atomic write, messages

Each runs on one host and on two. Packages: tgt, libiscsi-bin, librpma-dev, gcc. The command installs
none of them. It skips a case whose programs are missing.
"""

import argparse
import functools
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip  # noqa: E402

LIMIT_S = 60
DISK_BYTES = 64 << 20
TARGET = "iqn.2026-11.org.example:disk"
INITIATOR = "iqn.2026-11.org.example:initiator"
# Tests of iscsi-test-cu that read and write with 1 to 256 blocks per request.
ISCSI_TESTS = ("ALL.Read10.Simple", "ALL.Read16.Simple", "ALL.Write10.Simple", "ALL.Write16.Simple",
               "ALL.Verify16.Simple")
WRITTEN = 0xa6  # iscsi-test-cu fills its blocks with this byte


def hosts_and_addresses(hosts):
    addresses = emulated.free_addresses(hosts)
    return (("one", addresses[0]), ("one" if hosts == 1 else "two", addresses[-1]))


def expect_success(program, limit_s, *signs):
    status = program.wait(limit_s)
    if status != 0:
        raise Failure("status %s\n%s" % (status, program.describe()))
    program.expect(*signs)


def wait_until_listening(emulator, host, port):
    result = emulator.rdmaemu("wait", "--host", host, "--listening", str(port), "--timeout", "30s")
    if result.returncode:
        raise Failure("no listener on port %d: %s" % (port, result.stderr))


def iser(hosts):
    for program in ("tgtd", "tgtadm", "iscsi-inq", "iscsi-readcapacity16", "iscsi-perf", "iscsi-test-cu"):
        emulated.need(program)
    (server, server_address), (client, client_address) = hosts_and_addresses(hosts)
    port = emulated.free_tcp_port()
    control = str(port)
    with Emulator() as emulator:
        disk = os.path.join(emulator.directory, "disk.img")
        with open(disk, "wb") as file:
            file.truncate(DISK_BYTES)
        env = {"TGT_IPC_SOCKET": os.path.join(emulator.directory, "tgtd")}
        daemon = emulator.start(server, server_address, [
            "tgtd", "-f", "-C", control, "--iscsi", "portal=%s:%d" % (server_address, port),
            "--iser", "port=%d,pool_sz_mb=128" % port], env=env)
        wait_until_listening(emulator, server, port)

        def administer(*arguments):
            argv = ["tgtadm", "-C", control, "--lld", "iser", *arguments]
            expect_success(emulator.start_outside(argv, dict(emulator.env, **env)), LIMIT_S)

        administer("--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET)
        administer("--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "-b", disk)
        # tgtd's iSER login needs both: an address and a name in its access lists.
        administer("--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL")
        administer("--op", "bind", "--mode", "target", "--tid", "1", "-Q", INITIATOR)
        url = "iser://%s:%d/%s/1" % (server_address, port, TARGET)
        runs = [(["iscsi-inq", "-i", INITIATOR, url], (r"^Vendor:IET", r"^Product:VIRTUAL-DISK")),
                (["iscsi-readcapacity16", "-i", INITIATOR, url], (r"^Total size:%d" % DISK_BYTES,)),
                (["iscsi-perf", "-i", INITIATOR, "-t", "2", "-b", "64", url], (r"^finished",))]
        runs += [(["iscsi-test-cu", "-i", INITIATOR, "--dataloss", "--fail", "-t", test, url],
                  (r"^ +tests +1 +1 +1 +0 ",)) for test in ISCSI_TESTS]
        try:
            for argv, signs in runs:
                expect_success(emulator.start(client, client_address, argv), LIMIT_S, *signs)
        except Failure as failure:
            raise Failure("%s\n%s" % (failure, daemon.describe())) from None
        with open(disk, "rb") as file:
            if set(file.read(512)) != {WRITTEN}:
                raise Failure("the disk's file lacks the written bytes")


def librpma(hosts):
    with tempfile.TemporaryDirectory() as directory:
        program = os.path.join(directory, "rpma_copy")
        emulated.need("gcc")
        built = subprocess.run(
            ["gcc", "-O2", "-o", program, os.path.join(HERE, "rpma_copy.c"), "-lrpma", "-libverbs"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if "librpma.h" in built.stdout or "-lrpma" in built.stdout:
            raise Skip("librpma-dev is not installed")
        if built.returncode:
            raise Failure(built.stdout)
        (server, server_address), (client, client_address) = hosts_and_addresses(hosts)
        port = emulated.free_tcp_port()
        with Emulator() as emulator:
            serving = emulator.start(server, server_address,
                                     [program, "server", server_address, str(port)])
            wait_until_listening(emulator, server, port)
            copying = emulator.start(client, client_address,
                                     [program, "client", server_address, str(port)])
            try:
                expect_success(copying, LIMIT_S, r"^client: wrote, flushed and read 65536 bytes$",
                               r"^client: the server has seen the write$")
                expect_success(serving, LIMIT_S, r"^server: the client wrote 65536 bytes$")
            except Failure as failure:
                raise Failure("%s\n%s" % (failure, serving.describe())) from None


RUNS = {"iser": iser, "librpma": librpma}


def main():
    parser = argparse.ArgumentParser(
        prog="tools/compatibility run", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__, epilog="Status: 0 when no case failed, 1 otherwise.\n\nExample:\n"
        "  tools/compatibility run librpma")
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="run these only: %s (default: all)" % ", ".join(RUNS))
    parser.add_argument("--rdmaemu", default=os.path.join(ROOT, "tools", "rdmaemu"),
                        help="the command that runs them (default: this checkout's)")
    options = parser.parse_args()
    for name in options.names:
        if name not in RUNS:
            parser.error("no program %s; there are: %s" % (name, ", ".join(RUNS)))
    emulated.RDMAEMU = os.path.abspath(options.rdmaemu)
    cases = [("%s.%s" % (name, title), functools.partial(RUNS[name], hosts))
             for name in options.names or RUNS for hosts, title in ((1, "one_host"), (2, "two_hosts"))]
    return emulated.run_cases("compatibility", cases)


if __name__ == "__main__":
    sys.exit(main())
