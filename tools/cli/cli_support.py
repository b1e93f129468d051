"""What the tests of the rdmaemu command share: a host `h` at ADDRESS, and checks of results."""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Failure, free_addresses  # noqa: E402

ADDRESS, OTHER = free_addresses(2)


def check(holds, text):
    if not holds:
        raise Failure(text)


def expect(result, status, *words):
    """Checks a result's status, and that its one line on stderr contains the words."""
    said = result.stdout + result.stderr
    check(result.returncode == status, "status %s instead of %s: %s" %
          (result.returncode, status, said))
    for word in words:
        check(word in said, "%r is not in: %s" % (word, said))
    if words and status != 0:
        lines = result.stderr.strip().split("\n")
        check(len(lines) == 1 and lines[0].startswith("error: "), "not one line: " + said)


def eventually(what, holds):
    until = time.monotonic() + 30
    while not holds():
        check(time.monotonic() < until, what + " did not come true in 30 s")
        time.sleep(0.01)


def run(emulator, *arguments, host="h", options=("--address", ADDRESS)):
    return emulator.rdmaemu("run", "--host", host, *options, "--", *arguments)


def hold(emulator, host="h", address=ADDRESS, options=()):
    """Starts a host with a client that runs until its input ends."""
    program = emulator.start(host, address, ["sh", "-c", "echo up; exec cat"], options)
    check(program.wait_for_text("up\n", 30), program.describe())
    return program


def let_go(program):
    program.process.stdin.close()
    check(program.process.wait(30) == 0, program.describe())
