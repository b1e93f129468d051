"""Builds the epoll service by make and by CMake from an installed prefix. Runs its programs on an
emulated host, and its tests under Valgrind."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import example  # noqa: E402
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

SCRIPT = """
: >port; ./service serve 0 >>port & server=$!
while ! grep -q port port; do sleep 0.05; done
./service ask $ADDRESS $(cut -d' ' -f2 port) hello world
result=$?; kill -TERM $server; wait $server || result=$?; exit $result
"""
# All tests except the one that repeats itself a thousand times.
UNDER_VALGRIND = "-ServiceTimelineTest.*"


def make_builds_and_tests_it():
    with example.Example("epoll") as epoll, Emulator() as emulator:
        epoll.make()
        # The service does not use the emulator's headers, but it runs on the emulator.
        address = emulated.free_addresses(1)[0]
        shown = epoll.run_programs(emulator, address, SCRIPT)
        if shown != "HELLO\nWORLD\n":
            raise Failure(shown)
        # librdmacm keeps an interior pointer to an opened device. Valgrind calls such memory
        # "possibly lost".
        example.run([emulated.need("valgrind"), "-q", "--error-exitcode=66", "--leak-check=full",
                     "--show-leak-kinds=definite,indirect", "--errors-for-leak-kinds=definite,indirect",
                     "./service_test", "--gtest_filter=" + UNDER_VALGRIND], epoll.sources)


def cmake_builds_and_tests_it():
    with example.Example("epoll") as epoll:
        epoll.cmake()


if __name__ == "__main__":
    sys.exit(emulated.run_cases("examples_epoll", [(case.__name__, case) for case in (
        make_builds_and_tests_it, cmake_builds_and_tests_it)]))
