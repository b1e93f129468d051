"""The rdmaemu command: statuses, environment, messages, and the start and end of hosts."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from cli_support import ADDRESS, OTHER, check, eventually, expect, hold, let_go, run  # noqa: E402
from emulated import Emulator  # noqa: E402

CALL_HELLO, CALL_STATUS = 1, 3


def connect(emulator, host="h"):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(30)
    connection.connect(os.path.join(emulator.directory, host + ".sock"))
    return connection


def call(op, body=b""):
    return struct.pack("=II", op, len(body)) + body


# ---- the machine's own devices


def without_a_device_the_system_backend_says_what_it_looked_for():
    with Emulator() as emulator:
        result = emulator.rdmaemu("run", "--backend", "system", "--device", "nosuch0", "--", "true")
        expect(result, 125, "/sys/class/infiniband", "nosuch0" if os.path.exists(
            "/sys/class/infiniband") else "modprobe rdma_rxe")


def the_system_backend_refuses_by_name_what_needs_the_emulator():
    with Emulator() as emulator:
        for option in (("--address", ADDRESS), ("--profile", "siw"),
                       ("--silent-net", "10.0.0.0/8"), ("--gateway", ADDRESS), ("--pcap", "p"),
                       ("--payload-shortcuts", "off")):
            result = emulator.rdmaemu("run", "--backend", "system", *option, "--", "true")
            expect(result, 125, option[0] + " needs the emulator")
        expect(emulator.rdmaemu("run", "--backend", "system", "--device", "a,b", "--", "true"), 125,
               "one --device")
        expect(emulator.rdmaemu("run", "--backend", "system", "--device", "rxe0=rxe", "--", "true"),
               125, "one --device")
        expect(emulator.rdmaemu("run", "--backend", "nosuch", "--", "true"), 2, "--backend", "system")
        expect(emulator.rdmaemu("run", "--backend", "system"), 2, "no program")
        check(emulator.hosts() == [], "a host was started all the same")


def the_layer_shows_a_program_one_device_alone():
    layer = ["LD_LIBRARY_PATH=" + os.path.abspath("shim/layer"),
             "RDMAEMU_LAYER_VERBS=" + os.path.abspath("shim/verbs/libibverbs.so.1"),
             "RDMAEMU_LAYER_RDMACM=" + os.path.abspath("shim/rdmacm/librdmacm.so.1")]
    names = [("rxe0,rxe1", "rxe1", ["rxe1"]), ("rxe0,rxe1", "nosuch", []), ("rxe0", "rxe0", ["rxe0"])]
    with Emulator() as emulator:
        for devices, chosen, seen in names:
            result = run(emulator, "env", *layer, "RDMAEMU_LAYER_DEVICE=" + chosen,
                         "ibv_devices", options=("--device", devices, "--address", ADDRESS, "--address",
                                                 OTHER))
            expect(result, 0)
            shown = [line.split()[0] for line in result.stdout.split("\n")[2:] if line.strip()]
            check(shown == seen, "%s shown of %s: %s" % (shown, devices, result.stdout))


# ---- run


def run_exits_as_the_program_does():
    with Emulator() as emulator:
        expect(run(emulator, "true"), 0)
        expect(run(emulator, "sh", "-c", "exit 7"), 7)
        expect(run(emulator, "sh", "-c", "kill -9 $$"), 128 + 9)
        expect(run(emulator, "/nosuch/program"), 127, "/nosuch/program")
        expect(run(emulator, "/etc/passwd"), 126, "/etc/passwd")


def run_leaves_the_programs_options_alone():
    with Emulator() as emulator:
        expect(run(emulator, "echo", "--address", "x", "--", "-y"), 0, "--address x -- -y\n")
        result = emulator.rdmaemu("run", "--address", ADDRESS, "echo", "--json", "--", "--help")
        expect(result, 0, "--json")


def run_passes_signals_on():
    with Emulator() as emulator:
        program = emulator.start("h", ADDRESS, [
            "sh", "-c", "trap 'exit 9' TERM; trap 'echo usr1' USR1; echo up;"
            " while :; do sleep 0.05; done"])
        check(program.wait_for_text("up\n", 30), program.describe())
        program.process.send_signal(signal.SIGUSR1)
        check(program.wait_for_text("usr1\n", 30), program.describe())
        program.process.send_signal(signal.SIGTERM)
        check(program.wait(30) == 9, program.describe())


def run_and_env_give_the_same_environment():
    names = ("RDMAEMU_HOST", "RDMAEMU_DIR", "RDMAEMU_BIN", "LD_LIBRARY_PATH")
    show = ["sh", "-c", "; ".join('echo "$%s"' % name for name in names)]
    with Emulator() as emulator:
        emulator.env["LD_LIBRARY_PATH"] = "/somewhere's"
        result = run(emulator, *show)
        expect(result, 0)
        exports = emulator.rdmaemu("env", "--host", "h").stdout
        evaluated = subprocess.run(["sh", "-c", exports + show[2]], text=True, timeout=60,
                                   stdout=subprocess.PIPE)
        check(evaluated.stdout == result.stdout, exports)
        host, directory, binary, libraries = result.stdout.splitlines()
        check(host == "h" and directory == emulator.directory, result.stdout)
        check(os.access(binary, os.X_OK), binary)
        folders = libraries.split(":")
        check(folders[-1] == "/somewhere's", libraries)
        for name in ("libibverbs.so.1", "librdmacm.so.1"):
            check(any(os.path.exists(os.path.join(folder, name)) for folder in folders[:-1]), name)


def a_host_started_from_the_environment_has_its_options():
    with Emulator() as emulator:
        exports = emulator.rdmaemu("env", "--host", "h", "--address", ADDRESS + "," + OTHER,
                                   "--device", "one", "--device", "two=rxe").stdout
        subprocess.run(["sh", "-c", exports + '"$RDMAEMU_BIN" host --name h --daemonize'],
                       env=emulator.env, check=True, timeout=60)
        devices = emulator.host("h")["devices"]
        check([(each["name"], each["addresses"]) for each in devices] ==
              [("one", [ADDRESS]), ("two", [OTHER])], str(devices))


def options_of_a_host_win_over_the_environment():
    with Emulator() as emulator:
        exports = emulator.rdmaemu("env", "--host", "h", "--address", OTHER, "--device", "one").stdout
        subprocess.run(["sh", "-c", exports + '"$RDMAEMU_BIN" host --name h --address ' + ADDRESS +
                        " --profile siw --daemonize"], env=emulator.env, check=True, timeout=60)
        devices = emulator.host("h")["devices"]
        check([(each["name"], each["addresses"]) for each in devices] == [("siw0", [ADDRESS])],
              str(devices))


def a_wrong_value_in_the_environment_is_an_error_of_usage():
    for name, message in (("RDMAEMU_WIRE", 'the wire is "shared"'), ("RDMAEMU_SEED", "not a seed"),
                          ("RDMAEMU_PAYLOAD_SHORTCUTS", "payload shortcuts are"),
                          ("RDMAEMU_CLOCK", "there is no clock")):
        with Emulator() as emulator:
            emulator.env[name] = "bogus"
            expect(emulator.rdmaemu("host", "--name", "h", "--address", ADDRESS), 2, message)


# ---- hosts


def a_second_program_joins_the_running_host():
    with Emulator() as emulator:
        holder = hold(emulator)
        pid = emulator.host("h")["pid"]
        expect(run(emulator, "true"), 0)
        expect(run(emulator, "true", options=()), 0)
        check(emulator.host("h")["pid"] == pid, "another host was started")
        let_go(holder)


def other_options_are_an_error_while_the_host_is_in_use():
    with Emulator() as emulator:
        holder = hold(emulator)
        expect(run(emulator, "true", options=("--address", OTHER)), 125,
               "address %s instead of %s" % (ADDRESS, OTHER), "rdmaemu stop h")
        let_go(holder)


def a_host_that_nobody_uses_is_replaced_when_others_options_are_asked_for():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("host", "--name", "h", "--address", ADDRESS, "--daemonize"), 0)
        expect(emulator.rdmaemu("host", "--name", "h", "--daemonize"), 0)
        holder = hold(emulator, address=OTHER)
        check(emulator.host("h")["devices"][0]["addresses"] == [OTHER], str(emulator.hosts()))
        let_go(holder)


def an_address_in_use_names_who_has_it():
    with Emulator() as emulator, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        holder = hold(emulator)
        expect(run(emulator, "true", host="other"), 125, ADDRESS, "host h ", "rdmaemu stop h")
        let_go(holder)
        taken.bind((OTHER, 4791))
        # Uses another host, because h may still be ending.
        expect(run(emulator, "true", host="third", options=("--address", OTHER)), 125, OTHER,
               str(os.getpid()))


def hosts_lists_devices_addresses_and_clients():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("hosts"), 0, "no host is running")
        holder = hold(emulator, options=("--device", "dev7"))
        expect(emulator.rdmaemu("hosts"), 0, "host h ", "1 client", "0 ids", "0 QPs",
               "dev7 (rxe): " + ADDRESS, "rdmaemu run")
        [host] = json.loads(emulator.rdmaemu("hosts", "--json").stdout)
        check(host["name"] == "h" and len(host["clients"]) == 1, str(host))
        check(host["clients"][0]["pid"] == holder.process.pid, str(host))
        let_go(holder)


# ---- the end of hosts


def stop_ends_a_host_that_is_in_use():
    with Emulator() as emulator:
        holder = hold(emulator)
        expect(emulator.rdmaemu("stop", "h"), 0)
        check(emulator.hosts() == [], "it still runs")
        expect(emulator.rdmaemu("host", "--name", "h", "--address", ADDRESS, "--daemonize"), 0)
        let_go(holder)


def a_host_ends_after_its_last_client_and_leaves_no_file():
    with Emulator() as emulator:
        expect(run(emulator, "true"), 0)
        eventually("an empty directory", lambda: os.listdir(emulator.directory) == [])


def a_host_that_was_killed_is_replaced():
    with Emulator() as emulator:
        holder = hold(emulator)
        os.kill(emulator.host("h")["pid"], signal.SIGKILL)
        expect(run(emulator, "echo", "again"), 0, "again")
        let_go(holder)


def many_starts_at_once_make_one_host():
    with Emulator() as emulator:
        programs = [emulator.start("h", ADDRESS, ["sh", "-c", "echo up; exec cat"])
                    for _ in range(20)]
        for program in programs:
            check(program.wait_for_text("up\n", 60), program.describe())
        [host] = emulator.hosts()
        check(len(host["clients"]) == 20, str(host["clients"]))
        for program in programs:
            let_go(program)


# ---- clients that misbehave


def nonsense_costs_a_client_its_own_connection_at_most():
    messages = [
        b"\0",
        struct.pack("=II", CALL_STATUS, 1000),
        call(0xffffffff),
        call(CALL_HELLO, b"\xff" * 100),
        call(0x100, b"\xff" * 16000),
        b"\xff" * 16384,
        b"\xff" * 16385,
        b"\xff" * 60000,
        b"",
    ]
    with Emulator() as emulator:
        holder = hold(emulator)
        with connect(emulator) as good:
            for message in messages:
                with connect(emulator) as bad:
                    bad.send(message)
                    bad.recv(65536)  # an error, or the end of the connection
            good.send(call(CALL_STATUS))
            check(b'"name":"h"' in good.recv(131072), "no status")
        let_go(holder)


def a_client_that_does_not_read_its_answers_is_dropped_alone():
    with Emulator() as emulator:
        holder = hold(emulator)
        with connect(emulator) as deaf, connect(emulator) as good:
            deaf.setblocking(False)
            until = time.monotonic() + 60
            dropped = False
            while not dropped:
                check(time.monotonic() < until, "it was never dropped")
                try:
                    deaf.send(call(CALL_STATUS))
                except BlockingIOError:
                    pass
                except (BrokenPipeError, ConnectionResetError):
                    dropped = True
            good.send(call(CALL_STATUS))
            check(b'"name":"h"' in good.recv(131072), "no status")
        let_go(holder)


def descriptors_that_clients_send_are_not_kept():
    with Emulator() as emulator:
        holder = hold(emulator)
        folder = "/proc/%d/fd" % emulator.host("h")["pid"]
        with connect(emulator) as client, open("/dev/zero") as zero:
            client.send(call(CALL_STATUS))
            client.recv(131072)
            before = len(os.listdir(folder))
            for _ in range(10):
                socket.send_fds(client, [call(CALL_STATUS)], [zero.fileno()] * 3)
                client.recv(131072)
            check(len(os.listdir(folder)) == before, "the host kept descriptors")
        let_go(holder)


def fault(emulator, *arguments):
    return emulator.rdmaemu("fault", *arguments)


def rules_of_a_running_host_are_added_listed_and_removed():
    with Emulator() as emulator:
        holder = hold(emulator)
        rule = 'name = "no memory", at = "call.open_device", errno = "ENOMEM"'
        expect(fault(emulator, "add", "--host", "h", rule), 0, "no memory")
        expect(fault(emulator, "add", "--host", "h", rule), 1, "already")
        expect(fault(emulator, "add", "--host", "h", 'at = "call.open_devise", errno = "EIO"'), 1,
               'rule:1:6: there is no "call.open_devise"; did you mean "call.open_device"?')
        check(run(emulator, "ibv_devinfo", options=()).returncode != 0, "the rule did not fire")
        listed = json.loads(fault(emulator, "list", "--host", "h", "--json").stdout)
        check([(one["name"], one["fired"]) for one in listed] == [("no memory", 1)], str(listed))
        expect(fault(emulator, "list", "--host", "h"), 0, "no memory", 'errno = "ENOMEM"')
        expect(fault(emulator, "wait", "--host", "h", "no memory"), 0)
        expect(fault(emulator, "wait", "--host", "h", "no memory", "--times", "2", "--timeout",
                     "50ms"), 124, 'rule "no memory" has not fired 2 times within 50ms')
        expect(fault(emulator, "wait", "--host", "h", "nobody"), 1, "no rule called")
        expect(fault(emulator, "wait", "--host", "h", "no memory", "--timeout", "soon"), 2,
               "not a duration")
        expect(fault(emulator, "remove", "--host", "h", "no memory"), 0)
        expect(fault(emulator, "remove", "--host", "h", "no memory"), 1, "no rule")
        expect(run(emulator, "ibv_devinfo", options=()), 0)
        expect(fault(emulator, "clear", "--host", "h"), 0)
        expect(fault(emulator, "list", "--host", "nobody"), 1, "no host nobody")
        let_go(holder)


def a_scenario_is_applied_and_strict_asks_that_every_rule_fires():
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "scenario.toml")
        with open(path, "w") as scenario:
            scenario.write('[[fault]]\nat = "call.open_device"\nnth = 2\nerrno = "ENOMEM"\n')
        options = ("--address", ADDRESS, "--scenario", path)
        result = run(emulator, "ibv_devinfo", options=options)
        expect(result, 0)
        check('rule "rule 1" never fired; it matched 1 times' in result.stderr, result.stderr)
        result = run(emulator, "ibv_devinfo", options=(*options, "--strict"), host="strict")
        check(result.returncode == 123, "strict let an unfired rule pass: " + result.stderr)
        twice = ("sh", "-c", "ibv_devinfo && ! ibv_devinfo")
        expect(run(emulator, *twice, options=(*options, "--strict"), host="twice"), 0)
        with open(path, "a") as scenario:
            scenario.write("nht = 3\n")
        expect(run(emulator, "true", options=options, host="bad"), 125,
               'scenario.toml:5:7: "nht" is not a key of a rule; did you mean "nth"?')
        expect(run(emulator, "true", options=("--scenario", "/nowhere"), host="bad"), 125,
               "cannot read the scenario /nowhere")
        expect(run(emulator, "true", options=("--seed", "-1"), host="bad"), 125, "not a seed")


def the_clock_of_a_running_host_is_shown_and_moved():
    with Emulator() as emulator:
        held = hold(emulator, options=("--clock", "manual"))
        expect(emulator.rdmaemu("clock", "show", "--host", "h"), 0, "manual: 0.000000 s")
        expect(emulator.rdmaemu("clock", "advance", "1500ms", "--host", "h"), 0, "1.500000 s")
        expect(emulator.rdmaemu("clock", "advance", "1h", "--host", "h"), 0, "3601.500000 s")
        expect(emulator.rdmaemu("clock", "run-until-idle", "--host", "h"), 0, "3601.500000 s")
        shown = json.loads(emulator.rdmaemu("clock", "show", "--json", "--host", "h").stdout)
        check(shown == {"clock": "manual", "now_ns": 3601500000000, "moving": False,
                        "awaits_application": False}, shown)
        for wrong in ("5", "s", "0s", "-1s", "1.5s", "5 s", "9223372036854775807h", "367d"):
            expect(emulator.rdmaemu("clock", "advance", wrong, "--host", "h"), 2,
                   "is not a duration")
        let_go(held)


def a_clock_that_runs_by_itself_cannot_be_moved():
    with Emulator() as emulator:
        for mode in ("real", "virtual", "scaled:4"):
            held = hold(emulator, host=mode.replace(":", ""), options=("--clock", mode))
            expect(emulator.rdmaemu("clock", "advance", "5s", "--host", mode.replace(":", "")), 1,
                   "cannot be advanced; start the host with --clock manual")
            let_go(held)


def a_host_with_another_clock_is_another_host():
    with Emulator() as emulator:
        held = hold(emulator, options=("--clock", "virtual"))
        expect(run(emulator, "true", options=("--clock", "scaled:2")), 125,
               "clock virtual instead of scaled:2")
        expect(run(emulator, "true", options=("--clock", "virtual")), 0)
        let_go(held)
        expect(run(emulator, "true", options=("--clock", "fast")), 125,
               "there is no clock \"fast\"; choose one of: real, scaled:K, virtual, manual")
        eventually("the end of the host", lambda: emulator.host("h") is None)
        left = [name for name in os.listdir(emulator.directory)]
        check(not left, "files that were left: %s" % left)


CASES = [
    without_a_device_the_system_backend_says_what_it_looked_for,
    the_system_backend_refuses_by_name_what_needs_the_emulator,
    the_layer_shows_a_program_one_device_alone,
    run_exits_as_the_program_does,
    run_leaves_the_programs_options_alone,
    run_passes_signals_on,
    run_and_env_give_the_same_environment,
    a_host_started_from_the_environment_has_its_options,
    options_of_a_host_win_over_the_environment,
    a_wrong_value_in_the_environment_is_an_error_of_usage,
    a_second_program_joins_the_running_host,
    other_options_are_an_error_while_the_host_is_in_use,
    a_host_that_nobody_uses_is_replaced_when_others_options_are_asked_for,
    an_address_in_use_names_who_has_it,
    hosts_lists_devices_addresses_and_clients,
    stop_ends_a_host_that_is_in_use,
    a_host_ends_after_its_last_client_and_leaves_no_file,
    a_host_that_was_killed_is_replaced,
    many_starts_at_once_make_one_host,
    nonsense_costs_a_client_its_own_connection_at_most,
    a_client_that_does_not_read_its_answers_is_dropped_alone,
    descriptors_that_clients_send_are_not_kept,
    rules_of_a_running_host_are_added_listed_and_removed,
    a_scenario_is_applied_and_strict_asks_that_every_rule_fires,
    the_clock_of_a_running_host_is_shown_and_moved,
    a_clock_that_runs_by_itself_cannot_be_moved,
    a_host_with_another_clock_is_another_host,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("cli", [(case.__name__, case) for case in CASES]))
