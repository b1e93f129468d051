"""Builds the epoll service by make, by CMake and by Bazel from an installed prefix. Runs its programs
on an emulated host, and its tests under Valgrind."""

import os
import re
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
# Tests of connecting, of faults and of lost hosts. :service_test runs all of them.
QUICK_TESTS = "ServiceTest.A*"
# Stand-ins for what Debian's Bazel would download.
OFFLINE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../../tools/bazel/offline")


def make_builds_and_tests_it():
    with example.Example("epoll") as epoll, Emulator() as emulator:
        epoll.make(QUICK_TESTS)
        # The service does not use the emulator's headers, but it runs on the emulator.
        address = emulated.free_addresses(1)[0]
        shown = epoll.run_programs(emulator, address, SCRIPT)
        if shown != "HELLO\nWORLD\n":
            raise Failure(shown)
        kinds = "definite,indirect,possible"
        example.run([emulated.need("valgrind"), "-q", "--error-exitcode=66", "--leak-check=full",
                     "--show-leak-kinds=" + kinds, "--errors-for-leak-kinds=" + kinds,
                     "./service_test", "--gtest_filter=" + QUICK_TESTS], epoll.sources)


def cmake_builds_it():
    """The tests take half a minute to compile. make has compiled them, and //docs/examples/kv tests
    what the CMake files of the installed prefix do."""
    with example.Example("epoll") as epoll:
        epoll.cmake("service")


def bazel_builds_and_tests_it():
    """Takes the files of the workspace from the section "Bazel" of docs/embedding.md."""
    bazel = emulated.need("bazel")
    with example.Example("epoll") as epoll:
        with open(os.path.join(epoll.prefix, "share/doc/rdmaemu/embedding.md")) as page:
            files = re.findall(r"^```python\n# (WORKSPACE|BUILD).*?\n(.*?)^```$", page.read(),
                               re.MULTILINE | re.DOTALL)
        for name, text in files:
            with open(os.path.join(epoll.sources, name), "w") as file:
                file.write(text.replace('"DIR"', '"%s"' % epoll.prefix))
        offline = ["--override_repository=%s=%s" % (name, os.path.join(os.path.realpath(OFFLINE), name))
                   for name in ("rules_cc", "rules_java", "remote_coverage_tools")]
        shown = example.run(
            [bazel, "--batch", "--output_user_root=" + os.path.join(epoll.directory, "bazel"), "test",
             *offline, "--spawn_strategy=local", "--copt=-O0", "--test_output=all",
             "--test_filter=" + QUICK_TESTS, ":service_test"], epoll.sources, HOME=epoll.directory)
        if "[  PASSED  ]" not in shown:
            raise Failure(shown)


if __name__ == "__main__":
    sys.exit(emulated.run_cases("examples_epoll", [(case.__name__, case) for case in (
        make_builds_and_tests_it, cmake_builds_it, bazel_builds_and_tests_it)]))
