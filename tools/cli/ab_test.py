"""Tests `rdmaemu ab` with the emulator on both sides: equal runs are the same, and differences are
found. On a machine without RDMA devices, `ab` refuses the system backend."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

# rping's main thread may end the process before its other thread gets the last event.
LAST_EVENT = "".join('[[accept]]\nreason = "a race in rping"\nprocess = "%s"\nwhat = "%s"\n'
                     'sometimes = true\n' % (process, what)
                     for process in ("rping", "rping.2")
                     for what in ("DISCONNECTED", "rdma_ack_cm_event", "rdma_get_cm_event", "exit"))
LAST_EVENT += "".join('[[accept]]\nreason = "a race in rping"\nkind = "status"\nwhat = "of %s"\n'
                      'sometimes = true\n' % role for role in ("server", "client"))

EMULATORS = ["--a", "emulator", "--b", "emulator"]
SERVER = ["--server", "rping -s -a {address} -C 3"]
CLIENT = ["--client", "rping -c -a {address} -C 3"]


def check(holds, text):
    if not holds:
        raise Failure(text)


def expect(result, status, *words):
    said = result.stdout + result.stderr
    check(result.returncode == status, "status %s instead of %s: %s" %
          (result.returncode, status, said))
    for word in words:
        check(word in said, "%r is not in: %s" % (word, said))
    return result


def write(emulator, name, text):
    path = os.path.join(emulator.directory, name)
    with open(path, "w") as file:
        file.write(text)
    return path


def one_test_twice_is_the_same():
    emulated.need("ibv_devinfo")
    with Emulator() as emulator:
        expect(emulator.rdmaemu("ab", *EMULATORS, "--", "ibv_devinfo"), 0, "\nsame\n",
               "note: on a the test ended with status 0")
        check(emulator.hosts() == [], "a host runs on")


def what_the_second_run_does_otherwise_is_found():
    emulated.need("ibv_devinfo")
    with Emulator() as emulator:
        # The test runs another command in the second run.
        marker = os.path.join(emulator.directory, "second")
        test = write(emulator, "test.sh", "if [ -e %s ]; then ibv_devices; exit 3; fi\n"
                     "touch %s; ibv_devinfo\n" % (marker, marker))
        result = expect(emulator.rdmaemu("ab", *EMULATORS, "--", "sh", test), 122,
                        "first difference:", "status of test", "status: 0 | 3")
        check("only in a" in result.stdout, result.stdout)
        os.unlink(marker)
        known = write(emulator, "known.toml", '[[accept]]\nwhat = "*"\nreason = "known"\n')
        expect(emulator.rdmaemu("ab", *EMULATORS, "--accept", known, "--", "sh", test), 0,
               "accepted: known")


def a_kept_trace_is_compared_with_a_later_run():
    emulated.need("ibv_devinfo")
    with Emulator() as emulator:
        keep = os.path.join(emulator.directory, "runs")
        expect(emulator.rdmaemu("ab", *EMULATORS, "--keep", keep, "--", "ibv_devinfo"), 0)
        check(sorted(os.listdir(keep)) == ["a.jsonl", "b.jsonl"], os.listdir(keep))
        later = ["ab", "--b-trace", os.path.join(keep, "b.jsonl")]
        expect(emulator.rdmaemu(*later, "--", "ibv_devinfo"), 0, "\nsame\n")
        expect(emulator.rdmaemu(*later, "--", "ibv_devices"), 122)
        report = json.loads(emulator.rdmaemu(*later, "--json", "--", "ibv_devices").stdout)
        check(report["same"] is False and report["differences"], report)


def a_server_and_its_client_run_on_one_backend():
    emulated.need("rping")
    with Emulator() as emulator:
        keep = os.path.join(emulator.directory, "runs")
        known = write(emulator, "known.toml", LAST_EVENT)
        expect(emulator.rdmaemu("ab", *EMULATORS, *SERVER, *CLIENT, "--keep", keep, "--accept",
                                known), 0, "\nsame", "note: on b the server ended with status",
               "note: on b the client ended with status")
        with open(os.path.join(keep, "a.jsonl")) as lines:
            calls = [json.loads(line)["what"] for line in lines]
        check("rdma_listen" in calls and "rdma_connect" in calls, calls)


def a_server_that_ignores_signals_is_ended():
    with Emulator() as emulator:
        mark = os.path.join(emulator.directory, "server.pid")
        # A child of the shell, which outlives it.
        server = ("sh -c 'trap \"\" TERM; echo $$ >> %s; rping -s -a {address} & while :; do sleep 1; done'"
                  "; true" % mark)
        emulated.need("rping")
        expect(emulator.rdmaemu("ab", *EMULATORS, "--timeout", "8s", "--server", server,
                                "--client", "ibv_devinfo"), 0,
               "note: on b the server ended with status stopped")
        with open(mark) as pids:
            left = [pid for pid in pids.read().split() if os.path.exists("/proc/" + pid)]
        check(not left, "these processes are left: %s" % left)


def a_client_that_sends_more_is_found():
    emulated.need("rping")
    with Emulator() as emulator:
        marker = os.path.join(emulator.directory, "second")
        client = write(emulator, "client.sh", "n=3; [ ! -e %s ] || n=4; touch %s\n"
                       "exec rping -c -a $1 -C $n\n" % (marker, marker))
        result = expect(emulator.rdmaemu("ab", *EMULATORS, "--server", "rping -s -a {address} -C 4",
                                         "--client", "sh %s {address}" % client), 122)
        check("call post_send" in result.stdout and "only in b" in result.stdout, result.stdout)


PAIR = """
[[program]]
name = "server"
command = "rping -s -a {address} -C 3"
until = "listens"

[[program]]
name = "client"
command = "rping -c -a {address} -C 3"
"""


def the_programs_of_a_scenario_run_in_their_order():
    emulated.need("rping")
    with Emulator() as emulator:
        keep = os.path.join(emulator.directory, "runs")
        last = '[[program]]\nname = "last"\ncommand = "ibv_devices; exit 3"\n'
        pair = write(emulator, "pair.toml", PAIR + last)
        known = write(emulator, "known.toml", LAST_EVENT)
        expect(emulator.rdmaemu("ab", *EMULATORS, "--scenario", pair, "--keep", keep, "--accept",
                                known), 0, "\nsame", "on a the server ended with status",
               "on b the client ended with status", "on b the last ended with status 3")
        check(sorted(os.listdir(keep)) == ["a.jsonl", "b.jsonl"], os.listdir(keep))
        with open(os.path.join(keep, "a.jsonl")) as lines:
            programs = [os.path.basename(line["arguments"]["program"])
                        for line in map(json.loads, lines) if line["kind"] == "start"]
        check(programs == ["rping", "rping", "ibv_devices"], programs)


def the_rules_of_a_scenario_act_on_all_programs():
    emulated.need("ibv_devinfo")
    rule = '[[fault]]\nname = "second"\nat = "call.open_device"\nnth = 2\nerrno = "ENODEV"\n'
    with Emulator() as emulator:
        pair = write(emulator, "pair.toml", rule + "".join(
            '[[program]]\nname = "%s"\ncommand = "ibv_devinfo"\n' % name for name in ("x", "y")))
        expect(emulator.rdmaemu("ab", *EMULATORS, "--scenario", pair), 0, "\nsame",
               "on b the x ended with status 0", "on b the y ended with status 1")
        # They act on a test of the command line, too.
        expect(emulator.rdmaemu("ab", *EMULATORS, "--scenario", pair, "--", "sh", "-c",
                                "ibv_devinfo; ibv_devinfo"), 0,
               "\nsame", "on b the test ended with status 1")


def rules_that_ab_cannot_apply_are_refused_by_name():
    with Emulator() as emulator:
        wire = write(emulator, "wire.toml", PAIR + '[[fault]]\nname = "lost"\nat = "cm.rtu"\n'
                     'drop = true\n')
        expect(emulator.rdmaemu("ab", "--b-address", "10.0.0.1", "--scenario", wire), 125,
               'wire.toml: rule "lost": --backend system has no cm.rtu; use a rule at event')
        host = write(emulator, "host.toml", PAIR + '[[fault]]\nname = "far"\nat = "event"\n'
                     'host = "b"\ndrop = true\n')
        expect(emulator.rdmaemu("ab", *EMULATORS, "--scenario", host), 125,
               'rule "far" is for the host b', "use program instead of host")


def what_cannot_run_has_a_status_of_its_own():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("ab", *EMULATORS, "--", "/nonexistent/test"), 125,
               "error: the test could not be run on a (emulator)")
        expect(emulator.rdmaemu("ab", *EMULATORS, "--", "true"), 125, "has no records")
        expect(emulator.rdmaemu("ab", *EMULATORS, "--timeout", "100ms", "--server", "sleep 60",
                                "--client", "true"), 125, "the server did not listen in 100ms")
        expect(emulator.rdmaemu("ab", "--b-trace", "/nonexistent", "--", "true"), 125,
               "cannot read")
        expect(emulator.rdmaemu("ab", "--b-device", "nosuch0", "--", "ibv_devinfo"), 125,
               "could not be run on b (system)")


def wrong_words_are_errors():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("ab"), 2, "rdmaemu ab -- ./my_test")
        expect(emulator.rdmaemu("ab", "--server", "x"), 2, "--server and --client")
        expect(emulator.rdmaemu("ab", *SERVER, *CLIENT, "--", "x"), 2, "give either a test behind --")
        expect(emulator.rdmaemu("ab", *SERVER, *CLIENT), 2, "--b-address")
        expect(emulator.rdmaemu("ab", "--scenario", "/nonexistent"), 125, "/nonexistent")
        rules = write(emulator, "rules.toml", '[[fault]]\nat = "event"\n')
        expect(emulator.rdmaemu("ab", *EMULATORS, "--scenario", rules), 125, "no [[program]]")
        pair = write(emulator, "pair.toml", PAIR)
        expect(emulator.rdmaemu("ab", "--scenario", pair), 2, "--b-address")
        expect(emulator.rdmaemu("ab", "--timeout", "soon", "--", "x"), 2, "soon")
        expect(emulator.rdmaemu("ab", "--c", "x"), 2, "--c")
        expect(emulator.rdmaemu("ab", "--a", "cloud", "--", "x"), 2, "cloud")
        expect(emulator.rdmaemu("ab", "--b-trace", "t", "--b-device", "d", "--", "x"), 2,
               "--b-device")
        help_text = expect(emulator.rdmaemu("ab", "--help"), 0, "Example", "rdmaemu ab").stdout
        check("ab-programs" not in emulator.rdmaemu("--help").stdout + help_text, help_text)


CASES = [
    one_test_twice_is_the_same,
    what_the_second_run_does_otherwise_is_found,
    a_kept_trace_is_compared_with_a_later_run,
    a_server_and_its_client_run_on_one_backend,
    a_server_that_ignores_signals_is_ended,
    a_client_that_sends_more_is_found,
    the_programs_of_a_scenario_run_in_their_order,
    the_rules_of_a_scenario_act_on_all_programs,
    rules_that_ab_cannot_apply_are_refused_by_name,
    what_cannot_run_has_a_status_of_its_own,
    wrong_words_are_errors,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("ab", [(case.__name__, case) for case in CASES]))
