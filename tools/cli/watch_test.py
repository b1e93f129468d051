"""`rdmaemu hosts --watch` on a pseudo-terminal and on a pipe."""

import codecs
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from cli_support import ADDRESS, OTHER, check, eventually, expect  # noqa: E402
from emulated import Emulator  # noqa: E402

LIMIT_S = 60
ENTER, LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
STYLE = re.compile("\033\\[[0-9;]*m")
# Columns of the table.
PROCS, QPS, IDS, CONNS, SENT, RECEIVED, SENT_BYTES, RECEIVED_BYTES, LOCAL, MESSAGES, DROPS, FIRED = (
    range(1, 13))


class Screen:
    """A command whose controlling terminal is a new pseudo-terminal. Its frames are collected."""

    def __init__(self, emulator, *arguments, argv=None, size=(24, 200), **env):
        env = {**emulator.env, "TERM": "xterm", **env}
        self.env = {name: value for name, value in env.items() if value is not None}
        self.argv = argv or [emulated.RDMAEMU, "hosts", "--watch", *arguments]
        self.text, self.changed, self.status = "", threading.Condition(), None
        self.master, self.slave = pty.openpty()
        self.resize(*size)
        self.former = termios.tcgetattr(self.slave)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
                for stream in (0, 1, 2):
                    os.dup2(self.slave, stream)
                os.closerange(3, 256)
                os.execvpe(self.argv[0], self.argv, self.env)
            finally:
                os._exit(127)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.slave)

    def _read(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:  # the command and the test have closed the terminal
                chunk = b""
            with self.changed:
                self.text += decoder.decode(chunk)
                self.changed.notify_all()
            if not chunk:
                os.close(self.master)
                return

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys)

    def frames(self):
        """Returns the lines of each frame, without styles."""
        # The terminal itself writes a carriage return before a new line.
        text = STYLE.sub("", self.text).replace("\033[K", "").replace("\r\r\n", "\n")
        return [frame.split("\033[J")[0].strip("\n").split("\n")
                for frame in text.split("\033[H")[1:]]

    def wait(self, what, holds):
        """Waits until `holds` is true of this screen."""
        until = time.monotonic() + LIMIT_S
        with self.changed:
            while not holds():
                left = until - time.monotonic()
                check(left > 0, "no %s in %d s:\n%r" % (what, LIMIT_S, self.text[-3000:]))
                self.changed.wait(left)

    def wait_for_text(self, text):
        self.wait(repr(text), lambda: text in self.text)

    def wait_for_frame(self, what, holds, after=0):
        """Waits for a frame behind the first `after` of them."""
        self.wait(what, lambda: any(holds(frame) for frame in self.frames()[after:]))

    def end(self, status):
        """Waits for the command's end, and checks its status and its terminal."""
        eventually("the end of the command", self._has_ended)
        check(self.status == status, "status %s instead of %s: %r" %
              (self.status, status, self.text[-2000:]))
        check(termios.tcgetattr(self.slave) == self.former, "the terminal's settings differ")

    def _has_ended(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
        return pid != 0


def cells(frame, host):
    """Returns the cells of a host's row, or []."""
    for line in frame:
        row = re.split(r"\s{2,}", line.strip())
        if row[0] == host:
            return row
    return []


def has(host, text):
    """Returns whether a frame has the text in the host's row, as a function."""
    return lambda frame: any(text in cell for cell in cells(frame, host))


def is_positive(frame, host, *columns):
    row = cells(frame, host)
    return len(row) > FIRED and all(re.match(r"[0-9.]*[1-9]", row[column]) for column in columns)


def the_table_shows_objects_traffic_and_rules():
    emulated.need("rping")
    with Emulator() as emulator, Screen(emulator, "--interval", "100ms") as screen:
        screen.wait_for_text("no host is running")
        server = emulator.start("a", ADDRESS, ["rping", "-s", "-a", ADDRESS, "-P"])
        expect(emulator.rdmaemu("wait", "--host", "a", "--listening", "7174"), 0)
        client = emulator.start("b", OTHER, ["rping", "-c", "-a", ADDRESS])
        for host, address in (("a", ADDRESS), ("b", OTHER)):
            screen.wait_for_frame("traffic of " + host, lambda frame: is_positive(
                frame, host, PROCS, QPS, IDS, CONNS, SENT, RECEIVED, SENT_BYTES, RECEIVED_BYTES,
                MESSAGES) and cells(frame, host)[FIRED + 1] == "rxe0 " + address)
        row = cells(screen.frames()[-1], "a")
        check(row[LOCAL] == "0" and row[FIRED] == "0", row)
        expect(emulator.rdmaemu("fault", "add", "--host", "a",
                                'at = "cm.req", name = "no", reject = 28'), 0)
        emulator.rdmaemu("run", "--host", "b", "--", "rping", "-c", "-a", ADDRESS, "-C", "1")
        screen.wait_for_frame("a rule that fired", lambda frame: is_positive(frame, "a", FIRED))
        screen.wait_for_frame("its growth", lambda frame: cells(frame, "a")[FIRED:][:1] == ["1 (+1)"])
        client.end()
        server.end()


def traffic_inside_a_host_is_local():
    emulated.need("rping")
    with Emulator() as emulator, Screen(emulator, "--interval", "100ms") as screen:
        server = emulator.start("a", ADDRESS, ["rping", "-s", "-a", ADDRESS, "-P"])
        expect(emulator.rdmaemu("wait", "--host", "a", "--listening", "7174"), 0)
        client = emulator.start("a", ADDRESS, ["rping", "-c", "-a", ADDRESS])
        # Each `rdmaemu run` is a process, too. The server has two ids, of which one listens.
        screen.wait_for_frame("local traffic", lambda frame: is_positive(
            frame, "a", LOCAL, MESSAGES) and cells(frame, "a")[PROCS:CONNS] == ["4", "2", "3"])
        client.end()
        server.end()


def the_terminal_is_restored_at_the_end():
    """Also checks that the command takes single keys meanwhile, and its status."""
    with Emulator() as emulator:
        emulator.start_host("a", ["--address", ADDRESS])
        for end, status in ((b"q", 0), (b"Q", 0), (b"\x03", -signal.SIGINT), (b"\x1c", -signal.SIGQUIT),
                            (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)):
            with Screen(emulator) as screen:
                screen.wait_for_frame("host", has("a", "rxe0"))
                check(screen.text.startswith(ENTER), repr(screen.text[:200]))
                flags = termios.tcgetattr(screen.slave)[3]
                check(flags & (termios.ICANON | termios.ECHO) == 0, "the terminal echoes")
                screen.type(b"x\x1b[A")  # other keys do nothing
                if isinstance(end, bytes):
                    screen.type(end)
                else:
                    os.kill(screen.pid, end)
                screen.wait_for_text(LEAVE)
                screen.end(status)
                check(screen.text.endswith(LEAVE), repr(screen.text[-200:]))


def a_stopped_command_gives_the_terminal_back():
    script = ('"$0" hosts --watch; echo "stopped $?"; stty -a | grep -Eo -- "-?icanon"; read go; '
              'fg >/dev/null; echo "ended $?"; stty -a | grep -Eo -- "-?icanon"')
    with Emulator() as emulator:
        emulator.start_host("a", ["--address", ADDRESS])
        with Screen(emulator, argv=["bash", "-mc", script, emulated.RDMAEMU]) as screen:
            screen.wait_for_frame("host", has("a", "rxe0"))
            screen.type(b"\x1a")
            screen.wait("stop", lambda: re.search(
                re.escape(LEAVE) + r".*stopped 148\r\nicanon\r\n", screen.text, re.DOTALL))
            frames = len(screen.frames())
            screen.type(b"go\n")
            screen.wait_for_frame("frame after the stop", has("a", "rxe0"), after=frames)
            screen.type(b"q")
            screen.wait_for_text("ended 0\r\nicanon\r\n")
            screen.end(0)


def a_frame_follows_the_size_of_the_window():
    """The interval is so long that only a new size causes a frame."""
    with Emulator() as emulator:
        for number, address in enumerate((ADDRESS, OTHER)):
            emulator.start_host("host%d" % number, ["--address", address])
        with Screen(emulator, "--interval", "1h", size=(24, 40)) as screen:
            screen.wait_for_frame("narrow frame", lambda frame: len(frame) == 4 and
                                  len(frame[2]) == 40 and max(map(len, frame)) == 40)
            for rows, columns in ((24, 200), (3, 60), (1, 10), (24, 200)):
                frames = len(screen.frames())
                screen.resize(rows, columns)

                def fits(frame):
                    if len(frame) != min(rows, 4) or max(map(len, frame)) > columns:
                        return False
                    if rows == 24:
                        return "DEVICES" in frame[1] and "rxe0 " + OTHER in frame[3]
                    return frame[-1] == ("2 more hosts" if rows == 3 else "4 more hos")
                screen.wait_for_frame("%d x %d" % (rows, columns), fits, after=frames)
            screen.type(b"q")
            screen.end(0)


def a_host_that_ends_is_shown_as_ended_and_may_start_again():
    with Emulator() as emulator:
        first = emulator.start_host("a", ["--address", ADDRESS])
        emulator.start_host("b", ["--address", OTHER])
        with Screen(emulator, "--interval", "100ms", "--host", "a") as screen:
            screen.wait_for_frame("host", has("a", "rxe0"))
            expect(emulator.rdmaemu("stop", "a"), 0)
            screen.wait_for_frame("end", has("a", "ended (pid %d)" % first.process.pid))
            screen.wait_for_text("no host a is running")
            frames = len(screen.frames())
            emulator.start_host("a", ["--address", ADDRESS])
            screen.wait_for_frame("the second host", has("a", "rxe0"), after=frames)
            check(not any(cells(frame, "b") for frame in screen.frames()), "--host has no effect")
            screen.type(b"q")
            screen.end(0)


def a_host_that_does_not_answer_blocks_no_other():
    with Emulator() as emulator:
        emulator.start_host("a", ["--address", ADDRESS])
        silent = emulator.start_host("b", ["--address", OTHER]).process.pid
        with Screen(emulator, "--interval", "100ms") as screen:
            screen.wait_for_frame("both", lambda frame: cells(frame, "b")[SENT:SENT + 1] == ["0"])
            os.kill(silent, signal.SIGSTOP)
            try:
                # The other host has new rates in each frame.
                silence = r"has not answered for [1-9] s \(pid %d\)" % silent
                screen.wait_for_frame("silence", lambda frame: is_positive(frame, "a") and
                                      re.fullmatch(silence, (cells(frame, "b") + [""])[1]))
                silences = [frame for frame in screen.frames() if has("b", "not answered")(frame)]
                check(len(silences) > 2, "a frame waits for the silent host")
                frames = len(screen.frames())
            finally:
                os.kill(silent, signal.SIGCONT)
            screen.wait_for_frame("reply", has("b", "rxe0"), after=frames)
            os.kill(silent, signal.SIGSTOP)
            try:
                screen.wait_for_frame("silence", has("b", "not answered"),
                                      after=len(screen.frames()))
                screen.type(b"q")
                screen.end(0)
            finally:
                os.kill(silent, signal.SIGCONT)


def colours_need_a_terminal_that_has_them():
    with Emulator() as emulator:
        emulator.start_host("a", ["--address", ADDRESS])
        for value, has_colours in ((None, True), ("", True), ("1", False)):
            with Screen(emulator, NO_COLOR=value) as screen:
                screen.wait_for_frame("host", has("a", "rxe0"))
                screen.type(b"q")
                screen.end(0)
                check(bool(STYLE.search(screen.text)) == has_colours, repr(screen.text))
        for kind in ("dumb", "", None):
            with Screen(emulator, "--interval", "100ms", TERM=kind) as screen:
                screen.wait("second table", lambda: screen.text.count("DEVICES") > 1)
                os.kill(screen.pid, signal.SIGTERM)
                screen.end(-signal.SIGTERM)
                check("\033" not in screen.text, repr(screen.text))


def without_a_terminal_tables_follow_each_other():
    with Emulator() as emulator:
        emulator.start_host("a", ["--address", ADDRESS])
        for sign in (signal.SIGTERM, signal.SIGINT):
            watch = emulator.start_outside([emulated.RDMAEMU, "hosts", "--watch", "--interval",
                                            "100ms"], dict(emulator.env, TERM="xterm"))
            watch.process.stdin.write(b"q\n")  # a pipe has no keys
            watch.process.stdin.flush()
            eventually("three tables", lambda: watch.output.count("rxe0") > 2)
            watch.process.send_signal(sign)
            check(watch.wait(30) == -sign, watch.describe())
            check("\033" not in watch.output, repr(watch.output))
            # On a busy machine a host may not answer in time.
            tables = [table for table in watch.output.split("\n\n") if "not answered" not in table]
            check(all(re.fullmatch(r"[-0-9]{10} [:0-9]{8}  \S+\nHOST .*DEVICES *\na .*rxe0 " +
                                   re.escape(ADDRESS), table.strip()) for table in tables), tables)
            check(cells(tables[0].split("\n"), "a")[SENT] == "-", tables[0])
            check(cells(tables[1].split("\n"), "a")[SENT] == "0", tables[1])


def json_is_one_object_per_interval():
    with Emulator() as emulator:
        first = emulator.start_host("a", ["--address", ADDRESS])
        silent = emulator.start_host("b", ["--address", OTHER]).process.pid
        with Screen(emulator, "--json", "--interval", "100ms") as screen:
            def frames():
                return [json.loads(line) for line in screen.text.split("\r\n")[:-1]]

            def states(name):
                return [host["state"] for frame in frames() for host in frame["hosts"]
                        if host["name"] == name]
            screen.wait("second reply", lambda: states("a").count("running") > 1)
            one, two = [host for frame in frames() for host in frame["hosts"]
                        if host["name"] == "a" and host["state"] == "running"][:2]
            check(one["name"] == "a" and one["rates"] is None and one["rules_fired"] == 0, one)
            check(two["rates"] == dict.fromkeys(
                ("packets_sent_per_s", "packets_received_per_s", "bytes_sent_per_s",
                 "bytes_received_per_s", "local_packets_per_s", "message_bytes_per_s"), 0), two)
            plain = emulator.host("a")
            check(set(plain) == set(two) - {"state", "rates", "rules_fired"} and
                  plain["clients"] == two["clients"] == [], two)
            check(frames()[0]["time"] < frames()[1]["time"], frames())
            os.kill(silent, signal.SIGSTOP)
            try:
                screen.wait("silence", lambda: "silent" in states("b"))
            finally:
                os.kill(silent, signal.SIGCONT)
            expect(emulator.rdmaemu("stop", "a"), 0)
            screen.wait("end", lambda: "ended" in states("a"))
            ended = [host for frame in frames() for host in frame["hosts"] if host["state"] == "ended"]
            check(ended[0] == {"name": "a", "pid": first.process.pid, "state": "ended"}, ended)
            os.kill(screen.pid, signal.SIGINT)
            screen.end(-signal.SIGINT)
            check("\033" not in screen.text, repr(screen.text))


def a_reader_that_does_not_read_does_not_keep_the_command():
    with Emulator() as emulator:
        emulator.start_host("a", ["--address", ADDRESS])
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        watch = subprocess.Popen(
            [emulated.RDMAEMU, "hosts", "--watch", "--json", "--interval", "100ms"],
            env=emulator.env, stdout=writer, stdin=subprocess.DEVNULL)
        try:
            eventually("a full pipe", lambda: not select.select([], [writer], [], 0)[1])
            watch.send_signal(signal.SIGTERM)
            check(watch.wait(LIMIT_S) == -signal.SIGTERM, watch.returncode)
        finally:
            watch.kill()
            watch.wait()
            os.close(reader)
            os.close(writer)


def a_watch_does_not_keep_a_host_alive():
    with Emulator() as emulator, Screen(emulator, "--interval", "100ms") as screen:
        program = emulator.start("a", ADDRESS, ["sh", "-c", "echo up; exec cat"])
        check(program.wait_for_text("up\n", 30), program.describe())
        screen.wait_for_frame("host", has("a", "rxe0"))
        program.process.stdin.close()
        check(program.process.wait(30) == 0, program.describe())
        screen.wait_for_frame("end", has("a", "ended"))
        screen.type(b"q")
        screen.end(0)


def wrong_words_are_errors():
    with Emulator() as emulator:
        def hosts(*arguments):
            return emulator.rdmaemu("hosts", *arguments)
        expect(hosts("--interval", "2s"), 2, "--watch", "see rdmaemu hosts --help")
        expect(hosts("--watch", "--interval", "soon"), 2, '"soon" is not a duration')
        for outside in ("99ms", "3601s"):
            expect(hosts("--watch", "--interval", outside), 2, outside, "give 100ms to 1h")
        script = emulator.rdmaemu("completion", "bash").stdout
        check(re.search(r"'hosts'\) words='[^']*--watch --interval[ ']", script), script)


CASES = [
    the_table_shows_objects_traffic_and_rules,
    traffic_inside_a_host_is_local,
    the_terminal_is_restored_at_the_end,
    a_stopped_command_gives_the_terminal_back,
    a_frame_follows_the_size_of_the_window,
    a_host_that_ends_is_shown_as_ended_and_may_start_again,
    a_host_that_does_not_answer_blocks_no_other,
    colours_need_a_terminal_that_has_them,
    without_a_terminal_tables_follow_each_other,
    json_is_one_object_per_interval,
    a_reader_that_does_not_read_does_not_keep_the_command,
    a_watch_does_not_keep_a_host_alive,
    wrong_words_are_errors,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("watch", [(case.__name__, case) for case in CASES]))
