"""Builds and tests an example the way a user does. The example is copied from an installed prefix,
built with the prefix's files by make and by CMake, and tested on an emulated device inside its
test."""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                "tests", "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

BUILD_LIMIT_S = 600  # compilers are slow while other tests use the machine
RUN_LIMIT_S = 60


def run(argv, directory, limit_s=BUILD_LIMIT_S, status=0, **extra_env):
    """Runs a command that must end with the status; returns what it printed."""
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    env.update(extra_env)
    done = subprocess.run(argv, cwd=directory, env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s)
    if done.returncode != status:
        raise Failure("%s: status %d\n%s" % (" ".join(argv), done.returncode, done.stdout[-4000:]))
    return done.stdout


class Example:
    """A context manager that installs a prefix and copies the example from it; removes both at
    exit."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="rdmaemu-example-", dir="/tmp")
        self.prefix = os.path.join(self.directory, "prefix")
        self.sources = os.path.join(self.directory, self.name)
        run([os.path.realpath(emulated.RDMAEMU), "install", "--prefix", self.prefix], "/")
        shutil.copytree(os.path.join(self.prefix, "share/doc/rdmaemu/examples", self.name),
                        self.sources)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)

    def make(self, tests=None):
        """Builds the example's programs by make. `tests`: also builds its tests, and runs those of
        this filter of GoogleTest."""
        for program in ("make", "pkg-config", "g++"):
            emulated.need(program)
        shown = run(["make", "-j2", *(["test"] if tests else []), "all", "CXXFLAGS=-O0 -g1"],
                    self.sources, GTEST_FILTER=tests or "*",
                    PKG_CONFIG_PATH=os.path.join(self.prefix, "lib/pkgconfig"))
        if tests and "[  PASSED  ]" not in shown:
            raise Failure(shown)

    def cmake(self, target=None):
        """Builds the example by CMake and runs its tests, or builds one target of it."""
        for program in ("cmake", "make", "g++"):
            emulated.need(program)
        run(["cmake", "-B", "build", "-DCMAKE_PREFIX_PATH=" + self.prefix], self.sources)
        chosen = ["--target", target] if target else []
        run(["cmake", "--build", "build", "-j2", *chosen], self.sources)
        if not target:
            run(["ctest", "--test-dir", "build", "--output-on-failure"], self.sources)

    def run_programs(self, emulator, address, script):
        """Runs a shell script on an emulated host with that address; returns the script's output.
        The script reads the address from $ADDRESS."""
        rdmaemu = os.path.join(self.prefix, "bin/rdmaemu")
        done = subprocess.run(
            [rdmaemu, "run", "--address", address, "--", "sh", "-c", script],
            cwd=self.sources, env=dict(emulator.env, ADDRESS=address), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=RUN_LIMIT_S)
        if done.returncode != 0:
            raise Failure("%s: status %d\n%s" % (script, done.returncode, done.stdout))
        return done.stdout
