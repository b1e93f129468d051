"""`rdmaemu install`: an installed tree works by itself, and can be installed again from there."""

import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip, free_addresses  # noqa: E402

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
    """A prefix into which a binary has installed its files. A context manager that removes it."""

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
                       "lib/rdmaemu/layer/libibverbs.so.1", "lib/rdmaemu/librdmaemu.so.1",
                       "include/rdmaemu/rdmaemu.h", "lib/pkgconfig/rdmaemu.pc",
                       "lib/cmake/rdmaemu/rdmaemu-config.cmake",
                       "share/doc/rdmaemu/examples/epoll/Makefile",
                       "share/doc/rdmaemu/examples/kv/Makefile", "share/man/man1/rdmaemu.1",
                       "share/man/man1/rdmaemu-run.1", "lib/python3/rdmaemu/__init__.py",
                       "share/doc/rdmaemu/examples/pyverbs/echo.py", "share/rdmaemu/run-pair",
                       "share/rdmaemu/rdmaemu_test.bzl"):
            check(wanted in listed, wanted + " is missing")
        for name in listed:
            mode = os.lstat(prefix.path(name)).st_mode
            check(stat.S_ISREG(mode) and mode & stat.S_IWUSR, "%s: %o" % (name, mode))


# The newest symbol version GLIBC_2.x that a file may need, so that a build on Debian 12 (glibc 2.36)
# runs on other distributions. The headers of a newer glibc name newer functions.
NEEDED_GLIBC = {"bin/rdmaemu": 35, "lib/rdmaemu/librdmaemu.so.1": 35,
                "lib/rdmaemu/libibverbs.so.1": 34, "lib/rdmaemu/librdmacm.so.1": 34,
                "lib/rdmaemu/layer/libibverbs.so.1": 34,
                "lib/rdmaemu/layer/librdmacm.so.1": 34,
                "lib/rdmaemu/layer/librdmaemu_checks.so": 35,
                "lib/rdmaemu/layer/librdmaemu_faults.so": 34, "lib/rdmaemu/librdmaemu-files.so": 34}
BUILT_WITH_GLIBC = 36


def no_file_needs_a_newer_glibc_than_documented():
    minor = int(platform.libc_ver()[1].split(".")[1])
    if minor > BUILT_WITH_GLIBC:
        raise Skip("built with glibc 2.%d; the limits are those of a build with glibc 2.%d" %
                   (minor, BUILT_WITH_GLIBC))
    with Prefix() as prefix:
        for name, limit in NEEDED_GLIBC.items():
            versions = run("readelf", "-V", "-W", prefix.path(name)).stdout
            needed = [int(each) for each in re.findall(r"Name: GLIBC_2[.](\d+)", versions)]
            check(needed and max(needed) <= limit, "%s needs GLIBC_2.%s, not at most GLIBC_2.%d" %
                  (name, max(needed, default="?"), limit))


def a_program_runs_on_the_installed_libraries():
    with Prefix() as prefix, Emulator() as emulator:
        env = dict(emulator.env)
        libraries = prefix.path("lib/rdmaemu")
        shown = run(prefix.path("bin/rdmaemu"), "run", "--address", free_addresses(1)[0], "--", "sh",
                    "-c", "echo $LD_LIBRARY_PATH; ibv_devinfo", env=env)
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
                                         free_addresses(1)[0], "--", "sh", "-c", "echo up; exec cat"])
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


def subcommands(*of):
    shown = run(BINARY, *of, "--help").stdout
    _, _, listed = shown.partition("Subcommands:")
    return re.findall(r"^  ([a-z-]+) +[A-Z]", listed, re.MULTILINE)


def every_command_has_a_man_page():
    with Prefix() as prefix:
        commands, below = subcommands(), 0
        check(len(commands) >= 10, commands)
        for command in commands:
            with open(prefix.path("share/man/man1/rdmaemu-%s.1" % command)) as page:
                # The example's lines are commands and must stay separate lines.
                check(re.search(r'^\.SS "Example.*\n\.IP\n\.nf$', page.read(), re.MULTILINE), command)
            for one in subcommands(command):
                below += 1
                with open(prefix.path("share/man/man1/rdmaemu-%s-%s.1" % (command, one))) as page:
                    # man finds the page by the name before the dash.
                    check("\nrdmaemu-%s-%s \\- " % (command, one) in page.read(), command + " " + one)
        check(below >= 15, below)


def every_document_that_is_named_is_there():
    """Checks the command's help, man pages, headers and documents, and the links between them."""
    with Prefix() as prefix:
        named, broken = set(re.findall(r"docs/([a-z]+\.md)", run(BINARY, "run", "--help").stdout)), []
        for name in files_below(prefix.directory):
            if name.startswith(("bin/", "lib/rdmaemu/")):
                continue
            with open(prefix.path(name)) as file:
                text = file.read()
            named.update(re.findall(r"\bdocs?/(?:rdmaemu/)?([a-z]+\.md)", text))
            if name.startswith("share/man/"):
                check(not re.search(r"\bdocs/[a-z]", text), name + " names docs/")
            links = re.findall(r"^#:schema (\S+)", text)
            if name.endswith(".md"):
                links += [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
            broken += [(name, link) for link in links if not os.path.exists(
                os.path.join(prefix.directory, os.path.dirname(name), link))]
        check({"faults.md", "time.md", "profiles.md", "embedding.md"} <= named, str(named))
        missing = [name for name in named if not os.path.exists(prefix.path("share/doc/rdmaemu", name))]
        check(not missing and not broken, "missing: %s, broken links: %s" % (missing, broken))


# This program calls neither verbs nor RDMA CM.
OPENS_A_HOST = """
#include <rdmaemu/rdmaemu.h>
#include <stdio.h>
int main(void) {
  const int error = rdmaemu_open(0);
  if (error != 0) puts(rdmaemu_last_error());
  return error != 0;
}
"""


def pkg_config_links_what_a_program_needs_that_calls_no_verbs():
    for program in ("pkg-config", "gcc"):
        emulated.need(program)
    with Prefix() as prefix, tempfile.TemporaryDirectory() as directory:
        env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        env["PKG_CONFIG_PATH"] = prefix.path("lib/pkgconfig")
        flags = run("pkg-config", "--cflags", "--libs", "rdmaemu", env=env)
        check(flags.returncode == 0, flags.stdout)
        source, program = os.path.join(directory, "opens.c"), os.path.join(directory, "opens")
        with open(source, "w") as file:
            file.write(OPENS_A_HOST)
        for linked in ("-Wl,--as-needed", "-Wl,--no-as-needed"):
            made = run("gcc", linked, source, "-o", program, *flags.stdout.split(), env=env)
            check(made.returncode == 0, made.stdout)
            opened = run(program, env=env)
            check(opened.returncode == 0, opened.stdout)


# The scenario of the tests in PAIRS. `lucky` fires on one of its two hosts.
PAIR_RULES = """
[[fault]]
name = "lucky"
at = "cm.req"
delay_ms = 1
"""
NEVER = """
[[fault]]
host = "client"
name = "unlucky"
at = "wc.recv"
nth = 20
status = "general_err"
"""

# Tests of rdmaemu_add_test: name, arguments, and whether the test passes.
PAIRS = (
    ("both", "SERVER rdma_server CLIENT rdma_client -s 127.0.1.1 PORT 7471 TIMEOUT 50", True),
    ("client", "SERVER rdma_server CLIENT sh -c \"exit 3\"", False),
    ("server", "SERVER sh -c \"rdma_server && exit 3\" CLIENT rdma_client -s 127.0.1.1", False),
    ("absent", "SERVER false CLIENT true", False),
    ("late", "SERVER sh -c \"rdma_server && exec sleep 1000\" CLIENT rdma_client -s 127.0.1.1 "
     "TIMEOUT 3", False),
    ("stays", "SERVER sh -c \"rdma_server && exec sleep 1000\" CLIENT rdma_client -s 127.0.1.1 "
     "SERVER_STAYS CLOCK virtual", True),
    ("leaves", "SERVER sh -c \"sleep 1000 & rdma_server\" CLIENT rdma_client -s 127.0.1.1", True),
    ("fires", "SERVER rdma_server CLIENT rdma_client -s 127.0.1.1 SCENARIO fires.toml STRICT "
     "REPORT reports", True),
    ("warns", "SERVER rdma_server CLIENT rdma_client -s 127.0.1.1 SCENARIO never.toml", True),
    ("strict", "SERVER rdma_server CLIENT rdma_client -s 127.0.1.1 SCENARIO never.toml STRICT "
     "REPORT reports", False))


def processes_with(text):
    """Returns the commands of processes whose environment has the text."""
    found = []
    for path in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % path, "rb") as environment:
                if text.encode() in environment.read():
                    with open("/proc/%s/cmdline" % path) as command:
                        found.append(command.read().replace("\0", " "))
        except OSError:  # the process has ended, or belongs to another user
            pass
    return found


def a_ctest_test_of_two_programs_fails_with_either_and_leaves_nothing():
    for program in ("cmake", "rdma_server", "rdma_client"):
        emulated.need(program)
    with Prefix() as prefix, tempfile.TemporaryDirectory(dir="/tmp") as directory:
        temporary, hosts, build = (os.path.join(directory, name) for name in ("t", "h", "build"))
        os.mkdir(temporary)
        os.mkdir(hosts)
        with open(os.path.join(directory, "CMakeLists.txt"), "w") as file:
            file.write("cmake_minimum_required(VERSION 3.18)\nproject(pairs NONE)\nenable_testing()\n"
                       "find_package(rdmaemu REQUIRED)\n")
            file.writelines("rdmaemu_add_test(NAME %s %s)\n" % each[:2] for each in PAIRS)
        for name, rules in (("fires.toml", PAIR_RULES), ("never.toml", PAIR_RULES + NEVER)):
            with open(os.path.join(directory, name), "w") as file:
                file.write(rules)
        env = dict(os.environ, TMPDIR=temporary, RDMAEMU_DIR=hosts)
        made = run("cmake", "-S", directory, "-B", build, "-DCMAKE_PREFIX_PATH=" + prefix.directory,
                   env=env)
        check(made.returncode == 0 and "Warning" not in made.stdout, made.stdout)
        done = run("ctest", "--test-dir", build, "-j", str(len(PAIRS)), "--output-on-failure", env=env)
        results = dict(re.findall(r"Test +#\d+: (\w+) [.* ]*(Passed|Failed)", done.stdout))
        for name, _, passes in PAIRS:
            check(results.get(name) == ("Passed" if passes else "Failed"), name + ": " + done.stdout)
        for said in ("the client ended with status 3", "the server ended with status 3",
                     "the server ended with status 1 before it listened",
                     " within 3 s",  # of `late`
                     'error: host client: rule "unlucky" never fired; it matched ',
                     "run-pair: a fault rule never fired"):
            check(said in done.stdout, said + " is not in: " + done.stdout)
        check("the seed of host run-pair" not in done.stdout, done.stdout)
        # CTest prints the output of failed tests only. Its log has the others.
        with open(os.path.join(build, "Testing", "Temporary", "LastTest.log")) as file:
            log = file.read()
        check('warning: host client: rule "unlucky" never fired; it matched ' in log, log)
        check('"lucky"' not in log, log)
        # Only a test that failed leaves a report.
        reports = os.path.join(build, "reports")
        check(os.listdir(reports) == ["strict"], os.listdir(reports))
        for part in ("ladder.html", "server/rules.json", "client/rules.json", "client/trace.jsonl"):
            check(os.path.isfile(os.path.join(reports, "strict", part)), part + " is missing")
        check(not os.listdir(temporary), os.listdir(temporary))
        check(not os.listdir(hosts), os.listdir(hosts))
        check(not processes_with("TMPDIR=" + temporary), processes_with("TMPDIR=" + temporary))


def wait_until(condition, limit_s=60):
    """Returns whether the condition held in time."""
    until = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def a_signal_ends_a_pair_and_its_programs():
    with Prefix() as prefix, tempfile.TemporaryDirectory(dir="/tmp") as directory:
        pair = subprocess.Popen(
            ["bash", prefix.path("share/rdmaemu/run-pair"), "--", "sleep", "1000", ":::", "true"],
            env=dict(os.environ, RDMAEMU_DIR=directory, TMPDIR=directory), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        mine = "TMPDIR=" + directory
        check(wait_until(
            lambda: [each for each in processes_with(mine) if each.startswith("sleep 1000")]),
              "the server did not start")
        pair.terminate()
        check(pair.wait(60) in (128 + 15, -15), pair.returncode)
        check(wait_until(lambda: not processes_with(mine)), processes_with(mine))


CASES = [all_files_are_there_and_listed, no_file_needs_a_newer_glibc_than_documented,
         a_program_runs_on_the_installed_libraries,
         an_installed_tree_installs_itself_elsewhere, installing_again_replaces_what_is_in_use,
         what_cannot_be_written_is_said, every_command_has_a_man_page,
         every_document_that_is_named_is_there,
         pkg_config_links_what_a_program_needs_that_calls_no_verbs,
         a_ctest_test_of_two_programs_fails_with_either_and_leaves_nothing,
         a_signal_ends_a_pair_and_its_programs]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("install", [(case.__name__, case) for case in CASES]))
