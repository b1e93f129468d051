"""Runs programs of each kind on the layer and checks their program traces (docs/trace.md)."""

import collections
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip, free_addresses, free_tcp_port  # noqa: E402

SOURCES = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 100
OUTPUT = tempfile.mkdtemp(prefix="rdmaemu-layer-", dir="/tmp")
BUILDING = threading.Lock()  # cases run in parallel and share compiled programs
SCHEMA = "docs/program-trace.schema.json"


def check(condition, what):
    if not condition:
        raise Failure(what)


def build(name, *flags, compiler="gcc"):
    """Compiles tests/layer/NAME.c once, as a user does, against the system's libraries."""
    program = os.path.join(OUTPUT, name + "".join(flags).replace("/", "_"))
    with BUILDING:
        if os.path.exists(program):
            return program
        made = subprocess.run(
            [emulated.need(compiler), "-g", "-O1", "-Wall", "-Wextra", *flags,
             os.path.join(SOURCES, name + ".c"), "-o", program, "-libverbs", "-lpthread", "-ldl"],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if made.returncode != 0:
        raise Failure("cannot compile %s.c\n%s" % (name, made.stdout))
    return program


def read(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def traced(emulator, argv, options=(), env=None, status=0, address=None):
    """Runs a program until it ends, and returns the lines of its trace."""
    path = os.path.join(emulator.directory, "saw.jsonl")
    program = emulator.start("layer", address or free_addresses(1)[0], argv,
                             options=["--program-trace", path, *options], env=env)
    ended = program.wait(LIMIT_S)
    check(ended == status, "status %s instead of %s\n%s" % (ended, status, program.describe()))
    left = [name for name in os.listdir(emulator.directory) if ".recording-" in name]
    check(not left, "left behind: %s" % left)
    return read(path)


def counts(lines, kind="call"):
    return collections.Counter(line["what"] for line in lines if line["kind"] == kind)


def ends(lines):
    return sorted(line["what"] for line in lines if line["kind"] == "end")


def shape(how, expected_pds, expected_ends, status=0, **more):
    def case():
        with Emulator() as emulator:
            lines = traced(emulator, [build("shapes"), how], status=status, **more)
            check(counts(lines)["alloc_pd"] == expected_pds, "%s: %s" % (how, counts(lines)))
            check(ends(lines) == sorted(expected_ends), "%s: %s" % (how, ends(lines)))
            check(not counts(lines, "lost"), "%s: lost records" % how)
    case.__name__ = "a_program_is_seen_that_is_" + how.strip("_")
    return case


SHAPES = [
    shape("linked", 1, ["exit"]),
    shape("dlopen", 1, ["exit"]),
    shape("fork", 4, ["exit", "gone"]),
    shape("threads", 801, ["exit"]),
    # The limit is too small for 300 windows of 64 KiB at once, so ended threads must free theirs.
    shape("short_threads", 30001, ["exit"], options=["--program-trace-limit", "16M"]),
    shape("vfork", 3, ["exit", "exit"]),
    shape("exec", 2, ["exec", "exit"]),
    shape("kill", 1, ["signal"], status=128 + signal.SIGKILL),
    shape("_exit", 1, ["exit"]),
    shape("signal", 11, ["exit"]),
    shape("destructor", 2, ["exit"]),
    shape("closefrom", 1, ["exit"]),
]


def a_program_is_seen_that_signals_interrupt():
    """The tmpfs of Linux 6.1 gives up reserving blocks when a signal arrives. Newer ones do not, and
    this test cannot fail there."""
    with Emulator() as emulator, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        path = os.path.join(memory, "saw.jsonl")
        program = emulator.start("layer", free_addresses(1)[0], [build("shapes"), "interrupted"],
                                 options=["--program-trace", path])
        check(program.wait(LIMIT_S) == 0, program.describe())
        check(counts(read(path))["alloc_pd"] == 30001, program.describe())


def a_provider_binds_to_private_symbols():
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "saw.jsonl")
        program = emulator.start("layer", free_addresses(1)[0], [build("shapes"), "provider"],
                                 options=["--program-trace", path])
        status = program.wait(LIMIT_S)
        if status == 77:
            raise Skip("no libmlx5.so.1")
        check(status == 0 and counts(read(path))["alloc_pd"] == 1, program.describe())


def a_plug_in_that_is_loaded_locally_is_seen():
    plugin = build("plugin", "-shared", "-fPIC")
    with Emulator() as emulator:
        lines = traced(emulator, [build("loads_plugin"), plugin])
        check(counts(lines)["alloc_pd"] == 1, "%s" % counts(lines))


def a_sanitized_program_is_seen():
    for sanitizer in ("address", "thread"):
        with Emulator() as emulator:
            lines = traced(emulator, [build("shapes", "-fsanitize=" + sanitizer), "threads"],
                           env={"ASAN_OPTIONS": "detect_leaks=1"})
            check(counts(lines)["alloc_pd"] == 801, "%s: %s" % (sanitizer, counts(lines)))


def a_program_under_valgrind_is_seen():
    emulated.need("valgrind")
    with Emulator() as emulator:
        lines = traced(emulator, ["valgrind", "-q", "--error-exitcode=9", build("data_path")])
        check(counts(lines)["wr_complete"] == 2, "%s" % counts(lines))


def await_sleep(pid):
    """Returns when the process sleeps (proc(5)), so that it is within a blocking call."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        with open("/proc/%d/stat" % pid) as stat:
            if stat.read().rpartition(") ")[2].startswith("S"):
                return
        os.sched_yield()
    raise Failure("process %d does not sleep" % pid)


def a_call_that_never_returned_is_in_the_trace():
    with Emulator() as emulator:
        path = os.path.join(emulator.directory, "saw.jsonl")
        program = emulator.start("layer", free_addresses(1)[0],
                                 ["sh", "-c", build("shapes") + " blocked & wait"],
                                 options=["--program-trace", path])
        check(program.wait_for_text("blocked", LIMIT_S), program.describe())
        # Kill the program, not `rdmaemu run`.
        pids = subprocess.run(["pgrep", "-g", str(program.process.pid), "shapes"], text=True,
                              stdout=subprocess.PIPE).stdout.split()
        check(len(pids) == 1, "%s" % pids)
        await_sleep(int(pids[0]))  # it says "blocked" before its call
        os.kill(int(pids[0]), signal.SIGKILL)
        program.wait(LIMIT_S)
        open_calls = [line for line in read(path) if line.get("unfinished")]
        check([line["what"] for line in open_calls] == ["get_async_event"], "%s" % open_calls)


# ---- the trace


def each_data_path_call_is_seen_under_its_name():
    with Emulator() as emulator:
        lines = traced(emulator, [build("data_path")])
    called = counts(lines)
    with open(os.path.join(SOURCES, "data_path.c")) as source:
        text = source.read()
    made = set(re.findall(r"\bibv_(poll_cq|post_\w+|wr_\w+|wc_read_\w+|\w+_poll|req_notify_cq)\(", text))
    check(len(made) > 30, "%s" % made)
    check(not made - set(called), "not seen: %s" % sorted(made - set(called)))
    check(called["post_send"] == 2 and called["wr_set_sge"] == 4, "%s" % called)
    lists = [line["arguments"] for line in lines if line["what"] in (
        "wr_set_sge_list", "wr_set_inline_data_list")]
    check(len(lists[0]["sg_list"]) == 2 and len(lists[1]["buf_list"]) == 1, "%s" % lists)
    refused = [line for line in lines if line["what"] == "post_send" and "errno" in line]
    check([line["errno"] for line in refused] == ["EINVAL"], "%s" % refused)
    # The last poll has a mask that no device knows.
    polls = [line for line in lines if line["what"] == "start_poll" and "times" not in line]
    check((polls[-1]["result"], polls[-1]["errno"]) == (errno.EINVAL, "EINVAL"), "%s" % polls[-1])
    done = counts(lines, "completion")
    check(done == {"SUCCESS": 13}, "%s" % done)
    numbers = {line["arguments"]["wr_id"] for line in lines if line["kind"] == "completion"}
    check({1, 2, 3, 4} <= numbers, "%s" % numbers)


def crc32c(data):
    """RFC 3720, bit by bit."""
    state = 0xffffffff
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82f63b78 if state & 1 else 0)
    return "crc32c:%08x" % (state ^ 0xffffffff)


def a_trace_has_hashes_of_what_was_sent_and_has_arrived():
    check(crc32c(b"123456789") == "crc32c:e3069283", "the test's own CRC")
    with Emulator() as emulator:
        lines = traced(emulator, [build("data_path"), "5"], options=["--payload-hashes"])
        validated(emulator, os.path.join(emulator.directory, "saw.jsonl"))
    whole, inlined = crc32c(bytes(range(64))), crc32c(b"12345678")
    posted = [line["arguments"]["wr"][0].get("payload_hash") for line in lines
              if line["what"] == "post_send"]
    # Gathered, inline, READ, WRITE with immediate of the bytes that were read, and two sends.
    check(posted == [whole, inlined, None, whole, whole, whole], "%s" % posted)
    built = [line["arguments"].get("payload_hash") for line in lines if line["what"] == "wr_set_sge"]
    check(built == [whole, None], "%s" % built)
    done = [(line["arguments"]["opcode"], line["arguments"]["wr_id"],
             line["arguments"].get("payload_hash")) for line in lines
            if line["kind"] == "completion"]
    arrived = {wr_id: found for opcode, wr_id, found in done if opcode.startswith("RECV")}
    check(arrived == {1: whole, 2: inlined, 3: None, 4: whole, 5: whole,
                      6: "none: several receives with this wr_id"}, "%s" % done)
    reads = [found for opcode, _, found in done if opcode == "RDMA_READ"]
    check(reads == [whole, crc32c(bytes(range(5)))], "%s" % done)
    check(all(found is None for opcode, _, found in done if opcode in ("SEND", "RDMA_WRITE")),
          "%s" % done)


def a_changed_byte_is_a_difference():
    with Emulator() as emulator:
        paths = []
        for byte, options in (("5", ["--payload-hashes"]), ("5", ["--payload-hashes"]),
                              ("6", ["--payload-hashes"]), ("6", [])):
            traced(emulator, [build("data_path"), byte], options=options)
            paths.append(os.path.join(emulator.directory, "%d.jsonl" % len(paths)))
            os.rename(os.path.join(emulator.directory, "saw.jsonl"), paths[-1])
        same, other, without = (emulator.rdmaemu("trace", "diff", paths[0], path)
                                for path in paths[1:])
        check(same.returncode == 0, same.stdout)
        check(other.returncode == 122 and "payload_hash: " in other.stdout, other.stdout)
        check(without.returncode == 0, without.stdout)
        shown = emulator.rdmaemu("trace", "show", paths[2], "--kind", "completion").stdout
        check("payload_hash=crc32c:" in shown, shown)


def names_are_stable_and_tell_whose_a_number_is():
    runs, address = [], free_addresses(1)[0]
    for _ in range(2):
        with Emulator() as emulator:
            lines = traced(emulator, [build("data_path")], address=address)
        # Leave out polls, because empty polls depend on the machine's timing.
        runs.append([{key: line.get(key) for key in ("kind", "what", "object", "arguments", "result")}
                     for line in lines if line["kind"] in ("call", "completion")
                     and not line["what"].endswith("poll") and line["what"] != "poll_cq"])
    check(runs[0] == runs[1], next(
        ("%s\n%s" % pair for pair in zip(*runs) if pair[0] != pair[1]), "lengths"))
    sends = [line["arguments"]["wr"] for line in runs[0] if line["what"] == "post_send"]
    check(sends[0][1]["rkey"] == "mr1.rkey" and sends[0][1]["sg_list"][0]["lkey"] == "mr1.lkey",
          "%s" % sends[0])


def validated(emulator, path):
    jsonschema = __import__("jsonschema")
    with open(SCHEMA) as schema:
        validator = jsonschema.Draft202012Validator(json.load(schema))
    for line in read(path):
        error = next(validator.iter_errors(line), None)
        check(error is None, "%s\n%s" % (error and error.message, line))


def real_traces_keep_the_schema():
    port = str(free_tcp_port())
    pairs = [
        (["rping", "-s", "-a", "{0}", "-C", "5"], ["rping", "-c", "-a", "{0}", "-C", "5"], True),
        (["ucmatose", "-b", "{0}"], ["ucmatose", "-s", "{0}", "-b", "{1}"], True),
        (["ib_write_bw", "-d", "rxe0", "-n", "100", "-F", "-p", port],
         ["ib_write_bw", "-d", "rxe0", "-n", "100", "-F", "-p", port, "{0}"], False),
    ]
    for server, client, by_cm in pairs:
        emulated.need(server[0])
        with Emulator() as emulator:
            addresses = free_addresses(2)
            paths = [os.path.join(emulator.directory, name) for name in ("s.jsonl", "c.jsonl")]
            fill = lambda argv: [word.format(*addresses) for word in argv]
            option = ["--program-trace", paths[0]]
            if by_cm:
                one = emulator.start_listening("s", addresses[0], fill(server), options=option)
            else:
                one = emulator.start("s", addresses[0], fill(server), options=option)
                emulated.wait_for_tcp_listener(int(port), one)
            other = emulator.start("c", addresses[1], fill(client),
                                   options=["--program-trace", paths[1]])
            for program in (other, one):
                check(program.wait(LIMIT_S) == 0, program.describe())
            for path in paths:
                validated(emulator, path)
                lines = read(path)
                # The server of ib_write_bw gets no completions.
                if by_cm or path == paths[1]:
                    check(counts(lines, "completion")["SUCCESS"] > 0, "%s" % counts(lines))
                if by_cm:
                    check(counts(lines, "event")["ESTABLISHED"] > 0, "no event in " + path)
    with Emulator() as emulator:
        traced(emulator, [build("data_path")])
        validated(emulator, os.path.join(emulator.directory, "saw.jsonl"))


def a_trace_that_is_cut_fails_the_run_and_says_how_much():
    with Emulator() as emulator:
        lines = traced(emulator, [build("shapes"), "closefrom"],
                       options=["--program-trace-limit", "100K"], status=125)
        lost = [line for line in lines if line["kind"] == "lost"]
        check([line["what"] for line in lost] == ["limit"], "%s" % lost)
        check(lost[0]["arguments"]["records"] > 1000, "%s" % lost)
        emulator.programs[-1].expect("error: .* lacks %d records.*--program-trace-limit" %
                                     lost[0]["arguments"]["records"])
        whole = traced(emulator, [build("shapes"), "closefrom"])
        kept = len(lines) - len(lost)
        check(kept + lost[0]["arguments"]["records"] == len(whole),
              "%d of %d, %s" % (kept, len(whole), lost))
    with Emulator() as emulator:
        # `ulimit -f` sets RLIMIT_FSIZE in blocks of 512 bytes.
        lines = traced(emulator, ["sh", "-c", "ulimit -f 8; exec %s linked" % build("shapes")],
                       status=125)
        check(counts(lines, "lost")["disk"] == 1, "%s" % lines)


def unopened(move):
    """Runs a program whose recording `move` has hidden, and returns the trace."""
    with Emulator() as emulator:
        command = "%s; %s linked; mv $RDMAEMU_LAYER_TRACE.away $RDMAEMU_LAYER_TRACE%s" % (
            move, build("shapes"), "/control" if "/control" in move else "")
        path = os.path.join(emulator.directory, "saw.jsonl")
        lines = traced(emulator, ["sh", "-c", command], status=125)
        emulator.programs[-1].expect("error: the trace .* lacks process [0-9]+: it could not open")
        validated(emulator, path)
        return lines


def a_process_without_its_recording_fails_the_run():
    # A missing control file stands for one that the process may not open, a missing directory for a
    # chroot.
    for move in ("mv $RDMAEMU_LAYER_TRACE/control $RDMAEMU_LAYER_TRACE.away",
                 "mv $RDMAEMU_LAYER_TRACE $RDMAEMU_LAYER_TRACE.away"):
        lines = unopened(move)
        lost = [line for line in lines if line["kind"] == "lost"]
        check([line["what"] for line in lost] == ["process"], "%s" % lost)
        check(lost[0]["arguments"]["reason"] == "No such file or directory", "%s" % lost)


def calls_of_an_old_symbol_version_are_seen():
    with Emulator() as emulator:
        lines = traced(emulator, [build("shapes"), "old"])
        validated(emulator, os.path.join(emulator.directory, "saw.jsonl"))
    old = [(line["what"], line.get("errno")) for line in lines
           if line.get("version") == "IBVERBS_1.0"]
    check(old == [("get_device_list", "EOPNOTSUPP"), ("alloc_pd", "EOPNOTSUPP")], "%s" % old)


def a_text_that_is_cut_is_marked():
    with Emulator() as emulator:
        lines = traced(emulator, [build("shapes"), "long_name"])
    found = [line["arguments"] for line in lines if line["what"] == "rdma_getaddrinfo"]
    check(found[0]["node"] == 256 * "x" and found[0]["node_cut"] is True, "%s" % found)
    check(found[0]["service"] == "1" and "service_cut" not in found[0], "%s" % found)


def what_another_thread_does_is_no_result_of_a_call():
    versions = os.path.join(OUTPUT, "late_resolve.map")
    with open(versions, "w") as text:
        text.write("RDMACM_1.0 { global: rdma_*; };\n")
    late = build("late_resolve", "-shared", "-fPIC", "-Wl,--version-script=" + versions)
    program = build("resolves", "-Wl,--no-as-needed", "-lrdmacm")
    address = free_addresses(1)[0]
    # The launcher has set the variable, and the program starts with another value.
    command = ("export LATE_RESOLVE_BEHIND=$RDMAEMU_LAYER_RDMACM RDMAEMU_LAYER_RDMACM=%s; "
               "exec %s %s" % (late, program, address))
    with Emulator() as emulator:
        lines = traced(emulator, ["sh", "-c", command], address=address)
    resolved = ["id.verbs" in line["arguments"] for line in lines
                if line["what"] == "rdma_resolve_addr"]
    check(resolved == [False, True], "rdma_resolve_addr set id.verbs: %s" % resolved)
    events = [line["arguments"] for line in lines if line["what"] == "ADDR_RESOLVED"]
    check("id.verbs" in events[0], "%s" % events)


LISTENS = """
import ctypes, socket, struct, sys
cm = ctypes.CDLL("librdmacm.so.1", use_errno=True)
cm.rdma_create_event_channel.restype = ctypes.c_void_p
channel, listener = ctypes.c_void_p(cm.rdma_create_event_channel()), ctypes.c_void_p()
assert cm.rdma_create_id(channel, ctypes.byref(listener), None, 0x106) == 0
address = struct.pack("=H", socket.AF_INET) + struct.pack(">H", 0x1234) + 12 * b"\\0"
assert cm.rdma_bind_addr(listener, address) == 0
assert socket.ntohs(cm.rdma_get_src_port(listener) & 0xffff) == 0x1234
"""


def ports_are_numbers_of_the_machine():
    with Emulator() as emulator:
        lines = traced(emulator, [sys.executable, "-c", LISTENS])
    found = [line["result"] for line in lines if line["what"] == "rdma_get_src_port"]
    check(found == [0x1234], "%s" % found)


def a_trace_that_cannot_be_written_stops_the_run():
    with Emulator() as emulator:
        program = emulator.start("layer", free_addresses(1)[0], ["true"],
                                 options=["--program-trace", "/nosuch/trace"])
        check(program.wait(LIMIT_S) == 125, program.describe())
        program.expect("--program-trace /nosuch/trace")


# ---- the library


def exported(library):
    names = subprocess.run(["readelf", "--dyn-syms", "-W", library], text=True,
                           stdout=subprocess.PIPE).stdout
    rows = [line.split() for line in names.splitlines()]
    return {row[7] for row in rows if len(row) >= 8 and row[4] in ("GLOBAL", "WEAK")
            and row[6] not in ("UND", "ABS")}


def lines_of(path):
    with open(path) as lines:
        return set(lines.read().split())


def the_layer_exports_what_the_libraries_export():
    wanted = lines_of("shim/verbs/abi.txt") | lines_of("shim/layer/client.txt")
    found = {name for name in exported("shim/layer/libibverbs.so.1")
             if not name.startswith("rdmaemu_layer_")}
    check(found == wanted, "%s" % sorted(found ^ wanted))
    found = exported("shim/layer/librdmacm.so.1")
    wanted = lines_of("shim/rdmacm/abi.txt")
    check(found == wanted, "%s" % sorted(found ^ wanted))
    client = {name for name in exported("shim/verbs/libibverbs.so.1") if "rdmaemu_client" in name}
    check(client == lines_of("shim/layer/client.txt"), "%s" % sorted(client))


def every_public_function_is_in_the_table_of_calls():
    with open("shim/layer/trace/calls.inc") as table:
        rows = re.findall(r"^(?:VERBS|VALUE|CM|HELPER)\((\w+)", table.read(), re.MULTILINE)
    check(len(rows) == len(set(rows)), "a row stands twice")
    public = {name.split("@")[0] for name in
              lines_of("shim/verbs/abi.txt") | lines_of("shim/rdmacm/abi.txt")
              if "@@" in name and "PRIVATE" not in name}
    check(set(rows) == public, "%s" % sorted(set(rows) ^ public))
    with open("shim/layer/trace/calls_1_0.inc") as table:
        rows = re.findall(r"^(?:OLD|OLD_VALUE)\((\w+)", table.read(), re.MULTILINE)
    old = {name.split("@")[0] for name in lines_of("shim/verbs/abi.txt")
           if name.endswith("@IBVERBS_1.0") and "@@" not in name}
    check(sorted(rows) == sorted(old), "%s" % sorted(set(rows) ^ old))


def the_layer_needs_no_cxx_runtime():
    for library in ("shim/layer/libibverbs.so.1", "shim/layer/librdmacm.so.1"):
        dynamic = subprocess.run(["readelf", "-d", "-W", library], text=True,
                                 stdout=subprocess.PIPE).stdout
        check("libstdc++" not in dynamic and "libgcc_s" not in dynamic, dynamic)


CASES = SHAPES + [
    a_program_is_seen_that_signals_interrupt,
    a_provider_binds_to_private_symbols,
    a_plug_in_that_is_loaded_locally_is_seen,
    a_sanitized_program_is_seen,
    a_program_under_valgrind_is_seen,
    a_call_that_never_returned_is_in_the_trace,
    each_data_path_call_is_seen_under_its_name,
    a_trace_has_hashes_of_what_was_sent_and_has_arrived,
    a_changed_byte_is_a_difference,
    names_are_stable_and_tell_whose_a_number_is,
    real_traces_keep_the_schema,
    a_trace_that_is_cut_fails_the_run_and_says_how_much,
    a_process_without_its_recording_fails_the_run,
    calls_of_an_old_symbol_version_are_seen,
    a_text_that_is_cut_is_marked,
    what_another_thread_does_is_no_result_of_a_call,
    ports_are_numbers_of_the_machine,
    a_trace_that_cannot_be_written_stops_the_run,
    the_layer_exports_what_the_libraries_export,
    every_public_function_is_in_the_table_of_calls,
    the_layer_needs_no_cxx_runtime,
]

if __name__ == "__main__":
    try:
        sys.exit(emulated.run_cases("layer", [(case.__name__, case) for case in CASES], at_once=2))
    finally:
        shutil.rmtree(OUTPUT, ignore_errors=True)
