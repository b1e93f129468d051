"""Tests `rdmaemu sweep --two-hosts`: a server and its client run on a host each, and a fault is on
the host that its place names."""

import json
import os
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, HERE)
import emulated  # noqa: E402
from emulated import Emulator  # noqa: E402
from sweep import check, findings, sweep  # noqa: E402

SERVER, CLIENT = "127.0.1.1", "127.0.1.2"  # the default addresses
RPING = ["--two-hosts", "--timeout", "4s", "--server", "rping -s -C 1 -a " + SERVER, "--client",
         "rping -c -C 1 -a " + SERVER]
# A failed registration makes the client crash (docs/found.md).
UCMATOSE = ["--two-hosts", "--timeout", "4s", "--server", "ucmatose -b " + SERVER, "--client",
            "ucmatose -b %s -s %s" % (CLIENT, SERVER)]
EXAMPLES = os.path.abspath("docs/examples")


def a_fault_is_on_the_host_that_its_place_names():
    emulated.need("ucmatose")
    with Emulator() as emulator:
        for host in ("client", "server"):
            case = host + "/call.reg_mr#1: errno=ENOMEM"
            results, report = sweep(emulator, host, "--case", case, *UCMATOSE, status=1)
            one = results["cases"][0]
            check(one["case"] == case and 'host = "%s"' % host in one["rules"], one)
            for program in ("client", "server"):
                with open(os.path.join(report, one["report"], program + ".jsonl")) as trace:
                    calls = [json.loads(line) for line in trace]
                failed = [each for each in calls
                          if each["what"] == "reg_mr" and each.get("errno") == "ENOMEM"]
                check(len(failed) == (program == host), "calls of the %s: %s" % (program, failed))
            for file in ("server/program.jsonl", "server/ladder.html", "client/ladder.html",
                         "server.jsonl", "client.jsonl"):
                check(os.path.exists(os.path.join(report, one["report"], file)), "no " + file)


def the_printed_command_shows_a_crash_again():
    emulated.need("ucmatose")
    with Emulator() as emulator:
        results, _ = sweep(emulator, "again", "--case", "client/call.reg_mr#1: errno=ENOMEM",
                           *UCMATOSE, status=1)
        again = emulator.rdmaemu(*shlex.split(results["cases"][0]["command"])[1:])
        check(again.returncode == 1 and "client: signal 11" in again.stdout,
              again.stdout + again.stderr)


def the_places_of_both_hosts_are_swept():
    emulated.need("rping")
    with Emulator() as emulator:
        results, _ = sweep(emulator, "both", "--points", "call.create_id,call.accept,call.connect,"
                           "event.connect_request,event.connect_response,cm.*", "--faults",
                           "errno=ENOMEM,delay", "--per-site", "1", "--limit", "20s", *RPING)
        cases = [one["case"] for one in results["cases"]]
        for place in ("server/call.create_id#1", "client/call.create_id#1", "server/call.accept#1",
                      "client/call.connect#1", "server/event.connect_request#1",
                      "client/event.connect_response#1", "server/cm.req#1", "client/cm.rep#1"):
            check(any(case.startswith(place) for case in cases), "no %s: %s" % (place, cases))
        for place in ("server/call.connect", "client/event.connect_request"):
            check(not any(case.startswith(place) for case in cases), "%s: %s" % (place, cases))
        missed = [one for one in results["cases"] if one["verdict"] in ("not-reached", "not-run")]
        check(not missed, "%s" % missed)


def each_host_has_the_stacks_of_its_own_program():
    with Emulator() as emulator:
        binaries = os.path.join(EXAMPLES, "kv")
        listed = emulator.rdmaemu(
            "sweep", "--two-hosts", "--list", "--report", os.path.join(emulator.directory, "list"),
            "--server", binaries + "/kv_server 7471", "--client",
            binaries + "/kv_client %s 7471 put name value" % SERVER)
        check(listed.returncode == 0, listed.stdout + listed.stderr)
        stacks = {}
        for line in listed.stdout.splitlines():
            if line.startswith(("client/", "server/")):
                place = line.split(":")[0]
            elif place.split("/")[1].startswith("call."):
                stacks.setdefault(place, []).append(line)
        for place, program in (("client/call.connect", "client"), ("server/call.accept", "server")):
            check(any(program in line for line in stacks.get(place, [])),
                  "%s: %s" % (place, listed.stdout))


def a_pattern_selects_one_host():
    emulated.need("rping")
    with Emulator() as emulator:
        results, _ = sweep(emulator, "one", "--points", "client/call.create_*", "--faults",
                           "errno=ENOMEM", "--per-site", "1", *RPING)
        check(results["cases"] and all(one["case"].startswith("client/call.create_")
                                       for one in results["cases"]), "%s" % results["cases"])


def the_hosts_share_one_virtual_time():
    emulated.need("rping")
    with Emulator() as emulator:
        # The client sends its request 16 times, which takes more than a minute of virtual time.
        results, _ = sweep(emulator, "time", "--case", "server/cm.req#1: drop all", "--limit", "30s",
                           *RPING)
        check(results["cases"][0]["verdict"] not in ("hung", "not-reached", "not-run"),
              "%s" % results["cases"])


def random_faults_are_on_both_hosts():
    emulated.need("rping")
    with Emulator() as emulator:
        results, _ = sweep(emulator, "random", "--random", "--max-runs", "20", "--seed", "5",
                           "--points", "event.*,cm.*", "--faults", "delay,duplicate,drop",
                           *RPING)
        faults = [one["case"].split(" + ") for one in results["cases"]]
        check(any(len(each) > 1 for each in faults), "%s" % faults)
        for host in ("server/", "client/"):
            check(any(one.startswith(host) for each in faults for one in each), "%s" % faults)
        check(all(one["verdict"] != "not-run" for one in results["cases"]), "%s" % results["cases"])


def one_combination_has_faults_on_both_hosts():
    emulated.need("rping")
    case = "server/cm.req#1: delay + client/cm.rep#1: delay"
    with Emulator() as emulator:
        results, _ = sweep(emulator, "combination", "--case", case, *RPING)
        check([(one["case"], one["verdict"]) for one in results["cases"]] == [(case, "survived")],
              "%s" % results["cases"])


def a_correct_program_has_no_finding():
    with Emulator() as emulator:
        binaries = os.path.join(EXAMPLES, "kv")
        results, _ = sweep(emulator, "kv", "--two-hosts", "--points", "call.*,event.*", "--faults",
                           "errno=*,event=*", "--max-runs", "40", "--server-address", "127.0.2.1",
                           "--client-address", "127.0.2.2", "--server", binaries + "/kv_server 7471",
                           "--client", binaries + "/kv_client 127.0.2.1 7471 put name value")
        check(len(results["cases"]) > 30, "only %d cases" % len(results["cases"]))
        check(findings(results) == [], "%s" % findings(results))


def mistakes_in_the_command_are_explained():
    with Emulator() as emulator:
        pair = ["--server", "x", "--client", "y"]
        for words, said in (
                (["--two-hosts", "--", "true"], "--client"),
                (["--server-address", "127.0.1.9", *pair], "--two-hosts"),
                (["--two-hosts", "--address", "127.0.1.9", *pair], "--server-address"),
                (["--two-hosts", "--backend", "system", *pair], "--two-hosts needs the emulator"),
                (["--case", "client/call.reg_mr#1: errno=ENOMEM", *pair], "--two-hosts"),
                (["--two-hosts", "--case", "call.reg_mr#1: errno=ENOMEM", *pair], "server/call"),
                (["--two-hosts", "--case", "a/call.reg_mr#1: errno=ENOMEM", *pair], "server/call")):
            result = emulator.rdmaemu("sweep", *words)
            check(result.returncode == 2 and said in result.stderr,
                  "%s: %s %s" % (words, result.returncode, result.stderr))


def main():
    return emulated.run_cases("sweep.two_hosts", [(each.__name__, each) for each in (
        a_fault_is_on_the_host_that_its_place_names, the_printed_command_shows_a_crash_again,
        the_places_of_both_hosts_are_swept, each_host_has_the_stacks_of_its_own_program, a_pattern_selects_one_host,
        the_hosts_share_one_virtual_time, random_faults_are_on_both_hosts, one_combination_has_faults_on_both_hosts,
        a_correct_program_has_no_finding, mistakes_in_the_command_are_explained)], at_once=2)


if __name__ == "__main__":
    sys.exit(main())
