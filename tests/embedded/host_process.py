"""rdmaemu.h in a client of a host process: rules, devices and time are its host's."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

LIMIT_S = 60


def run_program(arguments, options):
    # The program's own libraries follow those that `rdmaemu run` sets.
    libraries = os.path.abspath("emulator/embedded")
    with Emulator() as emulator:
        program = emulator.start("a", emulated.free_addresses(1)[0],
                                 [os.path.abspath(sys.argv[1]), *arguments],
                                 env={"LD_LIBRARY_PATH": libraries}, options=options)
        if program.wait(LIMIT_S) != 0:
            raise Failure(program.describe())


def rules_and_devices_go_to_the_host():
    run_program([], [])


def manual_time_of_the_host_is_moved():
    run_program(["manual"], ["--clock", "manual"])


if __name__ == "__main__":
    sys.exit(emulated.run_cases("host_process", [
        (case.__name__, case) for case in (rules_and_devices_go_to_the_host,
                                           manual_time_of_the_host_is_moved)]))
