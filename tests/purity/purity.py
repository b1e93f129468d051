"""The core is pure and its folders are in order: the allowed includes and calls of each room in
docs/design.md. Without a test such a rule is broken within a week."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

# <random> and <arpa/inet.h> are allowed: seeded engines, and the text form of addresses. A folder
# may include those before it. The pure folders end with host.
ROOMS = ["emulator/base", "emulator/abi", "emulator/wire", "emulator/fault", "emulator/trace", "emulator/verbs",
         "emulator/transport", "emulator/cm", "emulator/host/calls", "emulator/host/faults", "emulator/host/files",
         "tools/cli/files/tree",
         "emulator/host", "emulator/runtime", "shim/client", "emulator/embedded"]
PURE = ROOMS[:ROOMS.index("emulator/host") + 1]
LAYOUTS = "emulator/base/uapi.h"  # the kernel's structs; only this file may include system headers

FORBIDDEN_HEADERS = re.compile(
    r"(sys/(?!types\.h).*|unistd\.h|fcntl\.h|poll\.h|netdb\.h|signal\.h|pthread\.h|dirent\.h|"
    r"time\.h|ctime|thread|mutex|shared_mutex|condition_variable|future|semaphore|latch|barrier|"
    r"stop_token|filesystem|fstream|iostream|cstdio|stdio\.h|dlfcn\.h|linux/.*|"
    r"netinet/.*|net/.*|rdma/rdma_cma\.h|sched\.h|csignal)")
FORBIDDEN_CALLS = re.compile(
    r"(?<![\w.:>])(?:::|std::)?(getenv|setenv|clock_gettime|gettimeofday|time|rand|srand|"
    r"sleep|usleep|nanosleep|system|fork|socket|sendto|recvfrom|mmap|open|fopen|printf|fprintf|"
    r"puts|exit)\s*\(")
FORBIDDEN_NAMES = re.compile(
    r"(std::chrono::(system|steady|high_resolution)_clock|std::random_device|thread_local|"
    r"std::(cout|cerr|thread|mutex|atomic_flag)\b)")
MUTABLE_GLOBAL = re.compile(
    r"^(?:static |inline |thread_local )*(?!.*\b(?:const|constexpr|constinit|using|typedef|extern|"
    r"return|namespace|template|struct|class|enum|union|friend|operator|static_assert|if|case|delete|else)\b)"
    r"[A-Za-z_][\w:<>,\* ]* [a-z_]\w*(?:\[[^\]]*\])?\s*(?:=[^=].*|\{.*\})?;$")
STARTS_THREAD = re.compile(r"\bstd::(?:j?thread\b(?!::|\.)|async\b)|\bpthread_create\b")


def sources(folders):
    for folder in folders:
        for directory, _, names in os.walk(folder):
            for name in sorted(names):
                if name.endswith((".cc", ".h")):
                    yield os.path.join(directory, name)


def room_of(path):
    """Returns the innermost room of a file."""
    found = [room for room in ROOMS if path.startswith(room + "/")]
    return max(found, key=len, default=None)


def is_test(path):
    return path.endswith(("_test.cc", "_for_test.h", "_bench.cc", "_fuzz.cc")) or "/testing/" in path


def code_lines(path):
    """Returns numbered lines without comments and without the content of strings."""
    with open(path) as source:
        text = source.read()
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"//.*", "", line) if "#include" not in line else line
        if "#include" not in line:
            line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
        yield number, line


def included(line):
    match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
    return match.group(1) if match else None


def report(found, rule):
    if found:
        raise Failure("%s:\n  %s" % (rule, "\n  ".join(found)))


def there_is_something_to_check():
    if not any(True for _ in sources(PURE)):
        raise Failure("no sources found: this test would pass on anything")


def pure_rooms_include_no_io():
    found = []
    for path in sources(PURE):
        if path == LAYOUTS or is_test(path):
            continue
        for number, line in code_lines(path):
            header = included(line)
            if header and FORBIDDEN_HEADERS.fullmatch(header):
                found.append("%s:%d includes %s" % (path, number, header))
    report(found, "no I/O, threads, clocks or randomness in the pure rooms")


def pure_rooms_call_no_io():
    found = []
    for path in sources(PURE):
        if is_test(path):
            continue
        for number, line in code_lines(path):
            for rule in (FORBIDDEN_CALLS, FORBIDDEN_NAMES):
                match = rule.search(line)
                if match and included(line) is None:
                    found.append("%s:%d %s" % (path, number, line.strip()))
    report(found, "the pure rooms take time, memory, randomness and network as parameters")


def pure_rooms_have_no_mutable_globals():
    found = []
    for path in sources(PURE):
        if is_test(path):
            continue
        for number, line in code_lines(path):
            # Checks namespace scope only. The code is formatted, so such a line begins at column 0.
            if MUTABLE_GLOBAL.match(line):
                found.append("%s:%d %s" % (path, number, line.strip()))
    report(found, "no global state that changes")


def rooms_include_only_rooms_before_them():
    found = []
    for index, room in enumerate(ROOMS):
        for path in sources([room]):
            if is_test(path) or room_of(path) != room:
                continue
            for number, line in code_lines(path):
                header = included(line)
                if not header or not header.startswith(("emulator/", "shim/", "tools/", "tests/")):
                    continue
                if room_of(header) not in ROOMS[:index + 1]:
                    found.append("%s:%d includes %s" % (path, number, header))
    report(found, "a room includes only those before it: " + ", ".join(ROOMS))


def the_shim_has_no_protocol_logic():
    found = []
    for path in sources(["shim"]):
        if is_test(path):
            continue
        for number, line in code_lines(path):
            header = included(line)
            if header and header.startswith(("emulator/transport", "emulator/cm", "emulator/wire")):
                found.append("%s:%d includes %s" % (path, number, header))
    report(found, "the shim speaks calls and rings, no protocol")


PAYLOAD_OWNERS = re.compile(
    r"emulator/(abi/|transport/(payload_owner|parking|copy_jobs|foreign_job)[.]|verbs/(objects|cq)[.]"
    r"|host/testing/)"
    r"|shim/verbs/(payloads|copy_jobs|objects|cq)[.]")


def only_their_owners_touch_slab_and_copy_offers():
    found = []
    for path in sources(["emulator", "shim"]):
        if is_test(path) or PAYLOAD_OWNERS.match(path):
            continue
        for number, line in code_lines(path):
            if re.search(r"\b(ReceiveSlot|CopyJobs?|CopyJobsPage)\b", line):
                found.append("%s:%d %s" % (path, number, line.strip()))
    report(found, "payload bytes have one owner (docs/design.md)")


CALL_TABLE = "emulator/abi/call_table.h"
HANDLERS = ("emulator/host/verbs_calls.cc", "emulator/host/cm_calls.cc", "emulator/cm/commands.cc")
LARGEST_GROUP = 2  # other files of the emulator may name so many calls of programs


def calls_of_programs():
    """Returns the names in the table that fault rules know: all but those about the host itself."""
    with open(CALL_TABLE) as table:
        lines = re.sub(r"\\\n", " ", table.read())
    entries = re.findall(r"\bX\((\w+),([^()]*)\)", lines)
    return [name for name, rest in entries if "kOfHost" not in rest and name != "name"]


def one_table_names_every_call():
    calls = calls_of_programs()
    if len(calls) < 60:
        raise Failure("only %d calls are in %s" % (len(calls), CALL_TABLE))
    patterns = {}
    for call in calls:
        word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", call).lower()
        patterns[call] = re.compile(r'CallOp::k%s\b|RDMA_USER_CM_CMD_%s\b|"%s"|"%s"' %
                                    (call, call, call, word))
    found = []
    for path in sources(["emulator"]):
        if is_test(path) or path in (CALL_TABLE, *HANDLERS):
            continue
        with open(path) as source:
            text = re.sub(r"//.*", "", source.read())
        named = [call for call in calls if patterns[call].search(text)]
        if len(named) > LARGEST_GROUP:
            found.append("%s lists %s" % (path, ", ".join(named)))
    report(found, "a new call needs four edits (%s): other parts are made from the table" %
           CALL_TABLE)


def each_call_is_made_by_one_file_of_the_library():
    found = {}
    for path in sources(["shim"]):
        # announcement.cc names calls that other files make.
        if is_test(path) or path.endswith(("/fake_host.h", "/rdmacm/announcement.cc")):
            continue
        with open(path) as source:
            text = re.sub(r"//.*", "", source.read())
        for call in calls_of_programs():
            if re.search(r"CallOp::k%s\b|RDMA_USER_CM_CMD_%s\b" % (call, call), text):
                found.setdefault(call, []).append(path)
    # The polling and posting functions exist in two forms. An accept, a rejection and a taken event
    # are also steps of other functions.
    twice = {"PostSend", "PollCq", "ACCEPT", "REJECT", "GET_EVENT"}
    report(["%s: %s" % (call, ", ".join(paths)) for call, paths in sorted(found.items())
            if len(paths) > (2 if call in twice else 1)],
           "a new call needs four edits (%s): one function of the library makes it" % CALL_TABLE)


def contract_tests_use_public_headers_only():
    found = []
    for path in sources(["tests/contract", "tests/embedded", "emulator/include", "docs/examples"]):
        for number, line in code_lines(path):
            header = included(line)
            if header and header.startswith(("emulator/", "shim/")):
                found.append("%s:%d includes %s" % (path, number, header))
    report(found, "contract tests run on any backend")


def headers_are_guarded():
    found = []
    for path in sources(["emulator", "shim", "tools", "tests"]):
        # A macro guards the headers that C programs include.
        if path.endswith(".h") and path != "emulator/include/rdmaemu/rdmaemu.h":
            with open(path) as source:
                if "#pragma once" not in source.read():
                    found.append(path)
    report(found, "#pragma once")


def tests_with_threads_run_under_tsan():
    found = []
    for path in sources(["emulator", "shim", "tests/embedded"]):
        folder, name = os.path.split(path)
        if not is_test(path) or not any(STARTS_THREAD.search(line) for _, line in code_lines(path)):
            continue
        with open(os.path.join(folder, "BUILD")) as build:
            threaded = re.search(r"^THREADED = \[(.*?)\]", build.read(), re.MULTILINE | re.DOTALL)
        if threaded is None or '"%s"' % name not in threaded.group(1):
            found.append(path)
    report(found, "what starts threads stands in THREADED of its BUILD file, and so runs under tsan")


def main():
    # Uses the real checkout instead of Bazel's view, to check files that no target names as well.
    root = os.environ.get("RDMA_TEST_CHECKOUT") or os.path.dirname(
        os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    os.chdir(root)
    return emulated.run_cases("purity", [(f.__name__, f) for f in (
        there_is_something_to_check, pure_rooms_include_no_io, pure_rooms_call_no_io,
        pure_rooms_have_no_mutable_globals, rooms_include_only_rooms_before_them,
        the_shim_has_no_protocol_logic, only_their_owners_touch_slab_and_copy_offers,
        one_table_names_every_call, each_call_is_made_by_one_file_of_the_library,
        contract_tests_use_public_headers_only,
        headers_are_guarded, tests_with_threads_run_under_tsan)])


if __name__ == "__main__":
    sys.exit(main())
