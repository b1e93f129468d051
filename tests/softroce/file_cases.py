"""The files of the kernel's rdma_rxe under /sys and /dev are those that files_test.py compares the
emulator's with."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import file_differences  # noqa: E402
from emulated import Failure  # noqa: E402
from peers import run  # noqa: E402

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "file_tree.py")


def the_recorded_files_are_those_of_the_kernel():
    kernel, found = file_differences.recorded(), json.loads(run(sys.executable, TREE))
    lines = file_differences.differences(kernel, found)
    # The kernel itself has every file, also those that the emulator may leave out.
    lines += ["%s is missing" % path for path in kernel if path not in found]
    if lines:
        raise Failure("\n".join(lines))


def file_cases():
    return [("files." + function.__name__, function)
            for function in (the_recorded_files_are_those_of_the_kernel,)]
