"""Runs the same programs twice. Tests which values a seed fixes, the messages of `rdmaemu run`
about the seed, and the first difference from an earlier run.

usage: replay.py WORKER
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses  # noqa: E402

WORKER = os.path.abspath(sys.argv[1])
PORT, CONNECTS, RUNS, UNCHANGED_RUNS, LIMIT_S = "7471", 10, 50, 20, 60
BY_CHANCE = """
[[fault]]
name = "lost"
at = "cm.req"
drop = true
probability = 0.4
[[fault]]
name = "late"
at = "cm.rep"
delay_ms = 20
probability = 0.5
[[fault]]
name = "twice"
at = "cm.rtu"
duplicate = 1
probability = 0.5
"""
ALL_LOST = '[[fault]]\nname = "all lost"\nat = "cm.req"\ndrop = true\n'


def scenario_file(emulator, text):
    path = os.path.join(emulator.directory, "scenario.toml")
    with open(path, "w") as out:
        out.write(text)
    return path


def records(path):
    """Returns the records of a trace without their times."""
    with open(path) as lines:
        all_records = [json.loads(line) for line in lines]
    for record in all_records:
        del record["time"]
    return all_records


def client_and_server(address, seed, scenario=BY_CHANCE, trace=None, options=()):
    """Returns the trace of a host on which one process connects to another, and the output of the
    run."""
    with Emulator() as emulator:
        path = trace or os.path.join(emulator.directory, "trace")
        seeded = ["--seed", str(seed)] if seed is not None else []
        common = ["--clock", "virtual", "--scenario", scenario_file(emulator, scenario),
                  "--trace", path, *seeded]
        command = [WORKER, "serve", address, PORT, "0"]
        server = emulator.start("a", address, command, [*common, *options])
        if not server.wait_for_text("listening", LIMIT_S):
            raise Failure(server.describe())
        client = emulator.start("a", address, [WORKER, "connect", address, PORT, str(CONNECTS)])
        if client.wait(LIMIT_S) != 0:
            raise Failure(client.describe())
        # The server would run for ever.
        server.process.terminate()
        server.wait(LIMIT_S)
        if emulator.rdmaemu("stop", "a").returncode not in (0, 1):
            raise Failure("the host did not stop")
        return records(path), server.output


def firings(trace):
    return [(record["object"], record["what"], record["at"])
            for record in trace if record["kind"] == "fault"]


def two_processes_fire_the_same_list_in_every_run():
    address = free_addresses(1)[0]
    first = firings(client_and_server(address, 7)[0])
    if len(first) < 3:  # each rule fires about every other time
        raise Failure("the rules have not fired: %s" % first)
    for number in range(1, RUNS):
        again = firings(client_and_server(address, 7)[0])
        if again != first:
            raise Failure("run %d fired\n%s\ninstead of\n%s" % (number, again, first))


def another_seed_fires_another_list():
    address = free_addresses(1)[0]
    lists = {str(firings(client_and_server(address, seed)[0])) for seed in (7, 8, 9)}
    if len(lists) != 3:
        raise Failure("two seeds, one list: %s" % lists)


def one_process(emulator, address, *options):
    """Connects to an address without a listener."""
    return emulator.rdmaemu(
        "run", "--host", "a", "--address", address, "--clock", "virtual", *options, "--", WORKER,
        "connect", address, PORT)


def a_seed_fixes_every_number():
    """With one process, all records of two runs are the same, including their numbers."""
    address = free_addresses(1)[0]
    traces = []
    for seed in ("7", "7", "8"):
        with Emulator() as emulator:
            path = os.path.join(emulator.directory, "trace")
            one_process(emulator, address, "--seed", seed, "--trace", path)
            emulator.rdmaemu("stop", "a")
            # The first record has the seed. The result may depend on whether `stop` still found the
            # host.
            traces.append([record for record in records(path)
                           if record["kind"] != "host" and record["what"] != "host_stop"])
    if traces[0] != traces[1]:
        raise Failure("one seed, two runs:\n%s\n%s" % (traces[0], traces[1]))
    numbers = [[record["local_comm_id"] for record in trace if record["what"] == "REQ"]
               for trace in (traces[0], traces[2])]
    if not numbers[0] or numbers[0] == numbers[1]:
        raise Failure("two seeds, one communication id: %s" % numbers)


def the_seed_of_a_run_that_failed_is_printed_and_repeats_it():
    address = free_addresses(1)[0]

    def seed_of(*options):
        with Emulator() as emulator:
            result = emulator.rdmaemu("run", "--host", "a", "--address", address, *options, "--",
                                      "sh", "-c", "exit 3")
        said = re.search(r"^note: the seed of host a was (\S+);", result.stderr, re.MULTILINE)
        if result.returncode != 3 or not said:
            raise Failure("status %s, %s" % (result.returncode, result.stderr))
        return said.group(1)

    if seed_of("--seed", "4711") != "4711":
        raise Failure("another seed than was given")
    chosen = seed_of()
    if not re.fullmatch("0x[0-9a-f]{64}", chosen) or chosen == seed_of():
        raise Failure("not a random seed: " + chosen)
    if seed_of("--seed", chosen) != chosen:
        raise Failure("the printed seed is another when it is given")


def a_run_that_succeeds_keeps_its_seed():
    with Emulator() as emulator:
        result = emulator.rdmaemu("run", "--host", "a", "--address", free_addresses(1)[0], "--",
                                  "true")
        if result.returncode != 0 or result.stderr:
            raise Failure(result.stderr)


def replayed(address, before, *options):
    """Returns the output of a second run that replays a first one with the options `before`."""
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "first")
        one_process(emulator, address, "--seed", "7", "--trace", path, *before(emulator))
        emulator.rdmaemu("stop", "a")
        return one_process(emulator, address, "--replay", path, "--strict",
                           *[each(emulator) if callable(each) else each for each in options])


def a_run_that_is_the_same_says_so():
    result = replayed(free_addresses(1)[0], lambda _: [])
    if result.returncode != 0 or "the run took the same" not in result.stderr:
        raise Failure(result.stderr)


def a_run_that_is_not_says_at_which_record_it_left():
    result = replayed(free_addresses(1)[0],
                      lambda emulator: ["--scenario", scenario_file(emulator, ALL_LOST)])
    if result.returncode != 122 or not re.search(
            r'error: the run left \S+/first at line \d+, the host: there fault drop = true "all lost" at cm\.req, here '
            r"no more of it", result.stderr):
        raise Failure("%s: %s" % (result.returncode, result.stderr))


def a_run_that_leaves_says_so_while_it_goes_on():
    """The message appears once during the run, and the difference again at its end."""
    address = free_addresses(1)[0]
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "first")
        one_process(emulator, address, "--seed", "7", "--trace", path, "--scenario",
                    scenario_file(emulator, ALL_LOST))
        emulator.rdmaemu("stop", "a")
        # Now no REQ is lost. The program receives one and then waits.
        program = emulator.start(
            "a", address, ["sh", "-c", "%s connect %s %s; read line" % (WORKER, address, PORT)],
            ["--clock", "virtual", "--replay", path, "--strict"])
        if not program.wait_for_text("warning: the run now leaves", LIMIT_S):
            raise Failure(program.describe())
        if program.process.poll() is not None:
            raise Failure("the program has ended\n" + program.describe())
        program.process.stdin.close()
        if program.wait(LIMIT_S) in (0, None) or program.output.count("now leaves") != 1:
            raise Failure(program.describe())
        program.expect(r"^warning: the run now leaves \S+/first at its end, the host: there no more of "
                       r"it, here cm\.receive REQ$",
                       r"^error: the run left \S+/first at line \d+, the host: there fault drop")


def rping_ended(status, output):
    """rping closes its channel while its thread may be about to wait for an event there. The thread
    then ends the program with a status of its own, as on a kernel."""
    return status == 0 or "rdma_get_cm_event: Bad file descriptor" in output


def rping_on_one_host(emulator, address, *options):
    """Server and client in one run; the shell starts the client when the server listens."""
    both = ("rping -s -a {0} -C 3 & '{1}' wait --host a --listening 7174 &&"
            " rping -c -a {0} -C 3; status=$?; wait; exit $status").format(address, emulated.RDMAEMU)
    return emulator.rdmaemu("run", "--host", "a", "--address", address, "--clock", "virtual", *options,
                            "--", "sh", "-c", both)


def rping_on_two_hosts(emulator, addresses, *options_of_each):
    """What `rdmaemu run` said of the server's and of the client's host."""
    server = emulator.start("a", addresses[0], ["rping", "-s", "-a", addresses[0], "-C", "3"],
                            ["--clock", "virtual", *options_of_each[0]])
    waited = emulator.rdmaemu("wait", "--host", "a", "--listening", "7174")
    client = emulator.start("b", addresses[1], ["rping", "-c", "-a", addresses[0], "-C", "3"],
                            ["--clock", "virtual", *options_of_each[1]])
    if waited.returncode != 0 or not all(
            rping_ended(each.wait(LIMIT_S), each.output) for each in (client, server)):
        raise Failure("%s\n%s\n%s" % (waited.stderr, server.describe(), client.describe()))
    return server.output, client.output


def a_pair_that_does_not_change_passes_each_time():
    """Although rping's client may exit before or after it gets DISCONNECTED."""
    emulated.need("rping")
    address = free_addresses(1)[0]
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "first")
        rping_on_one_host(emulator, address, "--seed", "7", "--trace", path)
        emulator.rdmaemu("stop", "a")
        for number in range(UNCHANGED_RUNS):
            again = rping_on_one_host(emulator, address, "--replay", path, "--strict")
            if (not rping_ended(again.returncode, again.stderr) or
                    "the run took the same" not in again.stderr):
                raise Failure("run %d: %s" % (number, again.stderr))
            emulator.rdmaemu("stop", "a")


def each_host_of_a_pair_that_does_not_change_passes_each_time():
    emulated.need("rping")
    addresses = free_addresses(2)
    with Emulator() as emulator:
        paths = [os.path.join(emulator.directory, name) for name in ("server", "client")]
        rping_on_two_hosts(emulator, addresses, *[["--seed", "7", "--trace", path] for path in paths])
        for number in range(UNCHANGED_RUNS):
            for host in ("a", "b"):
                emulator.rdmaemu("stop", host)
            said = rping_on_two_hosts(emulator, addresses,
                                      *[["--replay", path, "--strict"] for path in paths])
            if not all("the run took the same" in each for each in said):
                raise Failure("run %d: %s\n%s" % (number, *said))


def what_cannot_be_replayed_is_said():
    with Emulator() as emulator:
        address = free_addresses(1)[0]
        path = os.path.join(emulator.directory, "first")
        one_process(emulator, address, "--trace", path)
        emulator.rdmaemu("stop", "a")
        for trace, words in ((path, "names no seed"), (WORKER, "line 1 is not a record"),
                             ("/nonexistent", "No such file")):
            result = one_process(emulator, address, "--replay", trace)
            if result.returncode != 125 or words not in result.stderr:
                raise Failure("%s: %s" % (result.returncode, result.stderr))


if __name__ == "__main__":
    sys.exit(emulated.run_cases("replay", [(case.__name__, case) for case in (
        two_processes_fire_the_same_list_in_every_run, another_seed_fires_another_list,
        a_seed_fixes_every_number, the_seed_of_a_run_that_failed_is_printed_and_repeats_it,
        a_run_that_succeeds_keeps_its_seed, a_run_that_is_the_same_says_so,
        a_run_that_is_not_says_at_which_record_it_left, a_run_that_leaves_says_so_while_it_goes_on,
        a_pair_that_does_not_change_passes_each_time,
        each_host_of_a_pair_that_does_not_change_passes_each_time, what_cannot_be_replayed_is_said)], at_once=2))
