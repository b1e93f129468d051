"""Tests the Python package as a user installs it: below a prefix, imported by PYTHONPATH, with
pytest on embedded hosts and on a host process, and with Debian's pyverbs."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip, free_addresses  # noqa: E402

LIMIT_S = 300
HERE = os.path.dirname(os.path.realpath(__file__))


def check(holds, text):
    if not holds:
        raise Failure(text)


class Prefix:
    """An installed rdmaemu, and an otherwise empty working directory."""

    def __enter__(self):
        for module in ("pytest", "pyverbs"):
            if importlib.util.find_spec(module) is None:
                raise Skip("python3-%s is not installed" % module)
        self.root = tempfile.mkdtemp(prefix="rdmaemu-python-", dir="/tmp")
        self.prefix, self.directory = os.path.join(self.root, "prefix"), os.path.join(self.root, "run")
        os.mkdir(self.directory)
        installed = subprocess.run(
            [os.path.realpath(emulated.RDMAEMU), "install", "--prefix", self.prefix], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
        check(installed.returncode == 0, installed.stdout)
        packages = os.path.join(self.prefix, "lib/python3")
        check("export PYTHONPATH=%s" % packages in installed.stdout, installed.stdout)
        self.env = {key: value for key, value in os.environ.items()
                    if key not in ("LD_LIBRARY_PATH", "LD_PRELOAD", "XML_OUTPUT_FILE")}
        self.env.update(PYTHONPATH=packages, RDMAEMU_TEST_PREFIX=self.prefix,
                        PYTHONDONTWRITEBYTECODE="1")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.root, ignore_errors=True)

    def copy(self, *paths):
        for path in paths:
            shutil.copy(path, self.directory)

    def pytest(self, *command, env=None, skipped=0):
        """Runs pytest in the directory. All collected tests must pass, except `skipped` of them."""
        done = subprocess.run([*command, "-p", "no:cacheprovider", "-q", "-rs", "."], text=True,
                              cwd=self.directory, env=dict(self.env, **(env or {})),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S)
        count = re.search(r"^\d+ passed.*", done.stdout, re.MULTILINE)
        told = re.search(r"(\d+) skipped", count.group()) if count else None
        check(done.returncode == 0 and count and int(told.group(1) if told else 0) == skipped,
              "status %d\n%s" % (done.returncode, done.stdout))

    def copy_example(self):
        example = os.path.join(self.prefix, "share/doc/rdmaemu/examples/pyverbs")
        self.copy(*(os.path.join(example, name) for name in os.listdir(example)))

    def on_host_process(self, emulator, clock, *arguments, **expected):
        self.pytest(os.path.join(self.prefix, "bin/rdmaemu"), "run", "--host", "a", "--clock", clock,
                    "--address", free_addresses(1)[0], "--", sys.executable, "-m", "pytest",
                    *arguments, env={"RDMAEMU_BACKEND": "host", "RDMAEMU_DIR": emulator.directory},
                    **expected)


def the_wrapper_does_what_the_header_says():
    with Prefix() as prefix:
        prefix.copy(*(os.path.join(HERE, name) for name in os.listdir(HERE)
                      if name.startswith("test_") or name == "conftest.py"))
        prefix.pytest(sys.executable, "-m", "rdmaemu", "pytest")


def the_example_with_pyverbs_passes():
    with Prefix() as prefix:
        prefix.copy_example()
        prefix.pytest(sys.executable, "-m", "rdmaemu", "pytest")


def the_example_passes_on_a_host_process():
    with Prefix() as prefix, Emulator() as emulator:
        prefix.copy_example()
        # Selects the tests without pauses of the client, which are real there. A host process has
        # no second machine.
        prefix.on_host_process(emulator, "virtual", "-k", "echoes or _lost or late or machine",
                               skipped=1)


def a_client_of_a_host_process_uses_its_rules_and_time():
    with Prefix() as prefix, Emulator() as emulator:
        shutil.copy(os.path.join(HERE, "host_process.py"),
                    os.path.join(prefix.directory, "test_host_process.py"))
        prefix.on_host_process(emulator, "manual")


if __name__ == "__main__":
    sys.exit(emulated.run_cases("python", [(case.__name__, case) for case in (
        the_wrapper_does_what_the_header_says, the_example_with_pyverbs_passes,
        the_example_passes_on_a_host_process,
        a_client_of_a_host_process_uses_its_rules_and_time)]))
