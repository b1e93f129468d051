"""The emulator's files under /sys and /dev, compared with those of the kernel's rdma_rxe file by
file: paths, kinds, permissions and contents, through both doors of `--sysfs`."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import emulated  # noqa: E402
import file_differences  # noqa: E402
from emulated import Emulator, Failure, Skip  # noqa: E402

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "file_tree.py")
LIMIT_S = 60
REFUSED_STATUS = 125


def has_the_kernels_files(door, address, second):
    with Emulator() as emulator:
        listing = os.path.join(emulator.directory, "listing")
        # Two addresses are three entries of the GID table, as in the virtual machine.
        program = emulator.start(
            "a", address, ["sh", "-c", "exec %s %s >%s" % (sys.executable, TREE, listing)],
            options=["--sysfs", door, "--address", second])
        status = program.wait(LIMIT_S)
        if status == REFUSED_STATUS and door == "fuse":
            raise Skip("mounts are refused here: " + program.output)
        if status != 0:
            raise Failure("status %s: %s" % (status, program.output))
        with open(listing) as text:
            found = json.load(text)
    lines = file_differences.differences(file_differences.recorded(), found)
    if lines:
        raise Failure("\n".join(lines))


def main():
    one, two, three, four = emulated.free_addresses(4)
    return emulated.run_cases("softroce.files", [
        ("fuse", lambda: has_the_kernels_files("fuse", one, two)),
        ("preload", lambda: has_the_kernels_files("preload", three, four)),
    ])


if __name__ == "__main__":
    sys.exit(main())
