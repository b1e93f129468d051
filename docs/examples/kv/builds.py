"""The key-value server built by make and by CMake from an installed prefix."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import example  # noqa: E402
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

SCRIPT = """
: >port; ./kv_server 0 >>port & server=$!
while ! grep -q port port; do sleep 0.05; done
port=$(cut -d' ' -f2 port)
./kv_client $ADDRESS $port put name value && ./kv_client $ADDRESS $port get name
result=$?; kill $server; exit $result
"""


def make_builds_it():
    """The tests take half a minute to compile, and CMake compiles them. //docs/examples/epoll runs
    tests by make."""
    with example.Example("kv") as kv, Emulator() as emulator:
        kv.make()
        # The programs do not use the emulator's headers, but they run on the emulator.
        address = emulated.free_addresses(1)[0]
        shown = kv.run_programs(emulator, address, SCRIPT)
        if shown != "value\n":
            raise Failure(shown)


def cmake_builds_and_tests_it():
    with example.Example("kv") as kv:
        kv.cmake()


if __name__ == "__main__":
    sys.exit(emulated.run_cases("examples_kv", [(case.__name__, case) for case in (
        make_builds_it, cmake_builds_and_tests_it)]))
