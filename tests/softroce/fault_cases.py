"""Each RDMA CM event, completion status and asynchronous event that a fault rule can make, on the
machine's own rdma_rxe, by the scenarios and with the results of tests/layer/every.py."""

import functools
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "layer"))
import every  # noqa: E402
from emulated import RDMAEMU, Emulator  # noqa: E402
from peers import KERNEL, run  # noqa: E402

OTHER_ADDRESS = "10.66.0.77/32"


def change_address(what):
    """An address of the link comes and goes. Each change is a GID_CHANGE of rxe0."""
    run("ip", "address", {"add": "add", "remove": "del"}[what], OTHER_ADDRESS, "dev", "roce0")


@functools.cache
def built():
    return every.build(tempfile.mkdtemp(prefix="every-"))  # gone with the machine


def on_the_device(kind):
    with Emulator() as emulator:
        program = built()
        run_it = [RDMAEMU, "run", "--backend", "system", "--device", "rxe0", *every.rules_of(kind),
                  "--", program, kind, KERNEL[4], str(every.KINDS[kind])]
        every.judge(kind, emulator.start_outside(run_it), change_address)


def fault_cases():
    return [("every.%s" % kind, lambda kind=kind: on_the_device(kind)) for kind in every.KINDS]
