"""Programs of unusual kinds, and the hosts that they run on."""

import os
import subprocess
import sys
import tempfile
import threading

SOURCES = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(SOURCES, "..", "support"))
import emulated  # noqa: E402
from emulated import Failure, free_addresses  # noqa: E402

LIBRARIES = ["emulator/embedded", "shim/rdmacm", "shim/verbs"]
LIMIT_S = 100
OUTPUT = tempfile.mkdtemp(prefix="rdmaemu-guest-", dir="/tmp")


BUILDING = threading.Lock()  # cases run in parallel and share programs


def build(name, *flags):
    """Compiles tests/guest/NAME.c once against the system's libraries, as a user does."""
    # LD_PRELOAD ends a path at `:`.
    program = os.path.join(OUTPUT, name + "".join(flags).replace("/", "_").replace(":", "_"))
    with BUILDING:
        if not os.path.exists(program):
            compile_to(program, name, flags)
    return program


def compile_to(program, name, flags):
    made = subprocess.run(
        [emulated.need("gcc"), "-g", "-O1", "-Wall", "-Wextra", *flags,
         os.path.join(SOURCES, name + ".c"), "-o", program, "-lrdmacm", "-libverbs", "-lpthread",
         "-ldl"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env=dict(os.environ, LIBRARY_PATH=os.path.abspath(LIBRARIES[0])))
    if made.returncode != 0:
        raise Failure("cannot compile %s.c\n%s" % (name, made.stdout))


def run(emulator, argv, env=None):
    """Runs a program on a host to its end, which must be successful."""
    program = emulator.start("guest", free_addresses(1)[0], argv, env=env)
    if program.wait(LIMIT_S) != 0:
        raise Failure("the program failed\n" + program.describe())
    return program
