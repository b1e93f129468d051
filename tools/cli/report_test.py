"""How `rdmaemu run` handles and reports shared hosts, ending hosts, their logs, truncated files and
private hosts."""

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
import perftest  # noqa: E402
from emulated import Emulator, Failure, free_addresses  # noqa: E402

ADDRESS, OTHER = free_addresses(2)
ROCE_PORT = 4791

def check(holds, text):
    if not holds:
        raise Failure(text)


def expect(result, status, *words):
    check(result.returncode == status, "status %s instead of %s: %s%s" %
          (result.returncode, status, result.stdout, result.stderr))
    for word in words:
        check(word in result.stderr, "%r is not in: %s" % (word, result.stderr))


def run(emulator, *command, host="h", address=ADDRESS, options=()):
    return emulator.rdmaemu("run", "--host", host, "--address", address, *options, "--", *command)


def hold(emulator, options=()):
    """Starts a host with a client that runs until its input ends."""
    program = emulator.start("h", ADDRESS, ["sh", "-c", "echo up; exec cat"], options)
    check(program.wait_for_text("up\n", 30), program.describe())
    return program


def write(emulator, name, text):
    path = os.path.join(emulator.directory, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def read(path):
    with open(path) as file:
        return file.read()


# ---- owners of hosts and addresses


def joining_a_host_in_use_names_its_clients():
    with Emulator() as emulator:
        holder = hold(emulator)
        pid = emulator.host("h")["pid"]
        expect(run(emulator, "true"), 0, "note: host h (pid %d) runs already and is in use by rdmaemu run"
               " (pid %d)" % (pid, holder.process.pid))
        holder.process.stdin.close()
        check(holder.wait(30) == 0, holder.describe())


def an_idle_host_that_holds_the_address_is_ended_with_a_note():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("host", "--name", "idle", "--address", ADDRESS, "--daemonize"), 0)
        pid = emulator.host("idle")["pid"]
        expect(run(emulator, "true"), 0, "note: host idle (pid %d) was idle and has been stopped" % pid,
               "it used the address %s, which host h needs" % ADDRESS)
        check(emulator.host("idle") is None, "it still runs")


def a_host_in_use_keeps_its_address():
    with Emulator() as emulator:
        holder = hold(emulator)
        result = run(emulator, "true", host="late")
        expect(result, 125, "error: cannot listen on UDP port 4791 of " + ADDRESS,
               "by the rdmaemu host h (pid ", "rdmaemu stop h")
        check(holder.process.poll() is None, "it was ended")
        expect(run(emulator, "true", host="late", address=OTHER), 0)
        holder.process.stdin.close()
        check(holder.wait(30) == 0, holder.describe())


def a_host_has_closed_its_port_when_its_name_is_free():
    with Emulator() as emulator:
        lock = os.path.join(emulator.directory, "h.lock")
        for _ in range(20):
            expect(run(emulator, "true"), 0)
            until = time.monotonic() + 30
            while os.path.exists(lock):
                check(time.monotonic() < until, "the host has not ended in 30 s")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
                port.bind((ADDRESS, ROCE_PORT))


def the_port_of_a_host_that_ends_is_waited_for():
    """This process acts as the host: it holds the port and has a lock file, but no socket."""
    with Emulator() as emulator, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.bind((ADDRESS, ROCE_PORT))
        record = {"pid": os.getpid(), "address": [ADDRESS], "device": [], "pcap": "", "trace": ""}
        write(emulator, "ending.lock", json.dumps(record))
        result = {}
        running = threading.Thread(target=lambda: result.update(it=run(emulator, "true")))
        running.start()
        # Wait until the new host has written its record, because it then has found the port in use.
        until = time.monotonic() + 30
        while not os.path.exists(os.path.join(emulator.directory, "h.lock")) and running.is_alive():
            check(time.monotonic() < until, "no host began in 30 s")
            time.sleep(0.01)
        running.join(0.3)
        check(running.is_alive(), "it did not wait: %s" % result.get("it"))
        port.close()
        running.join(30)
        expect(result["it"], 0)


def hosts_back_to_back_under_other_names_do_not_meet():
    with Emulator() as emulator:
        for i in range(20):
            expect(run(emulator, "true", host="h%d" % (i % 3)), 0)


# Without -a, because perftest measures the processor's frequency for each of the 23 sizes.
PERFTEST = (["ib_write_bw", "-R", "-n", "5"], ["ib_send_bw", "-n", "5"], ["ib_read_lat", "-n", "5"])
PERFTEST_ROUNDS = 3


def run_perftest(emulator, command):
    """Runs the server on host a and the client on host b. Both hosts end with their programs."""
    port = emulated.free_tcp_port()
    argv = [*command, "-F", "-p", str(port)]
    server = emulator.start("a", ADDRESS, argv)
    if "-R" in command:
        until = time.monotonic() + 30
        while emulator.rdmaemu("wait", "--host", "a", "--listening", str(port)).returncode != 0:
            check(server.process.poll() is None and time.monotonic() < until, server.describe())
    else:
        emulated.wait_for_tcp_listener(port, server)
    client = emulator.start("b", OTHER, [*argv, ADDRESS])
    failed = client.wait(60) != 0
    if failed:
        server.end()
    check(server.wait(60) == 0 and not failed, client.describe() + server.describe())


def perftest_back_to_back_finds_both_ports_free():
    for command in PERFTEST:
        emulated.need(command[0])
    attempts = 0
    with Emulator() as emulator:
        for command in PERFTEST * PERFTEST_ROUNDS:
            try:
                run_perftest(emulator, command)
            except Failure as failure:
                attempts += 1
                if perftest.RACE not in str(failure) or attempts == perftest.ATTEMPTS:
                    raise
            for program in emulator.programs[-2:]:
                check("in use" not in program.output, program.describe())


# ---- the host's log


CRASH = '[[fault]]\nat = "call.open_device"\ncrash = true\n'


def the_lines_of_a_log_are_printed_and_the_log_survives_its_host():
    with Emulator() as emulator:
        path = write(emulator, "scenario.toml", CRASH)
        result = run(emulator, "ibv_devinfo", options=("--scenario", path))
        check(result.returncode != 0, "ibv_devinfo has survived the crash")
        log = os.path.join(emulator.directory, "h.log")
        line = "a fault rule with crash = true ended host h"
        check("note: host h wrote to its log %s:\n  %s\n" % (log, line) in result.stderr, result.stderr)
        check(read(log) == line + "\n", read(log))
        # Neither another host of the same name nor its success removes the log.
        result = run(emulator, "true")
        expect(result, 0)
        check("log" not in result.stderr, result.stderr)
        check(read(log + ".1") == line + "\n", read(log + ".1"))


def a_log_is_printed_after_a_program_that_succeeded_too():
    with Emulator() as emulator:
        path = write(emulator, "scenario.toml", CRASH)
        result = run(emulator, "sh", "-c", "ibv_devinfo; true", options=("--scenario", path))
        expect(result, 0, "note: host h wrote to its log ")


def without_lines_nothing_is_printed():
    with Emulator() as emulator:
        result = run(emulator, "false")
        check(result.returncode == 1 and "log" not in result.stderr, result.stderr)


# ---- truncated files


def a_file_that_takes_nothing_is_an_error_at_the_start():
    with Emulator() as emulator:
        for option in ("--trace", "--pcap"):
            expect(run(emulator, "true", options=(option, "/dev/full")), 125,
                   "error: cannot write /dev/full: No space left on device; give %s a file" % option)
            check(emulator.hosts() == [], "a host was started all the same")


# Moves packets between two programs of one host.
MOVE = ("rping -s -a %(address)s -C 1 & '%(cli)s' wait --host h --listening 7174 &&"
        " rping -c -a %(address)s -C 1; wait; " % {"address": ADDRESS, "cli": emulated.RDMAEMU})


def with_a_file_that_is_cut(emulator, option, work, status):
    """Uses a terminal as the trace or capture and closes it during the run."""
    terminal, other = os.openpty()
    path = os.ttyname(other)
    program = emulator.start("h", ADDRESS, [
        "sh", "-c", "echo up; read line; %s exit %d" % (work, status)], [option, path])
    check(program.wait_for_text("up\n", 30), program.describe())
    os.close(other)
    os.close(terminal)
    program.process.stdin.close()
    ended = program.wait(60)
    program.expect(r"^error: %s %s is cut: the host could not write it: Input/output error$" %
                   (option, path))
    return ended


CALLS = "ibv_devinfo >/dev/null;"


def a_trace_that_is_cut_later_makes_the_run_fail():
    with Emulator() as emulator:
        check(with_a_file_that_is_cut(emulator, "--trace", CALLS, 0) == 125, "status")


def a_capture_that_is_cut_later_makes_the_run_fail():
    emulated.need("rping")
    with Emulator() as emulator:
        check(with_a_file_that_is_cut(emulator, "--pcap", MOVE, 0) == 125, "status")


def a_cut_file_leaves_a_program_that_failed_its_status():
    with Emulator() as emulator:
        check(with_a_file_that_is_cut(emulator, "--trace", CALLS, 7) == 7, "status")


def a_limit_that_a_file_reaches_cuts_it_and_the_host_goes_on():
    """RLIMIT_FSIZE: the kernel sends SIGXFSZ, which ends a process by default."""
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "trace")
        program = emulator.start("h", ADDRESS, ["sh", "-c", "echo up; read line; %s true" % CALLS],
                                 ["--trace", path])
        check(program.wait_for_text("up\n", 30), program.describe())
        pid = emulator.host("h")["pid"]
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (os.path.getsize(path) + 1, hard))
        program.process.stdin.close()
        check(program.wait(60) == 125, program.describe())
        # `run` has this from the host's answer at the end.
        program.expect(r"^error: --trace %s is cut: the host could not write it: File too large$" %
                       path)


def two_hosts_do_not_write_one_file():
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "out")
        holder = hold(emulator, ["--trace", path])
        expect(run(emulator, "true", host="late", address=OTHER, options=("--trace", path)), 125,
               "error: cannot write %s: another host, or another option of this one, writes it" % path)
        expect(run(emulator, "true", host="both", address=OTHER,
                   options=("--trace", path + "2", "--pcap", path + "2")), 125, "error: cannot write ")
        check("START" in read(path), "the first host's trace was emptied")
        holder.process.stdin.close()
        check(holder.wait(30) == 0, holder.describe())
        # `run` waits for a host that is ending.
        expect(run(emulator, "true", host="late", address=OTHER, options=("--trace", path)), 0)


# ---- private hosts


def a_private_run_shares_no_host_and_leaves_nothing():
    with Emulator() as emulator:
        holder = hold(emulator)
        show = 'echo "$RDMAEMU_DIR"; ls "$RDMAEMU_DIR"; readlink /proc/self/ns/net'
        result = emulator.rdmaemu("run", "--private", "--host", "h", "--", "sh", "-c", show)
        expect(result, 0)
        directory, *files, network = result.stdout.splitlines()
        check(directory != emulator.directory and not os.path.exists(directory), result.stdout)
        check([each for each in files if not each.endswith((".queue", ".log"))] == ["h.lock", "h.sock"],
              result.stdout)
        own = os.readlink("/proc/self/ns/net")
        check((network == own) == ("shares the machine's network" in result.stderr), result.stderr)
        check(len(emulator.host("h")["clients"]) == 1, "it was a client of the other host")
        holder.process.stdin.close()
        check(holder.wait(30) == 0, holder.describe())


JOBS = 10


def ten_private_runs_at_once_use_the_same_names_and_addresses():
    """Commands inside each run share its hosts. All servers listen before the first client starts."""
    emulated.need("rdma_server")
    script = ("%(run)s --host a --address 127.0.1.1 -- rdma_server </dev/null & server=$!;"
              " %(cli)s wait --host a --listening 7471 --timeout 120s && echo listening && read go &&"
              " %(run)s --host b --address 127.0.1.2 -- rdma_client -s 127.0.1.1 && wait $server" %
              {"cli": emulated.RDMAEMU, "run": emulated.RDMAEMU + " run --sysfs off"})
    with Emulator() as emulator:
        # Each run can use the same addresses if it has its own network namespace.
        if "shares" in emulator.rdmaemu("run", "--private", "--", "true").stderr:
            raise emulated.Skip("the kernel allows no network namespace")
        jobs = [emulator.start_outside([emulated.RDMAEMU, "run", "--private", "--sysfs", "off", "--",
                                        "sh", "-c", script], emulator.env) for _ in range(JOBS)]
        for each in jobs:
            check(each.wait_for_text("listening\n", 150), each.describe())
        for each in jobs:
            each.process.stdin.write(b"go\n")
            each.process.stdin.flush()
        for each in jobs:
            check(each.wait(150) == 0, each.describe())
            each.expect("^rdma_server: end 0$", "^rdma_client: end 0$")
        check(emulator.hosts() == [], "a host is left")


def the_log_of_a_private_host_stays():
    with Emulator() as emulator:
        path = write(emulator, "scenario.toml", CRASH)
        result = emulator.rdmaemu("run", "--private", "--scenario", path, "--", "ibv_devinfo")
        check(result.returncode != 0, "ibv_devinfo has survived the crash")
        log = result.stderr.partition("wrote to its log ")[2].partition(":\n")[0]
        check(read(log) == "a fault rule with crash = true ended host default\n", result.stderr)
        check(os.listdir(os.path.dirname(log)) == ["default.log"], os.listdir(os.path.dirname(log)))
        os.unlink(log)
        os.rmdir(os.path.dirname(log))


def a_limit_that_stops_a_host_is_named():
    """Of descriptors, and of the size of files, at each value up to one that suffices."""
    for limits in (["-n %d" % count for count in range(6, 17)], ["-f 0", "-f 1", "-f 8"]):
        for limit in limits:
            with Emulator() as emulator:
                result = subprocess.run(
                    ["sh", "-c", "ulimit %s; exec '%s' run --host h --address %s -- true" %
                     (limit, emulated.RDMAEMU, ADDRESS)],
                    env=emulator.env, text=True, timeout=60, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            said = "ulimit %s: status %s, %s" % (limit, result.returncode, result.stderr)
            check(result.returncode in (0, 125), said)
            causes = ("ulimit", "Too many open files", "File too large")
            check(result.returncode == 0 or any(each in result.stderr for each in causes), said)


CASES = [
    a_limit_that_stops_a_host_is_named,
    joining_a_host_in_use_names_its_clients,
    an_idle_host_that_holds_the_address_is_ended_with_a_note,
    a_host_in_use_keeps_its_address,
    a_host_has_closed_its_port_when_its_name_is_free,
    the_port_of_a_host_that_ends_is_waited_for,
    hosts_back_to_back_under_other_names_do_not_meet,
    perftest_back_to_back_finds_both_ports_free,
    the_lines_of_a_log_are_printed_and_the_log_survives_its_host,
    a_log_is_printed_after_a_program_that_succeeded_too,
    without_lines_nothing_is_printed,
    a_file_that_takes_nothing_is_an_error_at_the_start,
    a_trace_that_is_cut_later_makes_the_run_fail,
    a_capture_that_is_cut_later_makes_the_run_fail,
    a_cut_file_leaves_a_program_that_failed_its_status,
    a_limit_that_a_file_reaches_cuts_it_and_the_host_goes_on,
    two_hosts_do_not_write_one_file,
    a_private_run_shares_no_host_and_leaves_nothing,
    ten_private_runs_at_once_use_the_same_names_and_addresses,
    the_log_of_a_private_host_stays,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("report", [(case.__name__, case) for case in CASES]))
