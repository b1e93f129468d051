"""The two ends of the machine's link, and a pair of programs on them. One end is the emulator and
the other the kernel's rdma_rxe. In a control run both are rdma_rxe."""

import os
import shlex
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

# The addresses that tools/softroce gives to the two ends, by family. The emulator runs in the
# namespace, because the kernel's driver owns the first namespace's UDP port 4791.
KERNEL = {4: "10.66.0.1", 6: "fd66::1"}
EMULATOR = {4: "10.66.0.2", 6: "fd66::2"}
IN_NAMESPACE = ["ip", "netns", "exec", "peer"]
# Entry 0 of both GID tables is link-local. The addresses follow in their order of configuration.
GID_INDEX = {4: 1, 6: 2}
CAPTURE_LINES = 60
LISTEN_LIMIT_S = 120  # an emulated processor is slow, even slower on a busy machine


def run(*argv, limit_s=60):
    done = subprocess.run(argv, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=limit_s)
    if done.returncode != 0:
        raise Failure("%s: %s" % (" ".join(argv), done.stdout.strip()))
    return done.stdout


class Peers:
    """One emulated host at the far end of the link, with a packet capture. A context manager. A
    Failure inside gets the capture's tail."""

    def __init__(self, record=True):
        self.emulator = Emulator(prefix=IN_NAMESPACE)
        self.pcap = os.path.join(self.emulator.directory, "wire.pcapng")
        self.options = ["--address", EMULATOR[6], *(["--pcap", self.pcap] if record else [])]

    def __enter__(self):
        self.emulator.__enter__()
        return self

    def __exit__(self, kind, failure, _):
        packets = ""
        if kind is not None and issubclass(kind, Failure):
            for program in reversed(self.emulator.programs):
                program.end()
            self.emulator.rdmaemu("stop", "peer")  # the file is complete after the end of its host
            packets = self.capture_tail()
        self.emulator.__exit__()
        if packets:
            raise Failure("%s\nthe last packets on the wire:\n%s" % (failure, packets)) from failure

    def capture_tail(self):
        if not os.path.exists(self.pcap):
            return ""
        done = subprocess.run(["tshark", "-n", "-r", self.pcap], text=True, timeout=300,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return "\n".join(done.stdout.splitlines()[-CAPTURE_LINES:])

    def start(self, on_emulator, argv):
        if on_emulator:
            return self.emulator.start("peer", EMULATOR[4], argv, options=self.options)
        return self.emulator.start_outside(argv)

    def program_environment(self):
        """Returns the environment that puts a program on the running emulated host."""
        shown = self.emulator.rdmaemu("env", "--host", "peer")
        if shown.returncode != 0:
            raise Failure(shown.stderr)
        words = (shlex.split(line) for line in shown.stdout.splitlines())
        return dict(line[1].split("=", 1) for line in words if line[:1] == ["export"])

    def start_listening(self, on_emulator, argv, by_cm, port):
        if by_cm and on_emulator:
            return self.emulator.start_listening("peer", EMULATOR[4], argv, options=self.options,
                                                 limit_s=LISTEN_LIMIT_S)
        program = self.start(on_emulator, argv)
        if by_cm:
            wait_for_kernel_listener(program)
        else:
            emulated.wait_for_tcp_listener(port, program, LISTEN_LIMIT_S)
        return program


def wait_for_kernel_listener(program, limit_s=LISTEN_LIMIT_S):
    """Waits until a program listens by the kernel's rdma_cm."""
    own = program.process.pid
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        # With a program trace, `rdmaemu run` starts the program as its child.
        with open("/proc/%d/task/%d/children" % (own, own)) as children:
            wanted = [" pid %d " % pid for pid in [own, *map(int, children.read().split())]]
        for line in run("rdma", "resource", "show", "cm_id").splitlines():
            if "state LISTEN" in line and any(each in line for each in wanted):
                return
        if program.process.poll() is not None:
            raise Failure("the server ended before its client came\n" + program.describe())
    raise Failure("the server did not listen in %d s\n%s" % (limit_s, program.describe()))
