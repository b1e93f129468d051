"""Rules at memory on the requests of memory.c. The results are the same on an emulated host, under
the layer (faults.py), and on the machine's own device (tests/softroce/system_cases.py)."""

import os
import subprocess
import threading

import emulated
from emulated import Failure

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 60
OK, PROTECTION = "success", "local protection error"
# The rule, the operations of tests/layer/memory.c, and the status of each.
CASES = [
    ('at = "memory.read", nth = 2', ["write", "send", "write"],
     ["write " + OK, "send " + PROTECTION, "write " + OK]),
    ('at = "memory.read", mr_order = 3', ["write", "other", "read", "write:4096"],
     ["write " + OK, "other " + PROTECTION, "read " + OK, "write " + OK]),
    ('at = "memory.write", mr_order = 1', ["write", "read", "add:8", "send"],
     ["write " + OK, "read " + PROTECTION, "add " + PROTECTION, "send " + OK, "recv " + OK]),
    ('at = "memory.write", mr_order = 2', ["send", "srq_send", "read"],
     ["send remote operation error", "recv local QP operation error",
      "srq_send remote operation error", "recv local QP operation error", "read " + OK]),
    ('at = "memory.read", mr_order = 1', ["quiet", "two:300", "inline", "write:1048576"],
     ["quiet " + PROTECTION, "two " + PROTECTION, "inline " + OK, "write " + PROTECTION]),
    ('at = "memory.read", nth = 2', ["list"],
     ["list " + OK, "list " + PROTECTION, "list Work Request Flushed Error"]),
]


def lines_of(program):
    """Waits for memory.c and returns what it printed."""
    if program.wait(LIMIT_S) != 0:
        raise Failure(program.describe())
    printed = [line.strip() for line in program.output.splitlines()
               if not line.startswith("note:")]
    if printed[-1] != "done":
        raise Failure(program.describe())
    return printed[:-1]


BUILDING = threading.Lock()


def build(directory):
    """Returns the program, which has the same addresses in each run."""
    program = os.path.join(directory, "memory")
    with BUILDING:
        if not os.path.exists(program):
            compile_to(program)
    return program


def compile_to(program):
    made = subprocess.run(
        [emulated.need("gcc"), "-g", "-O1", "-no-pie", "-Wall", "-Wextra", "-D_GNU_SOURCE",
         os.path.join(HERE, "memory.c"), "-o", program, "-libverbs"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        raise Failure("cannot compile memory.c\n" + made.stdout)
