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


# Files for tests of rdmaemu_test, beside those of the example.
PAIR_FILES = {
    "server.sh": "exec rdma_server\n",
    "client.sh": "exec rdma_client -s \"$1\"\n",
    "is_refused.sh": "test \"$1\" = 'a  b' && grep -q reject \"$2\" && ! rdma_client -s 127.0.1.1\n",
    "never.toml": "[[fault]]\nat = \"wc.recv\"\nnth = 20\nstatus = \"general_err\"\n",
    "refused.toml": "[[fault]]\nhost = \"server\"\nat = \"cm.req\"\nreject = 28\n",
}
PAIRS = """
rdmaemu_test(name = "connects_test", server = "server.sh", client = "client.sh",
             client_args = ["127.0.1.1"], port = 7471)
rdmaemu_test(name = "refused_test", server = "server.sh", client = "is_refused.sh",
             client_args = ["a  b", "$(location refused.toml)"], data = ["refused.toml"],
             scenario = "refused.toml", strict = True, clock = "virtual", server_stays = True)
rdmaemu_test(name = "never_test", server = "server.sh", client = "client.sh",
             client_args = ["127.0.1.1"], scenario = "never.toml", strict = True, report = False)
rdmaemu_test(name = "fails_test", server = "server.sh", client = "is_refused.sh", time_limit_s = 50)
"""
SOME_TESTS_FAILED = 3  # an exit status of Bazel


def bazel_builds_and_tests_it():
    """Takes the files of the workspace from the section "Bazel" of docs/embedding.md. Also tests the
    rule rdmaemu_test, because Bazel takes long to start."""
    bazel = emulated.need("bazel")
    emulated.need("rdma_server")
    with example.Example("epoll") as epoll:
        with open(os.path.join(epoll.prefix, "share/doc/rdmaemu/embedding.md")) as page:
            files = re.findall(r"^```python\n# (WORKSPACE|BUILD).*?\n(.*?)^```$", page.read(),
                               re.MULTILINE | re.DOTALL)
        for name, text in files:
            with open(os.path.join(epoll.sources, name), "w") as file:
                file.write(text.replace('"DIR"', '"%s"' % epoll.prefix))
                file.write(PAIRS if name == "BUILD" else "")
        for name, text in PAIR_FILES.items():
            with open(os.path.join(epoll.sources, name), "w") as file:
                file.write(text)
            os.chmod(file.name, 0o755)
        offline = ["--override_repository=%s=%s" % (name, os.path.join(os.path.realpath(OFFLINE), name))
                   for name in ("rules_cc", "rules_java", "remote_coverage_tools")]
        shown = example.run(
            [bazel, "--batch", "--output_user_root=" + os.path.join(epoll.directory, "bazel"), "test",
             *offline, "--spawn_strategy=local", "--copt=-O0", "--test_output=all", "--keep_going",
             "--test_filter=" + QUICK_TESTS, ":all"], epoll.sources, status=SOME_TESTS_FAILED,
            HOME=epoll.directory)
        results = dict(re.findall(r"^//:(\w+) +(?:\(cached\) )?(PASSED|FAILED)", shown, re.MULTILINE))
        if results != {"service_test": "PASSED", "asks_test": "PASSED", "connects_test": "PASSED",
                       "refused_test": "PASSED", "fails_test": "FAILED", "never_test": "FAILED"}:
            raise Failure("%s\n%s" % (results, shown))
        for said in ("[  PASSED  ]", "run-pair: the client ended with status 1", "HELLO\n",
                     "run-pair: a fault rule never fired",
                     "/rdmaemu-report; open its ladder.html"):
            if said not in shown:
                raise Failure("%r is not in: %s" % (said, shown))


if __name__ == "__main__":
    sys.exit(emulated.run_cases("examples_epoll", [(case.__name__, case) for case in (
        make_builds_and_tests_it, cmake_builds_it, bazel_builds_and_tests_it)]))
