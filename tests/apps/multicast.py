"""Debian's mckey, unmodified: two receivers and a sender, on one emulated host and on three."""

import functools
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

LIMIT_S = 60
MESSAGES = 20
SIGNS = (r"^data transfers complete$", r"^test complete$", r"^return status 0$")


def new_group():
    """Returns a group that other simultaneous runs of these tests are unlikely to use."""
    return "239.%d.%d.%d" % tuple(random.randint(1, 250) for _ in range(3))


def mckey(hosts, connections=1, sender_options=()):
    emulated.need("mckey")
    group = new_group()
    addresses = emulated.free_addresses(hosts)
    names = ["host%d" % i for i in range(hosts)]
    with Emulator() as emulator:
        traces = [os.path.join(emulator.directory, name + ".trace") for name in names]

        def start(at, *more):
            argv = ["mckey", "-m", group, "-b", addresses[at], "-c", str(connections),
                    "-C", str(MESSAGES), "-S", "1000", *more]
            return emulator.start(names[at], addresses[at], argv, ["--trace", traces[at]])
        receivers = [start(i % hosts) for i in range(2)]
        # mckey prints its output only when it ends.
        try:
            emulated.wait_for_calls(traces, "attach_mcast", 2 * connections)
        except Failure as failure:
            raise Failure("\n".join([str(failure)] + [one.describe() for one in receivers]))
        sender = start(2 % hosts, "-s", *sender_options)
        everyone = [sender, *receivers]
        for program in everyone:
            status = program.wait(LIMIT_S)
            if status != 0:
                raise Failure("status %s\n%s" % (
                    status, "\n".join(one.describe() for one in everyone)))
        for program in everyone:
            program.expect(*SIGNS)


def main():
    kinds = [("mckey", {}), ("mckey_many", {"connections": 4}),
             ("mckey_send_only", {"sender_options": ["-o"]})]
    return emulated.run_cases("apps.multicast", [
        ("%s.%s" % (name, label), functools.partial(mckey, hosts, **options))
        for hosts, label in ((1, "one_host"), (3, "three_hosts")) for name, options in kinds],
        at_once=6)


if __name__ == "__main__":
    sys.exit(main())
