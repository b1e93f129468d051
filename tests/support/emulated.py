"""Emulated hosts for tests: a registry of their own, and programs on the hosts. Everything is
removed at the end. Results are written to Bazel's XML file, so that cases can be counted."""

import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import xml.sax.saxutils

ROCE_PORT = 4791
RDMAEMU = os.environ.get("RDMA_TEST_BINARY") or os.path.abspath("tools/cli/rdmaemu")
# In a sanitized build the libraries need the sanitizer's runtime, which other programs do not load.
# These programs' own leaks are not checked.
SANITIZER_RUNTIME = os.environ.get("RDMA_TEST_SANITIZER_RUNTIME")
# Programs run under the layer and write a trace of what they saw.
UNDER_LAYER = bool(os.environ.get("RDMA_TEST_LAYER"))
# Programs run with usage checks, whose findings are not judged.
CHECKS = bool(os.environ.get("RDMA_TEST_CHECKS"))


class Skip(Exception):
    """The machine cannot run this case. The text has the reason."""


class Failure(Exception):
    """The case failed. The text has the details."""


class Unsteady(Exception):
    """The case failed and then passed. The text has the details of the failure. This is reported
    but does not fail the test."""


_taken = []  # sockets whose names lock the resources of this process


def take(what):
    """Returns whether this process now owns the resource; other runs of these tests may be in
    progress. The name of a socket without a file belongs to its process until the process ends."""
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        one.bind("\0rdmaemu.test." + what)
    except OSError:
        one.close()
        return False
    _taken.append(one)
    return True


def free_addresses(count):
    """Returns unused loopback addresses that no other test takes. Their low 16 bits are LIDs."""
    for _ in range(1000):
        prefix = "127.%d.%d." % (random.randint(100, 254), random.randint(0, 190))
        addresses = [prefix + str(last) for last in range(1, count + 1)]
        if not take(prefix):
            continue
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in addresses]
        try:
            for one, address in zip(sockets, addresses):
                one.bind((address, ROCE_PORT))
            return addresses
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise Failure("no free loopback addresses")


def free_tcp_port():
    """Returns an unused port below the ephemeral ones that no other test takes."""
    for _ in range(1000):
        port = random.randint(20000, 32000)
        if not take("port.%d" % port):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            try:
                one.bind(("0.0.0.0", port))
                return port
            except OSError:
                continue
    raise Failure("no free TCP port")


class Program:
    """A running program whose output is collected. A test can wait for text in the output."""

    def __init__(self, argv, env):
        self.argv = argv
        self.process = subprocess.Popen(
            argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True)
        self.chunks = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        while True:
            chunk = os.read(self.process.stdout.fileno(), 65536)
            with self.changed:
                self.changed.notify_all()
                if not chunk:
                    return
                self.chunks.append(chunk)

    @property
    def output(self):
        return b"".join(self.chunks).decode(errors="replace")

    def wait_for_text(self, text, limit_s):
        until = time.monotonic() + limit_s
        with self.changed:
            while text not in self.output:
                left = until - time.monotonic()
                if left <= 0 or not self.reader.is_alive():
                    return text in self.output
                self.changed.wait(left)
        return True

    def wait(self, limit_s):
        """Returns the exit status; None when the program did not end in time and was ended. Returns
        0 for an rping that finished its work."""
        try:
            status = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.end()
            return None
        self.reader.join(10)
        return 0 if self.is_rpings_end(status) else status

    def is_rpings_end(self, status):
        """Returns whether rping finished. On any device, rping's main thread closes the channel
        that its other thread reads. If the other thread has just taken the last event and asks for
        the next one, it ends the program. A test checks rping's earlier work by its output. An rping
        that failed ends with the same status, and says so."""
        return (status == 255 and "rping" in self.argv and
                "rping client failed" not in self.output and
                "rdma_get_cm_event: Bad file descriptor" in self.output)

    def end(self):
        """Ends the program and the programs that it started: only its own session."""
        for sign in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            try:
                os.killpg(self.process.pid, sign)
            except ProcessLookupError:
                break
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                continue
        self.process.stdin.close()
        self.reader.join(10)

    def expect(self, *patterns):
        """Fails unless the output matches each pattern, by lines."""
        for pattern in patterns:
            if not re.search(pattern, self.output, re.MULTILINE):
                raise Failure("no sign of success (%s) in\n%s" % (pattern, self.describe()))

    def describe(self):
        text = self.output
        if len(text) > 20000:
            text = text[:10000] + "\n[...]\n" + text[-10000:]
        return "$ %s\n(status %s)\n%s" % (" ".join(self.argv), self.process.poll(), text)


class Emulator:
    """A registry of hosts. A context manager that removes everything at its end."""

    def __init__(self, prefix=()):
        # Not TEST_TMPDIR, because a Unix socket's path has at most 107 bytes.
        self.directory = tempfile.mkdtemp(prefix="rdmaemu-test-", dir="/tmp")
        self.env = dict(os.environ, RDMAEMU_DIR=self.directory)
        for name in ("RDMAEMU_HOST", "RDMAEMU_BIN", "LD_LIBRARY_PATH", "LD_PRELOAD"):
            self.env.pop(name, None)
        self.prefix = list(prefix)
        self.programs = []
        self.program_traces = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in reversed(self.programs):
            program.end()
        for host in self.hosts():
            self.rdmaemu("stop", host["name"])
        reports = self.sanitizer_reports()
        broken = self.broken_program_traces()
        shutil.rmtree(self.directory, ignore_errors=True)
        if broken:
            raise Failure(broken)
        if reports:
            raise Failure("a sanitizer's report in the log of a host:\n" + reports)

    def sanitizer_reports(self):
        """Returns the sanitizer's reports about the hosts, which write logs of their own."""
        reports = ""
        for name in sorted(os.listdir(self.directory)):
            if name.endswith(".log"):
                with open(os.path.join(self.directory, name), errors="replace") as log:
                    text = log.read()
                if "Sanitizer" in text or ": runtime error: " in text:
                    reports += "%s:\n%s\n" % (name, text)
        return reports

    def trace_option(self):
        """Of a program that runs under the layer."""
        if CHECKS:
            return ["--check"]
        if not UNDER_LAYER:
            return []
        self.program_traces.append(
            os.path.join(self.directory, "program-%d.jsonl" % len(self.program_traces)))
        return ["--program-trace", self.program_traces[-1]]

    def broken_program_traces(self):
        """What is wrong with the traces of programs that ran under the layer."""
        for path in filter(os.path.exists, self.program_traces):
            before = 0
            with open(path) as lines:
                for line in lines:
                    try:
                        record = json.loads(line)
                    except ValueError as error:
                        return "a line of a program trace: %s\n%s" % (error, line)
                    if record["time"] < before and record["kind"] not in ("fork", "lost"):
                        return "lines of a program trace are out of order: %s" % line
                    before = record["time"]
        return ""

    def rdmaemu(self, *arguments):
        return subprocess.run([*self.prefix, RDMAEMU, *arguments], env=self.env, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60)

    def hosts(self):
        result = self.rdmaemu("hosts", "--json")
        if result.returncode != 0:
            return []
        parsed = json.loads(result.stdout or "[]")
        return parsed["hosts"] if isinstance(parsed, dict) else parsed

    def host(self, name):
        for host in self.hosts():
            if host["name"] == name:
                return host
        return None

    def start(self, host, address, argv, options=(), env=None, prefix=()):
        """Starts a program on a host. The first program starts the host."""
        if SANITIZER_RUNTIME and "/" not in argv[0]:
            argv = ["env", "LD_PRELOAD=" + SANITIZER_RUNTIME, "ASAN_OPTIONS=detect_leaks=0", *argv]
        command = [*self.prefix, *prefix, RDMAEMU, "run", "--host", host, "--address", address,
                   *self.trace_option(), *options, "--", *argv]
        program = Program(command, dict(self.env, **(env or {})))
        self.programs.append(program)
        return program

    def start_outside(self, argv, env=None):
        """Starts a program that is on no host. It ends with the others."""
        program = Program(argv, dict(env or self.env))
        self.programs.append(program)
        return program

    def start_host(self, name, options, prefix=(), limit_s=30):
        """Starts a host that runs until it is stopped. Waits until it answers."""
        program = Program([*self.prefix, *prefix, RDMAEMU, "host", "--name", name, *options],
                          self.env)
        self.programs.append(program)
        until = time.monotonic() + limit_s
        while self.host(name) is None:
            if program.process.poll() is not None or time.monotonic() > until:
                raise Failure("the host did not start\n" + program.describe())
            time.sleep(0.02)
        return program

    def start_listening(self, host, address, argv, options=(), limit_s=30):
        """Starts a server and waits until its host's trace shows that it listens by rdma_cm."""
        trace = os.path.join(self.directory, host + ".trace")
        program = self.start(host, address, argv, [*options, "--trace", trace])
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            if os.path.exists(trace):
                with open(trace) as lines:
                    if any('"listen"' in line and '"errno":0' in line for line in lines):
                        return program
            if program.process.poll() is not None:
                raise Failure("the server ended before its client came\n" + program.describe())
            time.sleep(0.02)
        raise Failure("the server did not listen in %d s\n%s" % (limit_s, program.describe()))


def wait_for_calls(traces, call, count, limit_s=30):
    """Waits until the hosts' traces show `count` successful calls of that name."""
    until = time.monotonic() + limit_s
    while True:
        made = 0
        for trace in filter(os.path.exists, traces):
            with open(trace) as lines:
                made += sum('"%s"' % call in line and '"errno":0' in line for line in lines)
        if made >= count:
            return
        if time.monotonic() > until:
            raise Failure("%d of %d calls %s in %d s" % (made, count, call, limit_s))
        time.sleep(0.02)


def wait_for_tcp_listener(port, program, limit_s=30):
    """Waits until a process in the program's network namespace listens on a TCP port."""
    wanted = ":%04X" % port
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        for table in ("tcp", "tcp6"):
            try:
                with open("/proc/%d/net/%s" % (program.process.pid, table)) as text:
                    lines = text.read().splitlines()
            except OSError:  # the process has ended
                lines = []
            for fields in map(str.split, lines):
                if fields[1].endswith(wanted) and fields[3] == "0A":
                    return
        if program.process.poll() is not None:
            raise Failure("the server ended before its client came\n" + program.describe())
        time.sleep(0.05)
    raise Failure("nobody listens on port %d after %d s\n%s" % (port, limit_s, program.describe()))


def need(program):
    """Returns the path of a program, or raises Skip."""
    path = shutil.which(program)
    if path is None:
        raise Skip("%s is not installed" % program)
    return path


def run_case(name, function):
    begin = time.monotonic()
    kind, text = "passed", ""
    try:
        function()
    except Skip as skip:
        kind, text = "skipped", str(skip)
    except Unsteady as unsteady:
        kind, text = "unsteady", str(unsteady)
    except Exception as error:  # a broken case must not hide the others
        kind = "failed"
        text = str(error) if isinstance(error, Failure) else traceback.format_exc()
    return name, kind, text, time.monotonic() - begin


def run_cases(suite, cases, at_once=1):
    """Runs (name, function) pairs, `at_once` side by side. Prints the results, writes the XML, and
    returns the exit status. Cases that mostly wait can run side by side, because each has hosts of
    its own."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        for result in pool.map(lambda case: run_case(*case), cases):
            name, kind, text, seconds = result
            shown = "FAILED" if kind == "failed" else kind
            print("%s: %s (%.1f s)%s" % (name, shown, seconds, "\n" + text if text else ""))
            sys.stdout.flush()
            results.append(result)
    if os.environ.get("XML_OUTPUT_FILE"):
        write_xml(suite, results, os.environ["XML_OUTPUT_FILE"])
    return 1 if any(kind == "failed" for _, kind, _, _ in results) else 0


def write_xml(suite, results, path):
    """Writes JUnit's XML of (name, kind, text, seconds) rows. The kinds are passed, failed,
    skipped, differs and unsteady. The last two count as skipped: they are reported but fail
    nothing."""
    quote = xml.sax.saxutils.quoteattr

    def plain(text):
        return "".join(c if c in "\n\t" or " " <= c <= "~" else "?" for c in text)

    with open(path, "w") as out:
        out.write('<?xml version="1.0" encoding="UTF-8"?>\n<testsuites>\n')
        out.write("<testsuite name=%s tests=%s>\n" % (quote(suite), quote(str(len(results)))))
        for name, kind, text, seconds in results:
            out.write("<testcase classname=%s name=%s time=%s>" %
                      (quote(suite), quote(name), quote("%.3f" % seconds)))
            if kind in ("skipped", "differs", "unsteady"):
                out.write("<skipped message=%s/>" % quote(plain(text)))
            elif kind == "failed":
                out.write("<failure message=%s/>" % quote(plain(text)[:20000]))
            out.write("</testcase>\n")
        out.write("</testsuite>\n</testsuites>\n")
