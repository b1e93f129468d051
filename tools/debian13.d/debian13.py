"""Runs the RDMA programs of Debian 13 on rdmaemu's libibverbs.so.1 and librdmacm.so.1.

This command downloads packages of Debian 13 (trixie) into a cache and unpacks them into a directory,
without installing them. It installs rdmaemu into the same directory. Debian 13's own loader and C
library then run Debian 13's programs on rdmaemu's libraries, on emulated hosts: each pair on one host
and on two. Each line of the output is one case. Every provider library of the packages is loaded, too.
The command needs no root, and uses the network for the download alone.
"""

import argparse
import collections
import contextlib
import fcntl
import fnmatch
import functools
import json
import os
import platform
import shutil
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "apps"))
import loading  # noqa: E402
import packages_root  # noqa: E402
import emulated  # noqa: E402
import multicast  # noqa: E402
import programs  # noqa: E402

SUITE = "trixie"
INSTALL_LIMIT_S = 1800  # a first run of tools/rdmaemu builds everything
EPILOG = """Status: 0 when no case failed, 1 when a case failed, 2 when the command could not begin.

Examples:
  tools/debian13
  tools/debian13 --list
  tools/debian13 --rdmaemu PREFIX/bin/rdmaemu --json results.json 'rping.*' 'provider.*'
  tools/debian13 --all --markdown > docs/debian13.md
"""
# The cases of tests/apps that run without --all, by their names there.
CHOSEN = (
    "rping", "ucmatose", "udaddy", "cmtime", "mckey",
    "ibv_devices", "ibv_devinfo",
    "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong",
    "ib_write_bw_64KiB", "ib_send_lat_2B", "ib_read_bw_64KiB", "ib_send_bw_64KiB_R")

HEAD = """# Debian 13's programs on rdmaemu's libraries

Look up here which programs of Debian {suite} ran on rdmaemu's `libibverbs.so.1` and `librdmacm.so.1`.
The libraries were built on {release}.
The programs used {suite}'s own loader and C library.

To repeat the run, type `tools/debian13`. To make this page again, type
`tools/debian13 --all --markdown > docs/debian13.md`. The command downloads the packages into a cache,
unpacks them there and installs nothing.

- [Cases](#cases)
- [Results](#results)

## Cases

- **one_host**: both programs run on one emulated host.
- **two_hosts**, **three_hosts**: the programs run on different hosts, which exchange RoCEv2 packets.
- **loader**: the loader resolves each symbol of all programs of the packages.
- **provider**: `ibv_devices` runs with the provider library in its process. The loader has bound each
  name that the library imports to rdmaemu's `libibverbs.so.1` before (`LD_BIND_NOW=1`). The table has
  the number of names of each version node. `tools/debian13 --suite forky` does the same with
  rdma-core 65, whose private node is `IBVERBS_PRIVATE_65`.
- A program's cases are those of `tests/apps`, with the same signs of success.

## Results

"""

Result = collections.namedtuple("Result", "name kind text seconds")


# ---- results (pure) ----

def base_name(name):
    """Returns the program's case without the hosts: "rping" of "rping.two_hosts"."""
    return name.partition(".")[0]


def selected(names, chosen, patterns, everything):
    """Returns the names to run. The patterns replace the choice."""
    if patterns:
        return [name for name in names if any(fnmatch.fnmatch(name, each) for each in patterns)]
    return [name for name in names
            if everything or base_name(name) in (*chosen, "loader", "provider")]


def line(result):
    """Returns one line for a result. What went wrong follows the line of a failure."""
    if result.kind == "skipped":
        return "%s: skipped: %s" % (result.name, result.text)
    if result.kind == "passed":
        return "%s: passed (%.1f s)%s" % (result.name, result.seconds,
                                          ": " + result.text if result.text else "")
    return "%s: FAILED (%.1f s)\n%s" % (result.name, result.seconds, result.text)


def as_json(results, suite, versions):
    return json.dumps({
        "suite": suite, "packages": versions,
        "results": [{"name": each.name, "result": each.kind, "seconds": round(each.seconds, 3),
                     "text": each.text} for each in results]}, indent=1) + "\n"


def summary(results):
    counts = collections.Counter(each.kind for each in results)
    return "%d passed, %d failed, %d skipped" % (counts["passed"], counts["failed"], counts["skipped"])


def page(results, suite, release, versions):
    rows = collections.OrderedDict()
    for each in results:
        case, _, where = each.name.partition(".")
        key = each.name if case in ("loader", "provider") or not where else case
        rows.setdefault(key, []).append((where if key == case and where else "", each))
    shown = {"passed": "passed", "failed": "FAILED"}
    wanted = ("libc6", "libibverbs1", "librdmacm1t64", "librdmacm1", "perftest")
    text = HEAD.format(suite=suite, release=release)
    text += "Packages: " + ", ".join("%s %s" % (name, versions[name])
                                     for name in wanted if name in versions) + ".\n"
    text += "Result: %s.\n\n| case | result |\n|---|---|\n" % summary(results)
    for name, parts in rows.items():
        cells = []
        for where, each in parts:
            cell = shown.get(each.kind, "skipped: " + each.text)
            if each.kind == "passed" and each.text:
                cell += ": " + each.text
            cells.append((where + ": " if where else "") + cell)
        text += "| `%s` | %s |\n" % (name, "; ".join(cells))
    return text


# ---- the cases ----

def needed(root, program):
    """Returns the path of a program of the root. A case never runs the machine's own program."""
    path = os.path.join(root.programs, program)
    if not os.path.exists(path):
        raise emulated.Skip("the packages have no %s" % program)
    return path


def hosted_cases(root):
    """Returns (name, function) of the cases of tests/apps, which look for programs in PATH."""
    emulated.need = functools.partial(needed, root)
    pairs = [*programs.rdmacm_utils(), programs.many_connections()[0], *programs.pingpongs(),
             *programs.perftest(by_cm=False), *programs.perftest(by_cm=True)]
    cases = [each for each in programs.devices() if each[0] != "provider_libraries"]
    cases += [("%s.%s" % (pair.name, where), functools.partial(pair.run, hosts))
              for pair in pairs for hosts, where in ((1, "one_host"), (2, "two_hosts"))]
    return cases + [("mckey." + where, functools.partial(multicast.mckey, hosts))
                    for hosts, where in ((1, "one_host"), (3, "three_hosts"))]


def all_cases(root):
    return [("loader.programs", lambda: loading.programs(root)), *hosted_cases(root),
            *loading.providers(root)]


def run(name, function):
    """Runs one case. A case's function may return a text for its line."""
    told = []
    _, kind, text, seconds = emulated.run_case(name, lambda: told.append(function()))
    return Result(name, kind, text or (told and told[0]) or "", seconds)


def install(root, rdmaemu):
    """Installs rdmaemu into the root, and writes the programs' wrappers."""
    shutil.rmtree(root.prefix, ignore_errors=True)
    try:
        done = subprocess.run([rdmaemu, "install", "--prefix", root.prefix], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=INSTALL_LIMIT_S)
        failed, told = done.returncode != 0, done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        failed, told = True, str(error)
    if failed or not os.path.exists(os.path.join(root.ours, "libibverbs.so.1")):
        raise packages_root.Problem("`%s install --prefix %s` installed no libibverbs.so.1; name a "
                                    "command that can install itself with --rdmaemu:\n%s" % (
                                        rdmaemu, root.prefix, told))
    root.write_wrappers()


def parsed_options():
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser = argparse.ArgumentParser(
        prog="tools/debian13", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=__doc__, epilog=EPILOG)
    parser.add_argument("cases", nargs="*", metavar="CASE",
                        help="run the cases of these names only; patterns with * and ?")
    parser.add_argument("--all", action="store_true",
                        help="run every case of tests/apps (default: one or two of each program)")
    parser.add_argument("--list", action="store_true", help="print the names of the cases and end")
    parser.add_argument("--rdmaemu", default=os.path.join(ROOT, "tools", "rdmaemu"),
                        help="the command that is installed and run (default: this checkout's)")
    parser.add_argument("--json", metavar="FILE", help="write the results to FILE, too")
    parser.add_argument("--markdown", action="store_true",
                        help="print a page at the end; the lines of the cases go to stderr")
    parser.add_argument("--refresh", action="store_true",
                        help="download and unpack the packages again")
    parser.add_argument("--suite", default=SUITE, help="another release (default: %(default)s)")
    parser.add_argument("--mirror", metavar="URL", help="archive (default: the machine's)")
    parser.add_argument("--keyring", metavar="FILE", help="its keys (default: the machine's)")
    parser.add_argument("--cache", default=os.path.join(caches, "rdmaemu", "debian13"),
                        help="directory of downloads; may be deleted (default: %(default)s)")
    return parser.parse_args()


def environment(root):
    """Makes the programs of the root the first in PATH, and the rdmaemu in the root the one to run.
    The caller's own preloads and library paths are no part of a case."""
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_BIND_NOW", "LD_DEBUG"):
        os.environ.pop(name, None)
    os.environ["PATH"] = "%s:%s" % (root.programs, os.environ["PATH"])
    emulated.RDMAEMU = os.path.join(root.prefix, "bin", "rdmaemu")


def ended(*_):
    sys.exit("error: a signal ended tools/debian13")


def main():
    options = parsed_options()
    # A signal then ends the hosts and programs of the running case, too.
    signal.signal(signal.SIGTERM, ended)
    directory = os.path.join(os.path.abspath(options.cache), options.suite)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another tools/debian13 uses %s; waiting for its end" % directory, file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            root = packages_root.prepare(directory, options.suite, options.mirror, options.keyring,
                                         options.refresh)
            install(root, options.rdmaemu)
        except packages_root.Problem as problem:
            print("error: %s" % problem, file=sys.stderr)
            return 2
        return run_all(options, root)


def run_all(options, root):
    environment(root)
    cases = all_cases(root)
    if options.list:
        print("\n".join(name for name, _ in cases))
        return 0
    names = selected([name for name, _ in cases], CHOSEN, options.cases, options.all)
    if not names:
        print("error: no case has the name %s; see tools/debian13 --list" % " or ".join(options.cases),
              file=sys.stderr)
        return 2
    results, out = [], sys.stderr if options.markdown else sys.stdout
    for name, function in cases:
        if name in names:
            with contextlib.redirect_stdout(out):  # tests/apps prints notes of its own
                results.append(run(name, function))
            print(line(results[-1]), file=out, flush=True)
    print(summary(results), file=out)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(as_json(results, options.suite, root.versions))
    if options.markdown:
        release = platform.freedesktop_os_release()["PRETTY_NAME"]
        print(page(results, options.suite, release, root.versions), end="")
    return 1 if any(each.kind == "failed" for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
