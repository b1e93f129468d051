"""Tests `rdmaemu mount`: state, fault rules, time and streams of hosts by file operations alone, and
that no mount remains. docs/mount.md has the rules."""

import errno
import json
import os
import signal
import subprocess
import sys

from cli_support import ADDRESS, OTHER, check, emulated, eventually, expect
from emulated import Emulator, Skip


def mounts():
    with open("/proc/self/mounts") as table:
        return {line for line in table if "rdmaemu-hosts" in line}


def error_of(function):
    try:
        function()
    except OSError as error:
        return error.errno
    return 0


class Mounted(Emulator):
    """A registry whose hosts are mounted on `root`."""

    def __enter__(self):
        super().__enter__()
        self.root = os.path.join(self.directory, "m")
        os.mkdir(self.root)
        result = self.rdmaemu("mount", self.root)
        if result.returncode != 0:
            super().__exit__()
            raise Skip("mounting is refused: " + result.stderr)
        return self

    def __exit__(self, *arguments):
        if self.is_mounted():
            self.rdmaemu("unmount", "--lazy", self.root)
        super().__exit__(*arguments)

    def is_mounted(self):
        return any(self.root in line for line in mounts())

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def read(self, *parts):
        with open(self.path(*parts)) as file:
            return file.read()

    def value(self, name, *parts):
        return dict(line.split(": ", 1) for line in self.read(*parts).splitlines())[name]

    def start_a(self, *options):
        return self.start_host("a", ["--address", ADDRESS, *options])


def a_program_and_a_rule_show_in_files():
    with Mounted() as emulator:
        emulator.start_a()
        check(os.listdir(emulator.root) == ["a"], os.listdir(emulator.root))
        check(os.stat(emulator.path("a")).st_mode & 0o777 == 0o700, "the mode of a directory")
        check(emulator.value("answers", "a", "status") == "yes", emulator.read("a", "status"))
        check("4: ACTIVE" in emulator.read("a", "devices", "rxe0", "ports", "1", "state"), "state")
        new = emulator.path("a", "faults", "new")
        wrong = subprocess.run(["sh", "-c", "echo 'at = \"cm.reqq\", drop = true' > " + new],
                               capture_output=True, text=True)
        check(wrong.returncode != 0, "a wrong rule is added")
        check("cm.req" in emulator.read("a", "faults", "error"), "no reason")
        rule = 'at = "cm.req", name = "slow/1", delay_ms = 1'
        check(error_of(lambda: os.write(os.open(new, os.O_WRONLY), b"nonsense")) == errno.EINVAL,
              "no EINVAL")
        subprocess.run(["sh", "-c", "echo '%s' > %s" % (rule, new)], check=True)
        check(emulator.read("a", "faults", "error") == "", emulator.read("a", "faults", "error"))
        check(emulator.value("fired", "a", "faults", "slow%2F1") == "0", "it fired early")
        server = emulator.start("a", ADDRESS, ["rping", "-s", "-a", ADDRESS, "-P"])
        expect(emulator.rdmaemu("wait", "--host", "a", "--listening", "7174"), 0)
        client = emulator.start("b", OTHER, ["rping", "-c", "-a", ADDRESS, "-C", "3"])
        check(client.wait(30) == 0, client.describe())
        check(emulator.value("fired", "a", "faults", "slow%2F1") == "1", "it did not fire")
        ids = os.listdir(emulator.path("a", "ids"))
        check(any(emulator.value("state", "a", "ids", each) == "LISTEN" for each in ids), ids)
        check(int(emulator.read("a", "counters", "packets_received")) > 0, "no packets")
        os.remove(emulator.path("a", "faults", "slow%2F1"))
        check(sorted(os.listdir(emulator.path("a", "faults"))) == ["error", "new"], "it remains")
        server.end()


def streams_follow_a_host_until_its_end():
    with Mounted() as emulator:
        trace = os.path.join(emulator.directory, "a.jsonl")
        capture = os.path.join(emulator.directory, "a.pcapng")
        host = emulator.start_a("--trace", trace, "--pcap", capture)
        records = emulator.read("a", "trace.jsonl").splitlines()
        check(json.loads(records[0])["what"] == "START", records)
        tail = emulator.start_outside(["tail", "-s", "0.02", "-n", "+1", "-f",
                                       emulator.path("a", "trace.jsonl")])
        check(tail.wait_for_text("START", 30), tail.describe())
        with open(emulator.path("a", "packets.pcapng"), "rb") as packets:
            check(packets.read(4) == b"\n\r\r\n", "no capture")
            expect(emulator.rdmaemu("hosts"), 0)
            check(tail.wait_for_text("host_status", 30), tail.describe())
            host.process.kill()
            host.process.wait()
            eventually("the end of the host", lambda: not os.listdir(emulator.root))
            check(error_of(lambda: [packets.read(1 << 16) for _ in range(9)]) == errno.ENODEV,
                  "the stream did not end")
        check(tail.wait(30) is not None, tail.describe())


def a_host_that_hangs_is_shown_as_such():
    with Mounted() as emulator:
        host = emulator.start_a("--clock", "manual")
        with open(emulator.path("a", "clock"), "w") as clock:
            clock.write("5s")
        check(emulator.value("now", "a", "clock").startswith("5."), emulator.read("a", "clock"))
        os.kill(host.process.pid, signal.SIGSTOP)
        try:
            check(emulator.value("answers", "a", "status") == "no", "it answers")
            check(error_of(lambda: emulator.read("a", "clock")) == errno.ETIMEDOUT, "no time-out")
        finally:
            os.kill(host.process.pid, signal.SIGCONT)
        eventually("an answer", lambda: emulator.value("answers", "a", "status") == "yes")


def nothing_stays_mounted():
    with Mounted() as emulator:
        expect(emulator.rdmaemu("mount", emulator.root), 1, "mounted on", "rdmaemu unmount")
        expect(emulator.rdmaemu("unmount", emulator.root), 0)
        check(not emulator.is_mounted(), mounts())
        expect(emulator.rdmaemu("unmount", emulator.root), 1, "no hosts are mounted on")
        expect(emulator.rdmaemu("mount", emulator.root + "/none"), 1, "mkdir -p")
        for number in (signal.SIGTERM, signal.SIGKILL):
            program = emulator.start_outside([emulated.RDMAEMU, "mount", "--foreground",
                                              emulator.root])
            eventually("the mount", emulator.is_mounted)
            program.process.send_signal(number)
            program.process.wait(30)
            eventually("the unmount", lambda: not emulator.is_mounted())


def the_guard_of_an_ended_mount_keeps_the_next_mount():
    with Mounted() as emulator:
        expect(emulator.rdmaemu("unmount", emulator.root), 0)
        mount = [emulated.RDMAEMU, "mount", "--foreground", emulator.root]
        # The guard is a child that reads a pipe. Here it sees the end of its parent late.
        late_ms = 500
        slow = emulator.start_outside([
            emulated.need("strace"), "-f", "-o", "/dev/null", "-e", "trace=read", "-e",
            "inject=read:delay_exit=%d" % (late_ms * 1000), *mount])
        eventually("the first mount", emulator.is_mounted)
        tracer = slow.process.pid
        with open("/proc/%d/task/%d/children" % (tracer, tracer)) as children:
            os.kill(int(children.read().split()[0]), signal.SIGTERM)
        eventually("the unmount", lambda: not emulator.is_mounted())
        program = emulator.start_outside(mount)
        eventually("the second mount", emulator.is_mounted)
        slow.process.wait(30)  # the guard has ended, too
        check(emulator.is_mounted(), "the guard of the first mount has removed the second one")
        program.process.send_signal(signal.SIGTERM)
        program.process.wait(30)


def a_mount_follows_that_of_a_killed_process():
    with Mounted() as emulator:
        expect(emulator.rdmaemu("unmount", emulator.root), 0)
        for _ in range(5):
            program = emulator.start_outside([emulated.RDMAEMU, "mount", "--foreground",
                                              emulator.root])
            eventually("the mount", emulator.is_mounted)
            program.process.kill()
            program.process.wait(30)
            expect(emulator.rdmaemu("mount", emulator.root), 0)
            expect(emulator.rdmaemu("unmount", emulator.root), 0)


CASES = [a_program_and_a_rule_show_in_files, streams_follow_a_host_until_its_end,
         a_host_that_hangs_is_shown_as_such, nothing_stays_mounted,
         the_guard_of_an_ended_mount_keeps_the_next_mount,
         a_mount_follows_that_of_a_killed_process]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("mount", [(case.__name__, case) for case in CASES]))
