"""Runs inside the virtual machine of tools/softroce. The emulator is in the namespace `peer` and
the kernel's rdma_rxe in the first one, with a veth pair between them.

usage: in_machine.py PLAN RESULTS; PLAN is JSON, see real_peer.py, which reads RESULTS
"""

import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import emulated  # noqa: E402
from ab_cases import ab_cases  # noqa: E402
from contract_cases import contract_cases, contract_under_loss  # noqa: E402
from emulated import Failure  # noqa: E402
from fault_cases import fault_cases  # noqa: E402
from file_cases import file_cases  # noqa: E402
from machine import Results  # noqa: E402
from peers import IN_NAMESPACE, run  # noqa: E402
from program_cases import program_cases, programs_under_loss  # noqa: E402
from system_cases import system_cases  # noqa: E402

LINKS = (([], "roce0"), (IN_NAMESPACE, "peer0"))
LOSS = ["loss", "random", "1%"]


def step(function):
    """Returns a case that changes the machine between other cases. It can fail like any case."""
    return ("machine." + function.__name__, function)


@step
def larger_mtu():
    """Makes every path MTU possible."""
    for prefix, link in LINKS:
        run(*prefix, "ip", "link", "set", link, "mtu", "9000")


@step
def loss_begins():
    run("modprobe", "sch_netem")
    for prefix, link in LINKS:
        run(*prefix, "tc", "qdisc", "add", "dev", link, "root", "netem", *LOSS)


@step
def both_ends_lost_packets():
    for prefix, link in LINKS:
        shown = run(*prefix, "tc", "-s", "qdisc", "show", "dev", link)
        dropped = re.search(r"dropped (\d+)", shown)
        if not dropped or int(dropped.group(1)) == 0:
            raise Failure("%s lost nothing:\n%s" % (link, shown))


def main():
    with open(sys.argv[1]) as text:
        plan = json.load(text)
    with open("/proc/sys/kernel/panic_on_oops", "w") as switch:
        switch.write("1")  # the machine crashes at once, instead of failing every later case

    def chosen(cases):
        return [one for one in cases if one[0] not in plan["without"] and
                (not plan["wanted"] or any(text in one[0] for text in plan["wanted"]))]
    cases = chosen(file_cases() + system_cases() + fault_cases() + ab_cases() + program_cases())
    contract = chosen(contract_cases())
    under_loss = chosen(programs_under_loss() + contract_under_loss())
    if contract or under_loss:
        cases += [larger_mtu, *contract]
    if under_loss:
        cases += [loss_begins, *under_loss, both_ends_lost_packets]

    results = Results(sys.argv[2])
    for case in cases:
        results.tell(begun=case[0])
        name, kind, text, seconds = emulated.run_case(*case)
        print("%s: %s (%.1f s)" % (name, kind, seconds))
        results.tell(ended=name, kind=kind, text=text, seconds=seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
