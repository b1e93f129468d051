"""Checks every C++ source of the checkout with clang-format and its .clang-format."""

import functools
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Failure, Skip  # noqa: E402

# The version of Debian 12. Other versions format some lines differently.
VERSION = "14"


def check(paths):
    emulated.need("clang-format")
    version = subprocess.run(["clang-format", "--version"], text=True, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE).stdout.strip()
    if " version %s." % VERSION not in version:
        raise Skip("the format is that of clang-format %s; this is %s" % (VERSION, version))
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *paths], text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if "error:" in line]
        raise Failure("run clang-format -i on these:\n" + "\n".join(
            sorted({line.split(":")[0] for line in lines})))


def main():
    os.chdir(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
    cases = []
    for folder in ("emulator", "shim", "tools", "tests", "bench"):
        paths = [os.path.join(directory, name) for directory, _, names in os.walk(folder)
                 for name in sorted(names) if name.endswith((".cc", ".h"))]
        if paths:
            cases.append((folder, functools.partial(check, paths)))
    if not cases:
        print("no sources found: this test would pass on anything")
        return 1
    return emulated.run_cases("format", cases)


if __name__ == "__main__":
    sys.exit(main())
