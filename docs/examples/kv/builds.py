"""The example as a user has it: copied out of an installed prefix, built by make and by CMake with
what the prefix brings, and tested on an emulated device inside it."""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..",
                                "tests", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

BUILD_LIMIT_S = 600  # for compilers on a machine that is busy with other tests


def run(argv, directory, **extra_env):
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    env.update(extra_env)
    done = subprocess.run(argv, cwd=directory, env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BUILD_LIMIT_S)
    if done.returncode != 0:
        raise Failure("%s:\n%s" % (" ".join(argv), done.stdout[-4000:]))
    return done.stdout


class Example:
    """A prefix, and the example copied out of it."""

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="rdmaemu-example-", dir="/tmp")
        self.prefix = os.path.join(self.directory, "prefix")
        self.sources = os.path.join(self.directory, "kv")
        run([os.path.realpath(emulated.RDMAEMU), "install", "--prefix", self.prefix], "/")
        shutil.copytree(os.path.join(self.prefix, "share/doc/rdmaemu/examples/kv"), self.sources)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)


def make_builds_and_tests_it():
    for program in ("make", "pkg-config", "g++"):
        emulated.need(program)
    with Example() as example, Emulator() as emulator:
        shown = run(["make", "-j2", "test", "all", "CXXFLAGS=-O0"], example.sources,
                    PKG_CONFIG_PATH=os.path.join(example.prefix, "lib/pkgconfig"))
        if "[  PASSED  ]" not in shown:
            raise Failure(shown)
        # The programs know nothing of the emulator, and run on it all the same.
        rdmaemu = os.path.join(example.prefix, "bin/rdmaemu")
        address = emulated.free_addresses(1)[0]
        script = (": >port; ./kv_server 0 >>port & server=$!; "
                  "while ! grep -q port port; do sleep 0.05; done; "
                  "port=$(cut -d' ' -f2 port); "
                  "./kv_client %s $port put name value && ./kv_client %s $port get name; "
                  "result=$?; kill $server; exit $result" % (address, address))
        shown = subprocess.run(
            [rdmaemu, "run", "--address", address, "--", "sh", "-c", script],
            cwd=example.sources, env=emulator.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        if shown.returncode != 0 or shown.stdout != "value\n":
            raise Failure("%d: %s" % (shown.returncode, shown.stdout))


def cmake_builds_and_tests_it():
    for program in ("cmake", "make", "g++"):
        emulated.need(program)
    with Example() as example:
        run(["cmake", "-B", "build", "-DCMAKE_PREFIX_PATH=" + example.prefix], example.sources)
        run(["cmake", "--build", "build", "-j2"], example.sources)
        run(["ctest", "--test-dir", "build", "--output-on-failure"], example.sources)


if __name__ == "__main__":
    sys.exit(emulated.run_cases("examples_kv", [(case.__name__, case) for case in (
        make_builds_and_tests_it, cmake_builds_and_tests_it)]))
