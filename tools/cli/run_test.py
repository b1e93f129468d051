"""`rdmaemu run` on an existing host: rules that never fired, hosts with other options, and the
comparison with an earlier run."""

import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses  # noqa: E402

ADDRESS, OTHER = free_addresses(2)
RULE = 'name = "no memory", at = "call.open_device", errno = "ENOMEM"'


def check(holds, text):
    if not holds:
        raise Failure(text)


def expect(result, status, *words):
    """Checks a result's status, and that stderr contains the words."""
    check(result.returncode == status, "status %s instead of %s: %s%s" %
          (result.returncode, status, result.stdout, result.stderr))
    for word in words:
        check(word in result.stderr, "%r is not in: %s" % (word, result.stderr))


def run(emulator, *command, options=()):
    return emulator.rdmaemu("run", "--host", "h", *options, "--", *command)


def start_daemon(emulator, *options):
    """Starts a host that waits for its first program."""
    expect(emulator.rdmaemu("host", "--name", "h", "--address", ADDRESS, *options, "--daemonize"), 0)
    return emulator.host("h")["pid"]


def hold(emulator, *options):
    """Starts a host with a client that runs until its input ends."""
    program = emulator.start("h", ADDRESS, ["sh", "-c", "echo up; exec cat"], options)
    check(program.wait_for_text("up\n", 30), program.describe())
    return program


def add_rule(emulator, rule=RULE):
    expect(emulator.rdmaemu("fault", "add", "--host", "h", rule), 0)


def write_scenario(emulator, text):
    path = os.path.join(emulator.directory, "scenario.toml")
    with open(path, "w") as file:
        file.write(text)
    return path


# ---- statuses


def help_tells_the_statuses_of_a_program_that_did_not_start():
    with Emulator() as emulator:
        said = " ".join(emulator.rdmaemu("run", "--help").stdout.split())
        for status, why, command, options in (
                (127, "there is no CMD", "/nosuch/program", ("--address", ADDRESS)),
                (126, "CMD cannot be executed", "/etc/passwd", ("--address", ADDRESS)),
                (125, "rdmaemu itself failed", "true", ("--clock", "fast"))):
            check("%d %s" % (status, why) in said, said)
            expect(run(emulator, command, options=options), status)
        check("123 with --strict, CMD succeeded and a rule never fired" in said, said)
        check("122 CMD succeeded and the run departed from the trace" in said, said)
        check("RDMAEMU_DIR" in said, said)


# ---- rules


def a_rule_that_was_added_and_never_fired_is_named_and_strict_fails():
    with Emulator() as emulator:
        holder = hold(emulator)
        expect(run(emulator, "true", options=("--strict",)), 0)
        add_rule(emulator)
        unfired = ': rule "no memory" never fired; it matched 0 times at call.open_device'
        expect(run(emulator, "true"), 0, "warning" + unfired)
        expect(run(emulator, "true", options=("--strict",)), 123, "error" + unfired)
        expect(run(emulator, "false", options=("--strict",)), 1, "error" + unfired)
        check(run(emulator, "ibv_devinfo").returncode != 0, "the rule did not fire")
        result = run(emulator, "true", options=("--strict",))
        expect(result, 0)
        check("rule" not in result.stderr, result.stderr)
        holder.process.stdin.close()
        check(holder.wait(30) == 0, holder.describe())


def a_host_without_rules_that_has_gone_is_no_news_but_with_strict():
    with Emulator() as emulator:
        stop = [emulated.RDMAEMU, "stop", "h"]
        result = run(emulator, *stop, options=("--address", ADDRESS))
        expect(result, 0)
        check(result.stderr == "", result.stderr)
        expect(run(emulator, *stop, options=("--address", ADDRESS, "--strict")), 123,
               "error: the host has ended")


def closed_streams_stay_closed_for_the_program_and_get_no_messages():
    with Emulator() as emulator:
        out = os.path.join(emulator.directory, "out")
        opened = 'for n in 0 1 2; do test -e /proc/$$/fd/$n && echo $n >>%s; done; cp %s.lock %s.lock' % (
            out, os.path.join(emulator.directory, "h"), out)
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            open(out, "w").close()
            line = '"$0" run --host h -- sh -c "$1" ' + closed
            status = subprocess.run(["sh", "-c", line, emulated.RDMAEMU, opened],
                                    env=emulator.env).returncode
            check(status == 0, "%s: status %d" % (closed, status))
            with open(out) as text:
                left = text.read().split()
            gone = {"<": "0", ">": "1", "2": "2"}
            check(left == sorted({"0", "1", "2"} - {gone[each[0]] for each in closed.split()}),
                  "%s: open are %s" % (closed, left))
            with open(out + ".lock") as lock:
                check("pid" in json.load(lock), "the lock has no record")
            log = os.path.join(emulator.directory, "h.log")
            check(not os.path.exists(log) or os.path.getsize(log) == 0, "the log is not empty")


def an_ignored_sigchld_is_the_programs_alone():
    with Emulator() as emulator:
        show = "import signal; print(signal.getsignal(signal.SIGCHLD).name)"
        for before in (signal.SIG_IGN, signal.SIG_DFL):
            result = subprocess.run([emulated.RDMAEMU, "run", "--host", "h", "--address", ADDRESS,
                                     "--", sys.executable, "-c", show + "; exit(3)"],
                                    env=emulator.env, text=True, capture_output=True, timeout=60,
                                    preexec_fn=lambda: signal.signal(signal.SIGCHLD, before))
            expect(result, 3)
            check(result.stdout == before.name + "\n", result.stdout)


def a_trace_whose_host_was_killed_fails_the_run():
    with Emulator() as emulator:
        trace = os.path.join(emulator.directory, "trace.jsonl")
        program = hold(emulator, "--trace", trace)
        os.kill(emulator.host("h")["pid"], signal.SIGKILL)
        program.process.stdin.close()
        check(program.wait(30) == 125, program.describe())
        check("may lack its last records: host h was killed" in program.output, program.describe())


def run_under(*rules):
    """Runs a program that tolerates any failure on its own host with these rules and --strict."""
    with Emulator() as emulator:
        path = write_scenario(emulator, "".join("[[fault]]\n%s\n" % rule for rule in rules))
        return run(emulator, "sh", "-c", "ibv_devinfo; true",
                   options=("--address", ADDRESS, "--scenario", path, "--strict"))


def strict_passes_after_a_crash_that_fired():
    crash = 'name = "end"\nat = "call.query_port"\ncrash = true'
    unfired = 'name = "other"\nat = "call.reg_mr"\nerrno = "ENOMEM"'
    expect(run_under(crash), 0)
    result = run_under(crash, unfired)
    check(result.returncode != 0, "strict let an unfired rule pass: " + result.stderr)
    check('rule "other" never fired' in result.stderr and '"end"' not in result.stderr, result.stderr)


def a_rule_that_matched_nothing_is_told_what_happened_at_its_door():
    result = run_under('at = "call.reg_mr"\nerrno = "ENOMEM"')
    check("it matched 0 times at call.reg_mr; the host saw: 0 at call.reg_mr, " in result.stderr and
          " at call.list_devices" in result.stderr, result.stderr)


def a_rule_that_is_too_long_is_refused_with_its_own_message():
    with Emulator() as emulator:
        holder = hold(emulator)
        rule = 'at = "cm.req", drop = true'
        fits = emulator.rdmaemu("fault", "add", "--host", "h", rule + " " * (8192 - len(rule)))
        check(fits.returncode == 0, fits.stderr)
        refused = emulator.rdmaemu("fault", "add", "--host", "h", rule + " " * (8193 - len(rule)))
        check(refused.returncode == 1 and "the rule is longer than 8192 bytes" in refused.stderr,
              refused.stderr)
        holder.process.stdin.close()
        check(holder.wait(30) == 0, holder.describe())


# ---- other hosts


def a_program_does_not_wait_for_stopped_hosts_of_other_addresses():
    """A wait of 5 s for each of them would exceed the test's limit."""
    hosts = []
    with Emulator() as emulator:
        try:
            for i in range(13):
                address = emulated.free_addresses(1)[0]
                hosts.append(emulator.start_host("stopped%d" % i, ["--address", address]).process.pid)
            hosts = [host["pid"] for host in emulator.hosts()]
            for pid in hosts:
                os.kill(pid, signal.SIGSTOP)
            expect(run(emulator, "true"), 0)
        finally:
            for pid in hosts:
                os.kill(pid, signal.SIGCONT)


# ---- a host with other options


def a_host_that_nobody_uses_is_ended_with_a_note_that_says_why():
    with Emulator() as emulator:
        pid = start_daemon(emulator)
        result = run(emulator, "true", options=("--address", OTHER))
        expect(result, 0)
        check(result.stderr == "note: host h (pid %d) was idle and has been stopped, because it ran with "
              "address %s instead of %s; its rules and state are lost\n" % (pid, ADDRESS, OTHER),
              result.stderr)


def a_host_that_was_given_rules_is_not_ended():
    with Emulator() as emulator:
        pid = start_daemon(emulator)
        add_rule(emulator)
        expect(run(emulator, "true", options=("--address", OTHER)), 125,
               "error: host h (pid %d) has rules of `fault add` and runs with address %s instead of %s; "
               "stop it with: rdmaemu stop h" % (pid, ADDRESS, OTHER))
        check(emulator.host("h")["pid"] == pid, "another host was started")
        expect(emulator.rdmaemu("fault", "clear", "--host", "h"), 0)
        expect(run(emulator, "true", options=("--address", OTHER)), 0, "note: host h (pid %d)" % pid)


def a_host_with_a_scenarios_rules_alone_is_ended():
    with Emulator() as emulator:
        # The second rule is not for this host.
        path = write_scenario(emulator, '[[fault]]\nat = "call.open_device"\nerrno = "EIO"\n'
                              '[[fault]]\nhost = "other"\nat = "call.open_device"\nerrno = "EIO"\n')
        pid = start_daemon(emulator, "--scenario", path)
        add_rule(emulator)
        expect(run(emulator, "true", options=("--seed", "7")), 125, "has rules of `fault add`")
        expect(emulator.rdmaemu("fault", "remove", "--host", "h", "no memory"), 0)
        expect(run(emulator, "true", options=("--seed", "7", "--address", ADDRESS)), 0,
               "note: host h (pid %d)" % pid)


def a_host_in_the_foreground_is_not_ended():
    with Emulator() as emulator:
        program = emulator.start_host("h", ["--address", ADDRESS])
        expect(run(emulator, "true", options=("--seed", "7")), 125,
               "was started by `rdmaemu host` and runs with seed (none) instead of 7")
        expect(emulator.rdmaemu("host", "--name", "h", "--seed", "7"), 1,
               "was started by `rdmaemu host`")
        expect(run(emulator, "true"), 0)
        check(program.process.poll() is None, program.describe())


def a_scenario_that_was_changed_is_another_one():
    with Emulator() as emulator:
        path = write_scenario(emulator, '[[fault]]\nat = "call.open_device"\nnth = 2\nerrno = "EIO"\n')
        holder = hold(emulator, "--scenario", path)
        options = ("--scenario", path)
        expect(run(emulator, "true", options=options), 0)
        os.utime(path, (1, 1))
        expect(run(emulator, "true", options=options), 0)
        write_scenario(emulator, '[[fault]]\nat = "call.open_device"\nnth = 3\nerrno = "EIO"\n')
        expect(run(emulator, "true", options=options), 125,
               "is in use by ", " and runs with scenario %s as it was before it was changed; stop it with" %
               path)
        holder.process.stdin.close()
        check(holder.wait(30) == 0, holder.describe())


# ---- an earlier run


def seeded_trace(emulator):
    path = os.path.join(emulator.directory, "first")
    expect(run(emulator, "true", options=("--address", ADDRESS, "--seed", "7", "--trace", path)), 0)
    emulator.rdmaemu("stop", "h")
    return path


def a_replay_does_not_overwrite_what_it_reads():
    with Emulator() as emulator:
        path = seeded_trace(emulator)
        link = path + ".link"
        os.symlink(path, link)
        with open(path) as file:
            before = file.read()
        for option in ("--trace", "--pcap"):
            for name in (path, link):
                expect(run(emulator, "true", options=("--address", ADDRESS, "--replay", path, option,
                                                      name)), 125,
                       "error: %s would overwrite %s, which --replay reads" % (option, path))
        with open(path) as file:
            check(file.read() == before, "it was overwritten")
        check(emulator.hosts() == [], "a host was started all the same")


def a_replay_takes_no_other_seed_than_the_traces():
    with Emulator() as emulator:
        options = ("--address", ADDRESS, "--replay", seeded_trace(emulator), "--seed")
        expect(run(emulator, "true", options=(*options, "8")), 125,
               "error: --seed 8 is not the seed of ", "which is 7")
        check(emulator.hosts() == [], "a host was started all the same")
        expect(run(emulator, "true", options=(*options, "07")), 0, "the run took the same")


CASES = [
    help_tells_the_statuses_of_a_program_that_did_not_start,
    a_rule_that_was_added_and_never_fired_is_named_and_strict_fails,
    a_host_without_rules_that_has_gone_is_no_news_but_with_strict,
    closed_streams_stay_closed_for_the_program_and_get_no_messages,
    an_ignored_sigchld_is_the_programs_alone,
    a_trace_whose_host_was_killed_fails_the_run,
    strict_passes_after_a_crash_that_fired,
    a_rule_that_matched_nothing_is_told_what_happened_at_its_door,
    a_rule_that_is_too_long_is_refused_with_its_own_message,
    a_program_does_not_wait_for_stopped_hosts_of_other_addresses,
    a_host_that_nobody_uses_is_ended_with_a_note_that_says_why,
    a_host_that_was_given_rules_is_not_ended,
    a_host_with_a_scenarios_rules_alone_is_ended,
    a_host_in_the_foreground_is_not_ended,
    a_scenario_that_was_changed_is_another_one,
    a_replay_does_not_overwrite_what_it_reads,
    a_replay_takes_no_other_seed_than_the_traces,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("run", [(case.__name__, case) for case in CASES]))
