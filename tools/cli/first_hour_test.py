"""What helps a user in the first hour: `run --report`, `doctor`, `completion`, `--version`, and
messages that say what to do."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from cli_support import ADDRESS, check, expect, hold, let_go, run  # noqa: E402
from emulated import Emulator, Skip  # noqa: E402

RULES = '[[fault]]\nname = "never"\nat = "cm.req"\ndrop = true\n'
REPORT = {"trace.jsonl", "capture.pcapng", "program.jsonl", "rules.json", "environment.txt",
          "ladder.html"}


def report(emulator, *program, options=()):
    """Returns the result of a run and the directory of its report."""
    directory = os.path.join(emulator.directory, "reports")
    rules = os.path.join(emulator.directory, "rules.toml")
    with open(rules, "w") as file:
        file.write(RULES)
    result = run(emulator, *program, options=("--address", ADDRESS, "--scenario", rules, "--report",
                                              directory, *options))
    return result, os.path.join(directory, "h")


def read(directory, name):
    with open(os.path.join(directory, name)) as file:
        return file.read()


def files_of(directory):
    return set(os.listdir(directory)) - {"host.log"}


# ---- run --report


def a_failed_run_leaves_a_report():
    with Emulator() as emulator:
        emulator.env["CI_TOKEN"] = "secret"
        # A directory that exists already must not stay open to others.
        os.makedirs(os.path.join(emulator.directory, "reports", "h"), mode=0o755)
        result, directory = report(emulator, "sh", "-c", "ibv_devinfo; exit 3")
        check(result.returncode == 3, result.stderr)
        check("note: the report of this run is in %s; open its ladder.html" % directory
              in result.stderr, result.stderr)
        check(files_of(directory) == REPORT, files_of(directory))
        check(stat.S_IMODE(os.stat(directory).st_mode) == 0o700, "others can read the report")
        check(json.loads(read(directory, "rules.json"))[0]["fired"] == 0, read(directory, "rules.json"))
        environment = read(directory, "environment.txt")
        check("status 3\ncommand sh -c ibv_devinfo; exit 3\n" in environment, environment)
        check("RDMAEMU_DIR=" in environment and "secret" not in environment, environment)
        check('"what":"get_device_list"' in read(directory, "ladder.html"), "the page lacks calls")


def a_signal_leaves_a_report_and_the_next_success_removes_it():
    with Emulator() as emulator:
        result, directory = report(emulator, "sh", "-c", "kill -9 $$")
        check(result.returncode == 137 and files_of(directory) == REPORT, result.stderr)
        result, _ = report(emulator, "true")
        check(result.returncode == 0 and "report" not in result.stderr, result.stderr)
        check(not os.path.exists(directory), "the report of an earlier run is left")


def a_report_is_always_left_on_request():
    with Emulator() as emulator:
        own = os.path.join(emulator.directory, "own.jsonl")
        result, directory = report(emulator, "true", options=("--report-always", "--trace", own))
        check(result.returncode == 0 and "the report of this run is in" in result.stderr, result.stderr)
        check(files_of(directory) == REPORT - {"trace.jsonl"}, files_of(directory))
        check(os.path.getsize(own) > 0 and own in read(directory, "environment.txt"), "no own trace")
        expect(emulator.rdmaemu("run", "--report-always", "--", "true"), 2, "--report-always requires")


def a_report_that_cannot_be_written_is_an_error_at_the_start():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("run", "--report", "/proc/none", "--", "true"), 125,
               "cannot write a report into /proc/none/default")
        expect(emulator.rdmaemu("run", "--backend", "system", "--report", "x", "--", "true"), 125,
               "--report needs the emulator")


# ---- doctor, completion, version


def doctor_says_what_works():
    with Emulator() as emulator:
        result = emulator.rdmaemu("doctor", "--json")
        found = {one["name"]: one for one in json.loads(result.stdout)}
        check({"libraries", "process_vm", "proc_mem", "ptrace_scope", "user_namespace",
               "mount_namespace", "network_namespace", "open_files", "locked_memory", "rmem_max",
               "loopback", "port_4791", "fuse", "soft_roce"} == set(found), found)
        works = all(one["ok"] for one in found.values() if one["required"])
        check(found["libraries"]["ok"] and works == (result.returncode == 0), result.stdout)
        for one in found.values():
            check(one["ok"] or (one["costs"] and one["mend"]), one)
        text = emulator.rdmaemu("doctor").stdout
        check(re.search(r"^ok +libraries ", text, re.MULTILINE), text)


def a_loopback_that_is_down_is_named():
    with Emulator() as emulator:
        if not shutil.which("unshare"):
            raise Skip("there is no unshare")
        alone = ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
        if subprocess.run([*alone, "true"], stderr=subprocess.DEVNULL).returncode != 0:
            raise Skip("the kernel allows no network namespace")

        def there(*arguments):
            return subprocess.run([*alone, emulated.RDMAEMU, *arguments], env=emulator.env, text=True,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=60)
        result = there("doctor")
        check(result.returncode == 1 and "FAIL    loopback " in result.stdout and
              "ip link set lo up" in result.stdout, result.stdout + result.stderr)
        expect(there("run", "--host", "h", "--", "true"), 125,
               "the loopback interface is down", "ip link set lo up")


def completion_knows_each_command_and_option():
    with Emulator() as emulator:
        script = os.path.join(emulator.directory, "completion")
        with open(script, "w") as file:
            file.write(emulator.rdmaemu("completion", "bash").stdout)

        def complete(*words):
            done = subprocess.run(
                ["bash", "-c", 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                               '_rdmaemu; echo "${COMPREPLY[@]}"', "-", script, "rdmaemu", *words],
                text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            check(not done.stderr, done.stderr)
            return done.stdout.split()
        check(complete("tra") == ["trace"], complete("tra"))
        check(complete("trace", "s") == ["show", "summary"], complete("trace", "s"))
        check(complete("run", "--report") == ["--report", "--report-always"], complete("run", "--report"))
        check(complete("fault", "add", "--host", "a", "--ho") == ["--host"], "after a value")
        check(complete("run", "--", "tra") == [], "behind --")
        check("ab-programs" not in complete(""), "a hidden command is offered")
        check(emulator.rdmaemu("completion", "zsh").stdout.startswith("#compdef rdmaemu\n"), "zsh")
        fish = emulator.rdmaemu("completion", "fish").stdout
        check("-n '__fish_seen_subcommand_from trace; and __fish_seen_subcommand_from ladder'"
              " -l output -r -d " in fish, fish)
        expect(emulator.rdmaemu("completion", "csh"), 2, "csh not in", "see rdmaemu completion --help")


def the_version_names_the_build():
    with Emulator() as emulator:
        lines = emulator.rdmaemu("--version").stdout.splitlines()
        check(re.fullmatch(r"rdmaemu \d+\.\d+\.\d+", lines[0]), lines)
        check(re.fullmatch(r"build: .+, (optimized|with assertions), calls version \d+", lines[1]), lines)


# ---- messages


def mistakes_in_rules_say_what_to_write():
    with Emulator() as emulator:
        held = hold(emulator)

        def add(rule):
            return emulator.rdmaemu("fault", "add", "--host", "h", rule)
        expect(add("at = cm.req, drop = true"), 1, "rule:1:6: ", 'put a word in quotes, as in key = "word"',
               "the line is: at = cm.req, drop = true\n")
        expect(add('at = "wc.recv", status = "rnr"'), 1, 'did you mean "rnr_retry_exc_err"?')
        let_go(held)


def lost_output_is_a_failure():
    with Emulator() as emulator, open("/dev/full", "w") as full:
        for arguments in (("--version",), ("env",), ("hosts",), ("completion", "bash")):
            done = subprocess.run([emulated.RDMAEMU, *arguments], env=emulator.env, text=True,
                                  stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
            check(done.returncode == 1 and "cannot write to standard output" in done.stderr,
                  (arguments, done))


def a_page_does_not_replace_its_trace():
    with Emulator() as emulator:
        trace = os.path.join(emulator.directory, "a.jsonl")
        with open(trace, "w") as file:
            file.write("{}\n")
        done = emulator.rdmaemu("trace", "ladder", trace, "-o", trace)
        check(done.returncode == 2 and "would replace" in done.stderr, done)
        check(os.path.getsize(trace) == 3, "the trace was changed")


def an_empty_name_is_refused():
    with Emulator() as emulator:
        for option in ("--report", "--program-trace", "--trace"):
            done = emulator.rdmaemu("run", option, "", "--", "true")
            check(done.returncode == 2 and option in done.stderr, done)


def a_missing_option_names_the_help_of_its_command():
    with Emulator() as emulator:
        for words in (["device", "remove"], ["address", "move", "127.0.1.9"], ["pkey", "set"],
                      ["trace", "ladder"], ["install"], ["fault", "add"]):
            names = [word for word in words if not word[0].isdigit()]
            expect(emulator.rdmaemu(*words), 2, "required; see rdmaemu %s --help" % " ".join(names))


def only_their_user_reads_the_files_of_a_host():
    with Emulator() as emulator:
        paths = [os.path.join(emulator.directory, name) for name in ("a.pcapng", "a.jsonl")]
        os.umask(0o022)
        emulator.start_host("h", ["--address", ADDRESS, "--pcap", paths[0], "--trace", paths[1]])
        for path in paths:
            check(stat.S_IMODE(os.stat(path).st_mode) == 0o600, path)
        check(emulator.rdmaemu("stop", "h").returncode == 0, "stop")


CASES = [
    a_failed_run_leaves_a_report,
    a_signal_leaves_a_report_and_the_next_success_removes_it,
    a_report_is_always_left_on_request,
    a_report_that_cannot_be_written_is_an_error_at_the_start,
    doctor_says_what_works,
    a_loopback_that_is_down_is_named,
    completion_knows_each_command_and_option,
    the_version_names_the_build,
    mistakes_in_rules_say_what_to_write,
    lost_output_is_a_failure,
    a_page_does_not_replace_its_trace,
    an_empty_name_is_refused,
    a_missing_option_names_the_help_of_its_command,
    only_their_user_reads_the_files_of_a_host,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("first_hour", [(case.__name__, case) for case in CASES]))
