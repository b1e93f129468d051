"""One run of the virtual machine of tools/softroce, and the file in which a program in the machine
tells what it has begun and ended. The file survives the machine."""

import collections
import json
import os
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SOFTROCE = os.path.abspath(os.path.join(HERE, "..", "..", "tools", "softroce"))
CRASHED_STATUS = 125  # of tools/softroce: the machine did not get to the end of its program
SAID_LINES = 100  # the end of what a machine has said, which its failure quotes


class Results:
    """Writes one JSON object per line. Threads may share it."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.lock = threading.Lock()

    def tell(self, **fields):
        with self.lock:
            self.file.write(json.dumps(fields) + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())


class Machine:
    """Runs a Python program in a new machine. The program can write to `directory` alone, and has
    no variable of this environment but those in `environment`."""

    def __init__(self, directory, results_path, program, *, limit_s, options=(), environment=None):
        self.results_path = results_path
        self.process = subprocess.Popen(
            [SOFTROCE, "run", *options, "-t", str(limit_s), "-o", directory, "--",
             "env", *("%s=%s" % pair for pair in (environment or {}).items()),
             "bash", os.path.join(HERE, "..", "support", "python_test.sh"), *program],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
        self.last_lines = collections.deque(maxlen=SAID_LINES)
        self.reader = threading.Thread(target=self._pass_on)
        self.reader.start()

    def _pass_on(self):
        for line in self.process.stderr:
            sys.stderr.write(line)
            self.last_lines.append(line)

    def wait(self, silence_limit_s=None):
        """Waits for the machine and returns its status. Ends a machine that tells no result for so
        long."""
        size, since = -1, time.monotonic()
        while self.process.poll() is None:
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                pass
            now = os.path.getsize(self.results_path) if os.path.exists(self.results_path) else 0
            if now != size:
                size, since = now, time.monotonic()
            elif silence_limit_s and time.monotonic() - since > silence_limit_s:
                print("nothing happened in the machine for %d s: ending it" % silence_limit_s)
                self.process.terminate()
                since = time.monotonic()
        self.reader.join()
        return self.process.returncode

    def lines(self):
        """Returns what the program has told. The last line of a crashed machine may be cut."""
        if not os.path.exists(self.results_path):
            return []
        with open(self.results_path) as text:
            lines = text.read().split("\n")
        return [json.loads(line) for line in lines if line.endswith("}")]

    def said(self):
        """Returns the end of the machine's standard error. After a crash this is its console."""
        return "".join(self.last_lines)
