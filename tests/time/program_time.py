"""Complete programs in the time of their hosts (`rdmaemu run --clock virtual --program-time`).
These are Debian's programs with hours of sleep around them, a client in Python, and processes that
start others. Each case ends in seconds, and its events have the same times in each run.

usage: program_time.py WORKER LIBEVENT_SERVICE
"""

import importlib.util
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip, free_addresses, need  # noqa: E402

LIMIT_S = 60
WORKER, LIBEVENT_SERVICE = (os.path.abspath(path) for path in sys.argv[1:3])
OPTIONS = ["--clock", "virtual", "--program-time", "--seed", "7"]


def expect(condition, what):
    if not condition:
        raise Failure(what)


def run(emulator, address, argv, *options):
    program = emulator.start("a", address, argv, [*OPTIONS, *options])
    status = program.wait(LIMIT_S)
    expect(status == 0, "status %s\n%s" % (status, program.describe()))
    return program.output


def records(path):
    with open(path) as trace:
        return [json.loads(line) for line in trace]


def happened(path):
    """Returns each side's records of connections, with their times, without their end. rping's
    client may exit before it gets the end."""
    ends = ("RDMA_CM_EVENT_DISCONNECTED", "DREQ", "DREP")
    return [(row["time"], row["process"], row["kind"], row["what"]) for row in records(path)
            if row["kind"] in ("cm.send", "cm.event") and row["what"] not in ends]


def python_sleeps_and_reads_its_clocks():
    script = """
import time
clocks = [time.monotonic, time.time, time.perf_counter, lambda: time.clock_gettime(time.CLOCK_BOOTTIME)]
before = [clock() for clock in clocks]
time.sleep(3600)
print(["%.3f" % (clock() - was) for clock, was in zip(clocks, before)])
"""
    with Emulator() as emulator:
        output = run(emulator, free_addresses(1)[0], [sys.executable, "-c", script])
    expect("['3600.000', '3600.000', '3600.000', '3600.000']" in output, output)


def python_threads_take_turns():
    script = """
import threading, time
began, lock, done = time.monotonic(), threading.Condition(), []
def work(number):
    for turn in range(3):
        time.sleep(number)
    with lock:
        done.append((number, round(time.monotonic() - began, 3)))
        lock.notify()
for number in (1, 2, 3):
    threading.Thread(target=work, args=(number,)).start()
with lock:
    assert lock.wait_for(lambda: len(done) == 3, timeout=600)
print(done)
"""
    with Emulator() as emulator:
        output = run(emulator, free_addresses(1)[0], [sys.executable, "-c", script])
    expect("[(1, 3.0), (2, 6.0), (3, 9.0)]" in output, output)


def python_makes_rdma_calls_between_its_sleeps():
    """A client in pyverbs. Its server is another process in the same time."""
    if importlib.util.find_spec("pyverbs") is None:
        raise Skip("python3-pyverbs is not installed")
    script = """
import sys, time
import pyverbs.cm_enums as cm
from pyverbs.cmid import CMID, AddrInfo, ConnParam
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPCap, QPInitAttr
def connect(port):
    to = AddrInfo(dst=sys.argv[1], dst_service=port, port_space=cm.RDMA_PS_TCP)
    connection = CMID(creator=to, qp_init_attr=QPInitAttr(cap=QPCap(max_send_wr=1, max_recv_wr=1)))
    try:
        connection.connect(ConnParam())
        time.sleep(3600)
        connection.disconnect()
        return "connected"
    except PyverbsError as error:
        return str(error).split(", ")[-1]
    finally:
        connection.close()
begun = time.monotonic()
for port in ("7472", "7472", "7471"):
    print(connect(port), "%.3f" % (time.monotonic() - begun), flush=True)
    time.sleep(10)
"""
    with Emulator() as emulator:
        address = free_addresses(1)[0]
        server = emulator.start("a", address, [WORKER, "serve", address, "7471", "0"], OPTIONS)
        expect(server.wait_for_text("listening", LIMIT_S), server.describe())
        client = emulator.start("a", address, [sys.executable, "-c", script, address], OPTIONS)
        expect(client.wait(LIMIT_S) == 0, client.describe())
    seen = "Connection refused 0.000\nConnection refused 10.000\nconnected 3620.000\n"
    expect(seen in client.output, client.output)


def a_service_on_libevent_answers_after_an_hour():
    """docs/examples/libevent as two processes. Its heartbeats and time-outs are timers of
    libevent."""
    script = """
begun=$(date +%s); : >"$PORT"; "$SERVICE" serve 0 >>"$PORT" & server=$!
while ! grep -q port "$PORT"; do sleep 0.05; done
sleep 3600; "$SERVICE" ask $ADDRESS $(cut -d' ' -f2 "$PORT") hello world || exit 1
echo $(($(date +%s) - begun)); kill $server; wait $server
"""
    with Emulator() as emulator:
        address = free_addresses(1)[0]
        program = emulator.start("a", address, ["sh", "-c", script], OPTIONS, env={
            "ADDRESS": address, "SERVICE": LIBEVENT_SERVICE,
            "PORT": os.path.join(emulator.directory, "port")})
        expect(program.wait(LIMIT_S) == 0, program.describe())
    expect(program.output.startswith("HELLO\nWORLD\n36"), program.output)


def rping_an_hour_after_its_server():
    """Both runs have the same events at the same times."""
    need("rping")
    seen = []
    for _ in range(2):
        with Emulator() as emulator:
            address = free_addresses(1)[0]
            trace = os.path.join(emulator.directory, "trace.jsonl")
            script = ("rping -s -a %s -C 3 & sleep 3600; rping -c -a %s -C 3 -v; sleep 3600; wait"
                      % (address, address))
            output = run(emulator, address, ["sh", "-c", script], "--trace", trace)
            expect("rdma-ping-2" in output, output)
            events = happened(trace)
            expect(events and {time for time, *_ in events} == {3600.0}, "%s" % events)
            seen.append(sorted(events))
    expect(seen[0] == seen[1], "%s\n%s" % tuple(seen))


def a_shell_gets_to_the_first_of_two_deadlines():
    """The other sleep's deadline is later. No process may be overlooked while it starts or ends."""
    for _ in range(10):
        with Emulator() as emulator:
            script = "date +%s; sleep 100 & sleep 1; date +%s; exec sh -c 'sleep 2; date +%s'"
            output = run(emulator, free_addresses(1)[0], ["sh", "-c", script])
            times = [int(line) for line in output.split()[-3:]]
            expect([time - times[0] for time in times] == [0, 1, 3], output)


def a_program_closes_all_descriptors_and_opens_its_own():
    """Its files get the numbers that the library's descriptors had."""
    script = """
import errno, os, threading, time
began = time.monotonic()
other = threading.Thread(target=time.sleep, args=(7200,))
other.start()
time.sleep(1)
while True:
    try:
        saved = os.dup2(1, 3)
        break
    except OSError as error:  # dup2(2): EBUSY while a thread of a library opens a file
        assert error.errno == errno.EBUSY
os.closerange(4, 4096)
paths = []
for number in range(4, 1024):
    path = "%s/file-%d" % (os.environ["TMPDIR"], number)
    opened = os.open(path, os.O_RDWR | os.O_CREAT)
    paths.append((path, opened))
time.sleep(3600)
other.join()
for path, opened in paths:
    assert os.fstat(opened).st_size == 0, path
print("%.3f" % (time.monotonic() - began))
"""
    with Emulator() as emulator, tempfile.TemporaryDirectory() as directory:
        output = run(emulator, free_addresses(1)[0],
                     ["env", "TMPDIR=" + directory, sys.executable, "-c", script])
    expect("7200.000" in output, output)


def ucmatose_between_two_hosts():
    need("ucmatose")
    with Emulator() as emulator:
        server_address, client_address = free_addresses(2)
        server = emulator.start("a", server_address,
                                ["sh", "-c", "echo begins; sleep 60; ucmatose"], OPTIONS)
        # From then on time stops for the client as well, until both wait.
        expect(server.wait_for_text("begins", LIMIT_S), server.describe())
        client = emulator.start(
            "b", client_address,
            ["sh", "-c", "sleep 3600; ucmatose -s %s; date +%%s" % server_address], OPTIONS)
        for program in (client, server):
            expect(program.wait(LIMIT_S) == 0, program.describe())
        expect("test complete" in client.output, client.describe())


def a_clock_that_runs_is_refused():
    with Emulator() as emulator:
        done = emulator.rdmaemu("run", "--host", "a", "--program-time", "--", "true")
        expect(done.returncode != 0 and "--clock virtual" in done.stderr, done.stderr)


def processes_have_one_time_of_day():
    """Holds for every way to start a process: fork, vfork, a shell's pipeline."""
    script = """
import os, subprocess, time
read, write = os.pipe()
if os.fork() == 0:
    time.sleep(100)
    os.write(write, b"x")
    os._exit(0)
os.read(read, 1)
times = [int(time.time())]
os.wait()
times.append(int(subprocess.check_output(["date", "+%s"])))
times.append(int(subprocess.check_output("sleep 1000; date +%s | cat", shell=True)))
times.append(int(time.time()))
print([time - times[0] for time in times])
"""
    with Emulator() as emulator:
        output = run(emulator, free_addresses(1)[0], [sys.executable, "-c", script])
    expect("[0, 0, 1000, 1000]" in output, output)


def a_stopped_process_does_not_stop_time():
    """Its deadlines count again when it goes on, also those that have passed meanwhile."""
    script = """
import signal, subprocess, time
for stopped, until in ((20, 100), (200, 201)):
    began = time.time()
    child = subprocess.Popen(["sleep", "100"])
    time.sleep(1)
    child.send_signal(signal.SIGSTOP)
    time.sleep(stopped)
    child.send_signal(signal.SIGCONT)
    assert child.wait() == 0
    assert int(time.time() - began) == until, time.time() - began
"""
    with Emulator() as emulator:
        run(emulator, free_addresses(1)[0], [sys.executable, "-c", script])


def a_process_that_was_stopped_reads_the_current_time():
    """Also before its next wait: it spins on shared memory."""
    script = """
import mmap, os, signal, time
shared = mmap.mmap(-1, 4096)
began = time.time()
child = os.fork()
if child == 0:
    time.time()
    shared[0] = 1
    while shared[1] == 0:
        pass
    os._exit(0 if time.time() - began >= 100 else 1)
while shared[0] == 0:
    pass
os.kill(child, signal.SIGSTOP)
time.sleep(100)
shared[1] = 1
os.kill(child, signal.SIGCONT)
assert os.wait()[1] == 0
"""
    with Emulator() as emulator:
        run(emulator, free_addresses(1)[0], [sys.executable, "-c", script])


def a_small_file_size_limit_ends_no_program():
    """It runs in the machine's time, because it cannot write to the file of the shared time."""
    with Emulator() as emulator:
        output = run(emulator, free_addresses(1)[0],
                     ["sh", "-c", "ulimit -f 0; sh -c 'echo goes on'"])
        expect("goes on" in output and "(ulimit -f)" in output, output)


def an_alarm_outlives_execve():
    script = """
import signal, subprocess, time
for setting in ("alarm 50", "alarm 50; sleep 20"):
    began = time.time()
    child = subprocess.Popen(["perl", "-e", setting + "; exec qw(sh -c), 'exec sleep 100'"])
    assert child.wait() == -signal.SIGALRM, child.returncode
    assert int(time.time() - began) == 50, time.time() - began
# An alarm that is over is not repeated, and a child inherits none.
program = "$SIG{ALRM} = sub {}; alarm 5; sleep 20; exec qw(sleep 10)"
assert subprocess.run(["perl", "-e", program]).returncode == 0
assert subprocess.run(["perl", "-e", "alarm 50; system qw(sleep 70) if !fork; alarm 0"]).returncode == 0
"""
    with Emulator() as emulator:
        run(emulator, free_addresses(1)[0], [sys.executable, "-c", script])


if __name__ == "__main__":
    sys.exit(emulated.run_cases("time.program_time", [(case.__name__, case) for case in (
        python_sleeps_and_reads_its_clocks, python_threads_take_turns,
        a_stopped_process_does_not_stop_time, a_process_that_was_stopped_reads_the_current_time,
        a_small_file_size_limit_ends_no_program, an_alarm_outlives_execve,
        python_makes_rdma_calls_between_its_sleeps, a_service_on_libevent_answers_after_an_hour,
        rping_an_hour_after_its_server, a_shell_gets_to_the_first_of_two_deadlines,
        a_program_closes_all_descriptors_and_opens_its_own, ucmatose_between_two_hosts,
        a_clock_that_runs_is_refused, processes_have_one_time_of_day)]))
