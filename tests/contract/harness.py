"""Runs a contract test binary and follows it test by test. Each test has a time-out of its own. A
test that hangs or crashes the program is reported by name, and the others continue."""

import json
import os
import re
import signal
import subprocess
import threading
import time

LIMIT_S = 60  # for one test; a backend's slow tests get more
KILL_LIMIT_S = 10
MARK = re.compile(r"^\[ *(RUN|OK|FAILED|SKIPPED) *\] (\S+?\.\S+?)(?:,.*)?(?: \(\d+ ms\))?$")
EVENT = "@event "  # a line of tests/contract/support/record.cc
TEXT_LIMIT = 20000  # of one test's output; the rest is dropped


class Stuck(Exception):
    """A program could not be ended, because its kernel or its host blocks it."""


class Result:
    def __init__(self, name, kind, text="", seconds=0.0, events=()):
        self.name = name
        self.kind = kind  # passed, failed, skipped
        self.text = text
        self.seconds = seconds
        self.events = list(events)


def names_in(listing):
    """Returns the tests of a --gtest_list_tests output."""
    names, suite = [], ""
    for line in listing.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            names.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return names


def list_tests(binary, env, pattern="*"):
    done = subprocess.run([binary, "--gtest_list_tests", "--gtest_filter=" + pattern], env=env,
                          text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=120)
    if done.returncode != 0:
        raise RuntimeError("%s does not list its tests:\n%s" % (binary, done.stdout))
    return names_in(done.stdout)


class Run:
    """One process of the binary, from its first test to its end or to the first test that hangs."""

    def __init__(self, command, env, limit_s, begun):
        self.limit_s = limit_s
        self.begun = begun
        self.results = []
        self.current = None
        self.lines, self.events = [], []
        self.since = time.monotonic()
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        errors="replace", start_new_session=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if line.startswith(EVENT):
                self.events.append(json.loads(line[len(EVENT):]))
                continue
            mark = MARK.match(line)
            if mark and mark.group(1) == "RUN":
                self.since = time.monotonic()
                self.current, self.lines, self.events = mark.group(2), [], []
                self.begun(self.current)
            elif mark and mark.group(2) == self.current:
                self.end({"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}[mark.group(1)])
            else:
                self.lines.append(line)

    def text(self):
        text = "\n".join(self.lines).strip()
        if len(text) > TEXT_LIMIT:
            half = TEXT_LIMIT // 2
            text = text[:half] + "\n[...]\n" + text[-half:]
        return text

    def end(self, kind, why=""):
        text = "\n".join(part for part in (why, "" if kind == "passed" else self.text()) if part)
        self.results.append(Result(self.current, kind, text, time.monotonic() - self.since,
                                   self.events))
        self.current, self.lines, self.events = None, [], []
        self.since = time.monotonic()

    def wait(self):
        """Waits until the program has ended; returns False when it did not end by itself."""
        while self.process.poll() is None:
            if time.monotonic() - self.since > self.limit_s:
                self.kill()
                return False
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                pass
        self.reader.join(KILL_LIMIT_S)
        return True

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            self.process.wait(KILL_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Stuck("%s cannot be ended" % (self.current or "the program")) from None
        self.reader.join(KILL_LIMIT_S)


def run_tests(binary, names, env, limit_s=LIMIT_S, begun=lambda name: None,
              ended=lambda result: None, prefix=()):
    """Runs the named tests in one process. After a test that hung or crashed, the rest run in a new
    process. Reports each result at once and returns all. Raises Stuck when a program cannot be
    ended."""
    results, left = [], list(names)

    def take(new):
        for result in new:
            results.append(result)
            ended(result)

    while left:
        run = Run([*prefix, binary, "--gtest_filter=" + ":".join(left)], env, limit_s, begun)
        try:
            by_itself = run.wait()
        except Stuck:
            take(run.results)
            if run.current:
                run.end("failed", "it hung, and its process could not be ended")
                take(run.results[-1:])
            raise
        broken = run.current
        if broken and not by_itself:
            run.end("failed", "it did not end in %d s" % limit_s)
        elif broken:
            run.end("failed", "the program ended with status %d" % run.process.returncode)
        take(run.results)
        told = {result.name for result in run.results}
        if not told & set(left):
            take(Result(name, "failed", "the program ended with status %s and did not run it\n%s" %
                        (run.process.returncode, run.text())) for name in left)
            break
        left = [name for name in left if name not in told]
        if not broken and not left and run.process.returncode != 0 and all(
                result.kind != "failed" for result in run.results):
            take([Result(names[-1], "failed", "all passed, and then the program ended with status %d"
                         "\n%s" % (run.process.returncode, run.text()))])
    return results
