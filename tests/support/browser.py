"""A headless Chromium that opens many pages, one after the other. Its start takes ten times as long as
a page. The tests speak its DevTools protocol over a pipe: JSON objects that end with a zero byte
(--remote-debugging-pipe, https://chromedevtools.github.io/devtools-protocol)."""

import fcntl
import json
import os
import select
import subprocess
import tempfile
import time

import emulated

# Chromium starts in a second on an idle machine, and much later on a busy one.
LIMIT_S = 200
IN, OUT = 3, 4  # the descriptors by which Chromium reads and writes messages
# What a page writes to the console, and what the browser writes there about it.
CONSOLE = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}


class Browser:
    def __init__(self):
        program = emulated.need("chromium")
        self.profile = tempfile.TemporaryDirectory()
        self.last_id, self.rest, self.events = 0, b"", []
        pipes = [*os.pipe(), *os.pipe()]
        # The originals keep the numbers IN and OUT in use while the process starts.
        theirs = [fcntl.fcntl(pipes[end], fcntl.F_DUPFD, OUT + 1) for end in (0, 3)]

        def connect():
            os.dup2(theirs[0], IN)
            os.dup2(theirs[1], OUT)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--user-data-dir=" + self.profile.name, "--window-size=1280,800"],
            env=dict(os.environ, HOME=self.profile.name), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(IN, OUT),
            preexec_fn=connect)
        self.to, self.of = pipes[1], pipes[2]
        for fd in (pipes[0], pipes[3], *theirs):
            os.close(fd)

    def message(self, deadline):
        """Returns the next message."""
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            ready = select.select([self.of], [], [], max(left, 0))[0]
            more = os.read(self.of, 1 << 20) if ready else b""
            if not more:
                raise emulated.Failure("chromium " + ("has ended" if ready else "does not answer"))
            self.rest += more
        first, self.rest = self.rest.split(b"\0", 1)
        return json.loads(first)

    def call(self, method, session=None, until=None, **parameters):
        """Returns the result of a command, after the event `until` of the session."""
        self.last_id += 1
        command = {"id": self.last_id, "method": method, "params": parameters}
        if session:
            command["sessionId"] = session
        os.write(self.to, json.dumps(command).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        result = None
        while result is None or until:
            message = self.message(deadline)
            if message.get("id") == self.last_id:
                if "error" in message:
                    raise emulated.Failure("chromium: %s: %s" % (method, message["error"]))
                result = message["result"]
            elif message.get("sessionId") == session and "method" in message:
                self.events.append(message)
                if message["method"] == until:
                    until = None
        return result

    def open(self, url):
        """Returns the HTML of a page after its load event, and what was written to the console."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable", session)
        self.events.clear()
        self.call("Page.navigate", session, "Page.loadEventFired", url=url)
        html = self.call("Runtime.evaluate", session,
                         expression="document.documentElement.outerHTML")["result"]["value"]
        said = [event["params"] for event in self.events if event["method"] in CONSOLE]
        self.call("Target.closeTarget", targetId=target)
        return html, said

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(LIMIT_S)
        except (emulated.Failure, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.to)
        os.close(self.of)
        self.profile.cleanup()
