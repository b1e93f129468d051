"""Each RDMA CM event, each completion status and each asynchronous event, made by fault rules. The
scenarios every/KIND.toml and what the program prints, every/KIND.txt, are the same on an emulated
host, under the layer, and on the machine's own device (tests/softroce/fault_cases.py)."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure, free_addresses  # noqa: E402

LIMIT_S = 110
LIBRARIES = ":".join(os.path.abspath(path) for path in ("shim/verbs", "shim/rdmacm"))
# Kind of `every`, and how many events or connections it makes.
KINDS = {"events": 16, "statuses": 24, "removed": 1, "qp": 7, "srq": 1, "cq": 1, "device": 7}
# After an event that a rule made DEVICE_REMOVAL, an emulated host still has the id.
ONLY_ON_DEVICES = ("removed",)
NATURAL_ASYNC = {"sq_drained", "srq_limit_reached", "gid_change", "cq_err"}
WITHOUT_RULE = {"wq_fatal"}  # no object here can have this event


def build(directory):
    program = os.path.join(directory, "every")
    made = subprocess.run(
        [emulated.need("gcc"), "-g", "-O1", "-Wall", "-Wextra", "-D_GNU_SOURCE",
         os.path.join(HERE, "every.c"), "-o", program, "-lrdmacm", "-libverbs"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        raise Failure("cannot compile every.c\n" + made.stdout)
    return program


def rules_of(kind):
    """Returns the options that give a run the rules of this kind."""
    path = os.path.join(HERE, "every", kind + ".toml")
    return ["--scenario", path, "--strict"] if os.path.exists(path) else []


def change_addresses(program, change):
    """Calls change("add") and change("remove") in turn, until the program has ended."""
    if not program.wait_for_text("ready", LIMIT_S):
        raise Failure(program.describe())
    what = "add"
    until = time.monotonic() + LIMIT_S
    while program.process.poll() is None and time.monotonic() < until:
        change(what)
        what = "remove" if what == "add" else "add"
    if what == "remove":
        change(what)


def judge(kind, program, change):
    """Waits for `every KIND` and compares what it printed."""
    if kind == "device":
        change_addresses(program, change)
    status = program.wait(LIMIT_S)
    printed = [line.strip() for line in program.output.splitlines()
               if not line.startswith(("note:", "warning:"))]
    with open(os.path.join(HERE, "every", kind + ".txt")) as text:
        expected = text.read().splitlines()
    if status != 0 or printed != expected:
        raise Failure("expected:\n%s\n%s" % ("\n".join(expected), program.describe()))


def changer(emulator):
    """Changes the addresses of the emulated host that is called `machine`."""
    other = free_addresses(1)[0]

    def change(what):
        device = ["--device", "rxe0"] if what == "add" else []
        done = emulator.rdmaemu("address", what, other, *device, "--host", "machine")
        # The host ends with the program.
        if done.returncode != 0 and emulator.host("machine") is not None:
            raise Failure(done.stderr)
    return change


def on_an_emulated_host(program, kind):
    with Emulator() as emulator:
        address = free_addresses(1)[0]
        running = emulator.start("machine", address, [program, kind, address, str(KINDS[kind])],
                                 options=rules_of(kind))
        judge(kind, running, changer(emulator))


def under_the_layer(program, kind):
    """An emulated host's libraries stand for those of a machine."""
    with Emulator() as emulator:
        address = free_addresses(1)[0]
        run = [RDMAEMU, "run", "--backend", "system", "--host", "rules", *rules_of(kind), "--",
               program, kind, address, str(KINDS[kind])]
        running = emulator.start("machine", address, run,
                                 env={"RDMAEMU_SYSTEM_LIBRARIES": LIBRARIES})
        judge(kind, running, changer(emulator))


def the_scenarios_have_each_event_and_status():
    """Takes the enumerators from the installed headers."""
    def enumerators(header, enum, prefix):
        with open(os.path.join("/usr/include", header)) as text:
            body = re.search(r"enum %s \{(.*?)\}" % enum, text.read(), re.DOTALL).group(1)
        return {name.lower() for name in re.findall(r"\b%s(\w+)" % prefix, body)}

    def named(kind):
        with open(os.path.join(HERE, "every", kind + ".toml")) as text:
            return set(re.findall(r'^name = "(\w+)"', text.read(), re.MULTILINE))
    for wanted, there in (
            (enumerators("rdma/rdma_cma.h", "rdma_cm_event_type", "RDMA_CM_EVENT_")
             - {"addrinfo_resolved", "addrinfo_error", "user"}, named("events")),
            (enumerators("infiniband/verbs.h", "ibv_wc_status", "IBV_WC_"),
             named("statuses") | {"success"}),
            (enumerators("infiniband/verbs.h", "ibv_event_type", "IBV_EVENT_") - WITHOUT_RULE,
             named("qp") | named("srq") | named("device") | NATURAL_ASYNC)):
        if wanted != there:
            raise Failure("missing %s, unknown %s" % (wanted - there, there - wanted))


def main():
    directory = tempfile.mkdtemp(prefix="rdmaemu-every-", dir="/tmp")
    try:
        program = build(directory)
        cases = [("the_scenarios_have_each_event_and_status",
                  the_scenarios_have_each_event_and_status)]
        for where in (on_an_emulated_host, under_the_layer):
            cases += [("%s.%s" % (where.__name__, kind),
                       lambda where=where, kind=kind: where(program, kind))
                      for kind in KINDS
                      if where is under_the_layer or kind not in ONLY_ON_DEVICES]
        return emulated.run_cases("every", cases, at_once=2)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
