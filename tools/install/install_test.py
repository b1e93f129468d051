"""`rdmaemu install`: what lands below a prefix works there by itself, and can be installed from there."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

BINARY = os.path.realpath(emulated.RDMAEMU)


def check(holds, text):
    if not holds:
        raise Failure(text)


def run(*argv, env=None):
    return subprocess.run(argv, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)


def files_below(directory):
    return sorted(os.path.relpath(os.path.join(at, name), directory)
                  for at, _, names in os.walk(directory) for name in names)


class Prefix:
    """A directory into which a binary has installed; a context manager that removes it."""

    def __init__(self, binary=BINARY):
        self.binary = binary

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="rdmaemu-prefix-", dir="/tmp")
        done = run(self.binary, "install", "--prefix", self.directory)
        check(done.returncode == 0, done.stdout)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.directory, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.directory, *parts)


def all_files_are_there_and_listed():
    with Prefix() as prefix:
        with open(prefix.path("share/rdmaemu/files")) as manifest:
            listed = manifest.read().splitlines()
        check(listed == files_below(prefix.directory), "%s\n%s" % (listed, files_below(
            prefix.directory)))
        for wanted in ("bin/rdmaemu", "lib/rdmaemu/libibverbs.so.1", "lib/rdmaemu/librdmacm.so.1",
                       "lib/rdmaemu/librdmaemu_layer.so", "lib/rdmaemu/librdmaemu.so.1",
                       "include/rdmaemu/rdmaemu.h", "lib/pkgconfig/rdmaemu.pc",
                       "lib/cmake/rdmaemu/rdmaemu-config.cmake",
                       "share/doc/rdmaemu/examples/kv/Makefile", "share/man/man1/rdmaemu.1",
                       "share/man/man1/rdmaemu-run.1"):
            check(wanted in listed, wanted + " is missing")
        for name in listed:
            mode = os.lstat(prefix.path(name)).st_mode
            check(stat.S_ISREG(mode) and mode & stat.S_IWUSR, "%s: %o" % (name, mode))


def a_program_runs_on_the_installed_libraries():
    with Prefix() as prefix, Emulator() as emulator:
        env = dict(emulator.env)
        libraries = prefix.path("lib/rdmaemu")
        shown = run(prefix.path("bin/rdmaemu"), "run", "--address", "127.76.0.1", "--", "sh", "-c",
                    "echo $LD_LIBRARY_PATH; ibv_devinfo", env=env)
        check(shown.returncode == 0 and shown.stdout.startswith(libraries + "\n")
              and "PORT_ACTIVE" in shown.stdout, shown.stdout)


def an_installed_tree_installs_itself_elsewhere():
    with Prefix() as first, Prefix(first.path("bin/rdmaemu")) as second:
        check(files_below(first.directory) == files_below(second.directory), "other files")
        again = run(first.path("bin/rdmaemu"), "install", "--prefix", first.directory)
        check(again.returncode == 2 and "already" in again.stdout, again.stdout)


def installing_again_replaces_what_is_in_use():
    with Prefix() as prefix, Emulator() as emulator:
        holder = emulator.start_outside([prefix.path("bin/rdmaemu"), "run", "--address",
                                         "127.76.0.2", "--", "sh", "-c", "echo up; exec cat"])
        check(holder.wait_for_text("up\n", 30), holder.describe())
        again = run(BINARY, "install", "--prefix", prefix.directory)
        check(again.returncode == 0, again.stdout)
        check(not [name for name in files_below(prefix.directory) if ".new." in name], "leftovers")


def what_cannot_be_written_is_said():
    with tempfile.NamedTemporaryFile() as file:
        done = run(BINARY, "install", "--prefix", file.name)
        check(done.returncode == 1 and done.stdout.startswith("error: cannot write " + file.name),
              done.stdout)
    done = run(BINARY, "install")
    check(done.returncode == 2 and "--prefix" in done.stdout, done.stdout)


def every_command_has_a_man_page():
    with Prefix() as prefix:
        shown = run(BINARY, "--help").stdout
        commands = re.findall(r"^  ([a-z]+) +[A-Z]", shown[shown.index("Subcommands:"):], re.MULTILINE)
        check(len(commands) >= 10, shown)
        for command in commands:
            with open(prefix.path("share/man/man1/rdmaemu-%s.1" % command)) as page:
                # Its lines are commands, and stay lines.
                check(re.search(r'^\.SS "Example.*\n\.IP\n\.nf$', page.read(), re.MULTILINE), command)


CASES = [all_files_are_there_and_listed, a_program_runs_on_the_installed_libraries,
         an_installed_tree_installs_itself_elsewhere, installing_again_replaces_what_is_in_use,
         what_cannot_be_written_is_said, every_command_has_a_man_page]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("install", [(case.__name__, case) for case in CASES]))
