"""The rdmaemu command line: help, wrong words and values, and what they say."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from cli_support import ADDRESS, check, eventually, expect, hold, let_go, run  # noqa: E402
from emulated import Emulator  # noqa: E402


def every_command_has_help_with_an_example():
    with Emulator() as emulator:
        for command in ("run", "env", "hosts", "stop", "host", "device", "port", "address",
                        "install", "clock"):
            result = emulator.rdmaemu(command, "--help")
            expect(result, 0, "Example", "rdmaemu " + command)


def wrong_usage_is_one_line():
    with Emulator() as emulator:
        expect(emulator.rdmaemu(), 2, "--help")
        expect(emulator.rdmaemu("frob"), 2, "frob", "--help")
        expect(emulator.rdmaemu("hosts", "--frob"), 2, "--frob")
        expect(emulator.rdmaemu("run"), 2, "no program")
        expect(emulator.rdmaemu("run", "--adress", ADDRESS, "true"), 2, "--adress")


def a_missing_or_unknown_command_is_answered_with_those_there_are():
    with Emulator() as emulator:
        expect(emulator.rdmaemu("port"), 2, "rdmaemu port needs a command; choose one of: down, up")
        expect(emulator.rdmaemu("port", "sideways", "rxe0"), 2, "there is no rdmaemu port sideways;",
               "down, up; see rdmaemu port --help")
        expect(emulator.rdmaemu("stop"), 2, "rdmaemu stop a")
        expect(emulator.rdmaemu("fault", "remove"), 2, "see rdmaemu fault remove --help")


def an_empty_value_is_not_the_default():
    """It comes from an unset variable of a script."""
    with Emulator() as emulator:
        for option in ("--trace", "--pcap", "--scenario", "--seed", "--clock", "--replay"):
            result = emulator.rdmaemu("run", option, "", "--", "true")
            expect(result, 2, option, "the value is empty")
        result = emulator.rdmaemu("run", "--check", "--check-json", "", "--", "true")
        expect(result, 2, "--check-json", "the value is empty")
        expect(emulator.rdmaemu("run", "--sysfs", "", "--", "true"), 2, "{auto,fuse,preload,off}")


def an_unknown_option_is_named():
    with Emulator() as emulator:
        for options in (["--frob"], ["-V"], ["--host", "a", "run", "--", "true"]):
            expect(emulator.rdmaemu(*options), 2,
                   "there is no option %s before a command" % options[0])
        # These commands lack an argument, too.
        for command in (["fault", "add"], ["mount"], ["install"]):
            expect(emulator.rdmaemu(*command, "--frob"), 2,
                   "there is no option --frob; see rdmaemu %s --help" % " ".join(command))


def words_behind_two_dashes_are_arguments_of_commands_without_a_program():
    with Emulator() as emulator:
        for command in ("hosts", "env", "wait", "host"):
            expect(emulator.rdmaemu(command, "--", "foo"), 2, "not expected: foo")
        expect(emulator.rdmaemu("stop", "--", "nosuch"), 1, "no host nosuch is running")


def a_host_that_does_not_run_is_an_error_for_programs_too():
    with Emulator() as emulator:
        result = emulator.rdmaemu("hosts", "--host", "nosuch", "--json")
        expect(result, 1, "no host nosuch is running")
        check(result.stdout == "[]\n", result.stdout)


def a_trace_is_not_written_to_the_callers_descriptors():
    with Emulator() as emulator:
        for option in ("--trace", "--pcap"):
            for path in ("/dev/stdout", "/dev/fd/3", "/proc/self/fd/1"):
                expect(run(emulator, "true", options=(option, path)), 125, path,
                       "the host is another process")


def wrong_values_say_what_would_be_right():
    with Emulator() as emulator:
        expect(run(emulator, "true", options=("--silent-net", "10.99.0.0")), 125, "10.99.0.0",
               "--silent-net 10.99.0.0/16")
        expect(run(emulator, "true", options=("--address", "127.0.1.300")), 125, "127.0.1.300",
               "--address 127.0.1.1")
        expect(run(emulator, "true", options=("--device", "rxe0=nosuch")), 125, "nosuch", "rxe")
        expect(run(emulator, "true", options=("--address", "198.51.100.1")), 125, "198.51.100.1",
               "127.0.0.0/8")
        expect(run(emulator, "true", host="a/b"), 125, "a/b")
        expect(emulator.rdmaemu("stop", "nosuch"), 1, "nosuch", "running: none")
        check(emulator.hosts() == [], "a host was started all the same")


def a_profile_is_a_name_or_a_file_and_names_its_device():
    with Emulator() as emulator:
        holder = hold(emulator, options=("--profile", "siw"))
        expect(emulator.rdmaemu("hosts"), 0, "siw0 (siw): " + ADDRESS)
        let_go(holder)
        # A host ends some time after its last client. Until then it is listed.
        eventually("the first host's end", lambda: emulator.hosts() == [])
        mine = os.path.join(emulator.directory, "mine.toml")
        expect(run(emulator, "true", options=("--profile", mine)), 125, mine, "docs/profiles.md")
        with open(mine, "w") as file:
            file.write('name = "mine"\nnode_type = "bridge"\n')
        expect(run(emulator, "true", options=("--profile", mine)), 125, mine + ":2:", "node_type",
               '"rnic"')
        expect(run(emulator, "true", options=("--device", "nic0=" + mine)), 125, mine + ":2:")
        check(emulator.hosts() == [], "a host was started all the same")


def a_profile_file_names_its_base():
    with Emulator() as emulator:
        def write(name, text):
            path = os.path.join(emulator.directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
            return path
        write("base/far.toml", 'name = "far"\nbase = "rxe"\n[device]\nmax_qp = 7\nmax_cq = 7\n')
        write("base/near.toml", 'name = "near"\nbase = "./far.toml"\n[device]\nmax_qp = 8\n')
        mine = write("mine.toml", 'name = "mine"\nbase = "base/near.toml"\n[device]\nmax_pd = 9\n')
        shown = run(emulator, "ibv_devinfo", "-v", options=("--profile", mine))
        expect(shown, 0, "hca_id:\tmine0", "max_qp:\t\t\t\t8\n", "max_cq:\t\t\t\t7\n",
               "max_pd:\t\t\t\t9\n", "max_sge:\t\t\t32\n")
        eventually("the host's end", lambda: emulator.hosts() == [])
        holder = hold(emulator)
        expect(emulator.rdmaemu("device", "add", "nic0=" + mine, "--host", "h"), 0)
        expect(emulator.rdmaemu("device", "list", "--host", "h"), 0, "nic0 (mine)")
        let_go(holder)
        eventually("the host's end", lambda: emulator.hosts() == [])
        far = write("base/far.toml", 'name = "far"\nbase = "../mine.toml"\n')
        expect(run(emulator, "true", options=("--profile", mine)), 125,
               far + ":2:8: base contains itself: " + mine + " -> ")
        write("base/far.toml", 'name = "far"\nbase = "./none.toml"\n')
        expect(run(emulator, "true", options=("--profile", mine)), 125, far + ":2:8: base",
               "base/none.toml: there is no such file")


CASES = [
    every_command_has_help_with_an_example,
    wrong_usage_is_one_line,
    a_missing_or_unknown_command_is_answered_with_those_there_are,
    an_empty_value_is_not_the_default,
    an_unknown_option_is_named,
    words_behind_two_dashes_are_arguments_of_commands_without_a_program,
    a_host_that_does_not_run_is_an_error_for_programs_too,
    a_trace_is_not_written_to_the_callers_descriptors,
    wrong_values_say_what_would_be_right,
    a_profile_is_a_name_or_a_file_and_names_its_device,
    a_profile_file_names_its_base,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("usage", [(case.__name__, case) for case in CASES]))
