"""Makes pages of `rdmaemu trace ladder` from a real run and from hostile traces, and opens them in
headless Chromium. The state of a page is in the attributes of <html> (tools/cli/ladder/controls.js)."""

import atexit
import functools
import json
import os
import re
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from browser import Browser  # noqa: E402
from cli_support import check, expect  # noqa: E402
from emulated import Emulator, free_addresses  # noqa: E402

SERVER, CLIENT = free_addresses(2)
RULES = """
[[fault]]
name = "lost request"
at = "cm.req"
nth = 1
drop = true
"""
HOSTILE = "</script><img src=x onerror=\"document.documentElement.dataset.owned=1\"><!--"
MOST_RECORDS = 250_000  # kMaxLadderRecords


@functools.cache
def browser():
    """Returns the browser of all cases."""
    started = Browser()
    atexit.register(started.close)
    return started


def open_page(page, fragment):
    """Returns the attributes of <html> when the page has run, and the page's text."""
    text, said = browser().open("file://%s#%s" % (page, fragment))
    check(not said, "the page wrote to the console: %s" % said)
    state = dict(re.findall(r'data-([a-z-]+)="([^"]*)"', re.search(r"<html[^>]*>", text).group()))
    check(state.get("ready") == "1" and state.get("errors") == "0", state)
    return state, text


def write(emulator, name, text):
    path = os.path.join(emulator.directory, name)
    with open(path, "wb" if isinstance(text, bytes) else "w") as file:
        file.write(text)
    return path


def call(number, **more):
    return json.dumps({"time": 1700000000 + number / 1000, "process": 7, "thread": 1, "kind": "call",
                       "what": "post_send", "object": "qp1", "result": 0, "took_ns": 5, **more})


def traced_rping(emulator):
    """Runs rping on two hosts, of which one drops a REQ. Returns the traces and captures."""
    files = []

    def options(name):
        here = [os.path.join(emulator.directory, name + end)
                for end in (".jsonl", ".program.jsonl", ".pcapng")]
        files.extend(here)
        return ["--clock", "virtual", "--trace", here[0], "--program-trace", here[1], "--pcap",
                here[2]]

    rules = write(emulator, "rules.toml", RULES)
    server = emulator.start("a", SERVER, ["rping", "-s", "-a", SERVER, "-C", "3"],
                            [*options("a"), "--scenario", rules])
    expect(emulator.rdmaemu("wait", "--host", "a", "--listening", "7174", "--timeout", "30s"), 0)
    client = emulator.start("b", CLIENT, ["rping", "-c", "-a", SERVER, "-C", "3"], options("b"))
    for program in (client, server):
        check(program.wait(60) == 0, program.describe())
    return files


def a_real_run_is_drawn_searched_and_unfolded():
    emulated.need("chromium")
    with Emulator() as emulator:
        files = traced_rping(emulator)
        page = os.path.join(emulator.directory, "run.html")
        expect(emulator.rdmaemu("trace", "ladder", *files, "-o", page), 0)
        state, _ = open_page(page, "check=1&search=lost%20request&unfold=all&theme=dark")
        check(state["theme"] == "dark" and int(state["colours"]) > 20, state)
        check(int(state["drawn"]) > 10 and int(state["arrows"]) > 8, state)
        check(state["matches"] == "1" and "lost request drop = true" in state["selected"], state)
        check(int(state["unfolded"]) == int(state["bundles"]) >= 2, state)
        check(state["lanes"] == "rping|a|b|rping", state)
        # Without words in the address the browser lays the page out again.
        open_page(page, "")


def barriers_and_clock_jumps_are_drawn():
    """The first REQ is lost, so that virtual time jumps to its retransmission. A barrier holds the
    second one."""
    emulated.need("chromium")
    emulated.need("rping")
    with Emulator() as emulator:
        rules = write(emulator, "rules.toml", RULES +
                      '[[fault]]\nname = "gate"\nat = "cm.req"\nnth = 2\nhold = true\n')
        traces = [os.path.join(emulator.directory, name + ".jsonl") for name in "ab"]
        clock = ["--clock", "virtual", "--trace"]
        server = emulator.start("a", SERVER, ["rping", "-s", "-a", SERVER, "-C", "1"],
                                [*clock, traces[0], "--scenario", rules])
        expect(emulator.rdmaemu("wait", "--host", "a", "--listening", "7174", "--timeout", "30s"), 0)
        client = emulator.start("b", CLIENT, ["rping", "-c", "-a", SERVER, "-C", "1"],
                                [*clock, traces[1]])
        expect(emulator.rdmaemu("fault", "wait", "--host", "a", "gate", "--timeout", "30s"), 0)
        expect(emulator.rdmaemu("fault", "release", "--host", "a", "gate"), 0)
        for program in (client, server):
            check(program.wait(60) == 0, program.describe())
        page = os.path.join(emulator.directory, "run.html")
        expect(emulator.rdmaemu("trace", "ladder", *traces, "-o", page), 0)
        state, text = open_page(page, "check=1&kinds=barrier&filter=open&search=gate%20hold")
        check(state["matches"] == "1" and state["selected"] == "a gate hold = true  at cm.req", state)
        # The fired rule has its own colour, and the release that of barriers.
        check("Barriers, clock 2" in text and state["drawn"] == state["rows"], state)
        check({"fault", "barrier"} <= set(state["painted"].split("|")), state)
        check("clock jumps" not in state["gaps"], state)
        state, _ = open_page(page, "check=1&search=gate%20released")
        check(state["matches"] == "1" and state["selected"] == "a gate released, 1 item", state)
        # The retransmission of the first REQ. While the barrier holds, time runs and does not jump.
        check(re.search(r"clock jumps by [0-9.]+ s(\||,|$)", state["gaps"]), state)


def moves_of_a_manual_clock_are_drawn():
    emulated.need("chromium")
    with Emulator() as emulator:
        trace = os.path.join(emulator.directory, "m.jsonl")
        emulator.start_host("m", ["--address", SERVER, "--clock", "manual", "--trace", trace])
        expect(emulator.rdmaemu("clock", "advance", "5s", "--host", "m"), 0)
        expect(emulator.rdmaemu("clock", "run-until-idle", "--host", "m"), 0)
        expect(emulator.rdmaemu("stop", "m"), 0)
        page = os.path.join(emulator.directory, "m.html")
        expect(emulator.rdmaemu("trace", "ladder", trace, "-o", page), 0)
        state, _ = open_page(page, "check=1&kinds=barrier&search=clock%20advance")
        check(state["matches"] == "1" and state["selected"] == "m clock advance by 5 s", state)
        check(state["gaps"] == "clock jumps by 5 s" and state["rows"] == "3", state)
        check("barrier" in state["painted"].split("|"), state)
        state, _ = open_page(page, "check=1&kinds=process&search=run-until-idle")
        check(state["matches"] == "0" and "barrier" not in state["painted"].split("|"), state)


def a_clock_that_runs_does_not_jump():
    emulated.need("chromium")
    with Emulator() as emulator:
        for clock, word in (("real", "nothing for 2 s"), ("scaled:2", "nothing for 2 s"),
                            ("virtual", "clock jumps by 2 s")):
            start = {"time": 1.0, "host": "a", "process": 0, "kind": "host", "object": "",
                     "what": "START", "clock": clock}
            if clock == "real":
                start["time_0"] = "1700000000.0"
            end = {"time": 3.0, "host": "a", "process": 1, "kind": "process", "object": "",
                   "what": "END"}
            trace = write(emulator, "t.jsonl", json.dumps(start) + "\n" + json.dumps(end) + "\n")
            page = os.path.join(emulator.directory, "t.html")
            expect(emulator.rdmaemu("trace", "ladder", trace, "-o", page), 0)
            state, _ = open_page(page, "check=1&kinds=process,hostcall")
            check(state["gaps"] == word, (clock, state))


def draw(emulator, files, fragment):
    """Returns the attributes of a page of the files, and the first rows of its chart."""
    page = os.path.join(emulator.directory, "page.html")
    expect(emulator.rdmaemu("trace", "ladder", *files, "-o", page), 0)
    state, _ = open_page(page, "check=1&" + fragment)
    return state, state["shown"].split("|")


def host_trace(emulator, host, *records):
    """Writes the trace of a host. A record is (seconds, kind, what, more fields)."""
    records = ((0, "host", "START", {"clock": "real", "time_0": "1700000000.000000000"}), *records)
    return write(emulator, host + ".jsonl", "".join(
        json.dumps({"time": time, "host": host, "process": int(kind == "call"), "kind": kind,
                    "object": "", "what": what, **more}) + "\n"
        for time, kind, what, more in records))


def blocks_of(capture):
    """Returns the blocks of a capture: the header of two blocks, then the packets."""
    with open(capture, "rb") as file:
        rest = file.read()
    blocks = []
    while rest:
        size = struct.unpack_from("<I", rest, 4)[0]
        blocks.append(rest[:size])
        rest = rest[size:]
    return blocks[:2], blocks[2:]


def later(block, ns):
    """Returns a packet block with a later time."""
    high, low = struct.unpack_from("<II", block, 12)
    time = (high << 32 | low) + ns
    return block[:12] + struct.pack("<II", time >> 32, time & 0xffffffff) + block[20:]


def is_send_to(block, address):
    """Returns whether the packet is an RC SEND Only to an IPv4 address."""
    ip = block[28:]
    return ip[16:20] == bytes(map(int, address.split("."))) and ip[28] == 0x04


def write_capture(emulator, name, header, packets):
    return write(emulator, name, b"".join(header + packets))


def count(rows, text):
    return sum(text in row for row in rows)


def before(rows, first, then):
    """Checks that both rows are there, in this order."""
    at = [next((n for n, row in enumerate(rows) if text in row), None) for text in (first, then)]
    check(None not in at and at[0] < at[1], (first, then, rows))


def captures_of_two_epochs_are_joined():
    """The captures of two embedded hosts: the same packets, of which one capture has later times."""
    emulated.need("chromium")
    emulated.need("rping")
    with Emulator() as emulator:
        a, _, a_capture, b, _, b_capture = traced_rping(emulator)
        header, packets = blocks_of(a_capture)
        other = blocks_of(b_capture)[0]
        for shift in (459_000, -459_000):
            late = write_capture(emulator, "late.pcapng", other,
                                 [later(each, shift) for each in packets])
            state, rows = draw(emulator, [a_capture, late], "search=not%20received&unfold=all")
            check(state["matches"] == "0" and int(state["records"]) == len(packets), state)
            check(count(rows, " REP") == 1 and count(rows, " REQ") == 2, rows)
            # With the traces, the only loss is the REQ that the rule drops.
            state, rows = draw(emulator, [a, b, a_capture, late],
                               "kinds=cm,data,event,fault&search=not%20received")
            check(state["matches"] == "1" and "b to a: b REQ not received" in rows, state)
            check(state["selected"] == "b REQ not received" and count(rows, ": b REQ") == 2, state)
            before(rows, "b to a: b REQ not received", "lost request drop = true")
            before(rows, "a to b: a REP", "CONNECT_RESPONSE")
            before(rows, "b to a: b RTU", "b to a: b DREQ")
        # A packet that the receiver's capture lacks is lost.
        lost = [each for each in packets if is_send_to(each, SERVER)][-1]
        few = write_capture(emulator, "few.pcapng", header,
                            [each for each in packets if each is not lost])
        for files in ([few, b_capture], [a, b, few, b_capture]):
            state, rows = draw(emulator, files, "kinds=data&search=lost")
            check(state["matches"] == "1" and "RC SEND Only" in state["selected"] and
                  state["selected"].endswith("not received"), state)
            check(count(rows, "1 lost") == 1, rows)


def a_rejected_request_has_arrived():
    emulated.need("chromium")
    req = {"local_comm_id": 7, "service_id": 1}
    with Emulator() as emulator:
        a = host_trace(emulator, "a", (1, "call", "listen", {"errno": 0}),
                       (2, "fault", "reject = 28", {"object": "busy", "at": "cm.req"}))
        b = host_trace(emulator, "b", (2, "cm.send", "REQ", req),
                       (2, "cm.receive", "REJ", {"local_comm_id": 0, "remote_comm_id": 7, "reason": 28}),
                       (2, "cm.event", "RDMA_CM_EVENT_REJECTED", {"status": 28}))
        for files in ([a, b], [b, a]):
            state, rows = draw(emulator, files, "kinds=cm,fault,event&search=not%20received")
            check(state["matches"] == "0", state)
            check([row.split(":")[0] for row in rows] ==
                  ["b to a", "a busy reject = 28  at cm.req", "a to b", "b to b"], rows)
            check("REQ" in rows[0] and "REJ reason 28" in rows[2] and "REJECTED" in rows[3], rows)
        # A rule that drops the request loses it.
        a = host_trace(emulator, "a", (1, "call", "listen", {"errno": 0}),
                       (2, "fault", "drop = true", {"object": "gone", "at": "cm.req"}))
        b = host_trace(emulator, "b", (2, "cm.send", "REQ", req))
        state, rows = draw(emulator, [b, a], "kinds=cm,fault&search=not%20received")
        check(state["matches"] == "1" and rows[0] == "b to a: b REQ not received", rows)
        check("gone drop = true" in rows[1] and len(rows) == 2, rows)


def messages_to_a_host_without_a_trace_are_not_lost():
    emulated.need("chromium")
    emulated.need("rping")
    from_c, to_c = ({"local_comm_id": 50, "service_id": 1},
                    {"local_comm_id": 60, "remote_comm_id": 50})
    with Emulator() as emulator:
        a = host_trace(emulator, "a", (1, "call", "listen", {"errno": 0}),
                       (2, "cm.receive", "REQ", from_c), (3, "cm.send", "REP", to_c))
        # Host b sends a request that its only listener does not get.
        b = host_trace(emulator, "b", (2, "cm.send", "REQ", {"local_comm_id": 7, "service_id": 1}))
        state, rows = draw(emulator, [a, b], "kinds=cm&search=not%20received")
        check(state["matches"] == "1" and "b to a: b REQ not received" in rows, state)
        check("a to ?: a REP no trace of this host" in rows, rows)
        # The capture has the address of the other host.
        trace, _, capture, *_ = traced_rping(emulator)
        header, packets = blocks_of(capture)
        late = write_capture(emulator, "late.pcapng", header,
                             [later(each, 101_550) for each in packets])
        for each in (capture, late):
            state, rows = draw(emulator, [trace, each],
                               "kinds=cm,event,fault&search=no%20trace%20of%20this%20host")
            check(count(rows, "not received") == 0 and int(state["matches"]) > 0, state)
            check(CLIENT in state["lanes"].split("|"), state)
            check(count(rows, CLIENT + " to a: ") == 4 and count(rows, " REP") == 1, rows)
            check(count(rows, "a to %s: a REP" % CLIENT) == 1, rows)
            before(rows, " REQ", "lost request")
            before(rows, "lost request", CLIENT + " to a: a REQ")
            before(rows, CLIENT + " to a: a REQ", "CONNECT_REQUEST")
            before(rows, "CONNECT_REQUEST", "a REP")
            before(rows, "RTU", "ESTABLISHED")
            before(rows, "DREQ", "DISCONNECTED")


def causes_are_before_effects():
    """Records at one time, and a receiver whose clock is 5 ms behind."""
    emulated.need("chromium")
    req, rep = {"local_comm_id": 7, "service_id": 1}, {"local_comm_id": 9, "remote_comm_id": 7}
    with Emulator() as emulator:
        for skew in (0, 0.005):
            a = host_trace(emulator, "a", (2 - skew, "cm.receive", "REQ", req),
                           (2 - skew, "cm.event", "RDMA_CM_EVENT_CONNECT_REQUEST", {"status": 0}),
                           (2 - skew, "cm.send", "REP", rep))
            b = host_trace(emulator, "b", (2, "cm.event", "RDMA_CM_EVENT_ROUTE_RESOLVED", {"status": 0}),
                           (2, "cm.send", "REQ", req), (2, "cm.receive", "REP", rep),
                           (2, "cm.event", "RDMA_CM_EVENT_CONNECT_RESPONSE", {"status": 0}))
            for files in ([a, b], [b, a]):
                state, rows = draw(emulator, files, "kinds=cm,event&search=not%20received")
                check(state["matches"] == "0", state)
                check([row.split(": ")[1].split()[1] for row in rows] ==
                      ["ROUTE_RESOLVED", "REQ", "CONNECT_REQUEST", "REP", "CONNECT_RESPONSE"], rows)
        # A retransmitted message: the receiver got the second one.
        a = host_trace(emulator, "a", (6, "cm.receive", "REQ", req))
        b = host_trace(emulator, "b", (2, "cm.send", "REQ", req), (6, "cm.send", "REQ", req))
        state, rows = draw(emulator, [a, b], "kinds=cm&search=not%20received")
        check(state["matches"] == "1" and rows[0] == "b to a: b REQ not received", rows)
        check(rows[2:] == ["b to a: b REQ"], rows)


def hostile_text_is_no_markup_and_bundles_fold():
    emulated.need("chromium")
    with Emulator() as emulator:
        trace = write(emulator, "t.jsonl", "\n".join(
            [call(0, what=HOSTILE, object=HOSTILE, arguments={HOSTILE: HOSTILE})] +
            [call(number) for number in range(1, 6)]) + "\n")
        page = os.path.join(emulator.directory, "t.html")
        expect(emulator.rdmaemu("trace", "ladder", trace, "-o", page), 0)
        state, text = open_page(page, "select=0&filter=open&search=onerror&unfold=none")
        check("owned" not in state and "<img" not in text, "text of a trace became markup")
        check(state["records"] == "6" and state["matches"] == "1", state)
        check(state["bundles"] == "1" and state["unfolded"] == "0" and state["rows"] == "2", state)


def a_page_says_what_it_lacks():
    with Emulator() as emulator:
        line = '{"time":1,"process":7,"kind":"call"}\n'
        trace = write(emulator, "many.jsonl", line * (MOST_RECORDS + 3))
        page = os.path.join(emulator.directory, "many.html")
        expect(emulator.rdmaemu("trace", "ladder", trace, "-o", page), 0,
               "note: %s lacks the last 3 records" % page)
        with open(page) as file:
            check('"left_out":3,' in file.read(), "the page does not say what it lacks")
        few = write(emulator, "few.jsonl", "".join(call(number) + "\n" for number in range(5)))
        expect(emulator.rdmaemu("trace", "ladder", few, "-o", page, "--from", "1ms", "--to", "3ms"), 0)
        with open(page) as file:
            check(file.read().count('"what":"post_send"') == 3, "--from and --to do not select")


def wrong_files_are_named():
    with Emulator() as emulator:
        page = os.path.join(emulator.directory, "t.html")

        def ladder(*arguments):
            return emulator.rdmaemu("trace", "ladder", *arguments)
        good = write(emulator, "good.jsonl", call(0) + "\n")
        bad = write(emulator, "bad.jsonl", call(0) + "\nnonsense\n")
        expect(ladder(bad, "-o", page), 1, bad + ":2: not a record")
        section = bytes.fromhex("0a0d0d0a1c0000004d3c2b1a01000000ffffffffffffffff1c000000")
        packet = bytes.fromhex("060000000c0000000c000000")
        expect(ladder(write(emulator, "bad.pcapng", section + packet), "-o", page), 1,
               "bad.pcapng: packet 1: the packet block is too short")
        expect(ladder(write(emulator, "big.pcapng", section.replace(b"\x4d\x3c\x2b\x1a",
                                                                   b"\x1a\x2b\x3c\x4d")),
                      "-o", page), 1, "the section is big-endian")
        expect(ladder(write(emulator, "cut.pcapng", section + packet[:9]), "-o", page), 0,
               "note: the last packet of ")
        expect(ladder("/nonexistent", "-o", page), 1, "error: cannot read /nonexistent")
        expect(ladder(good, "-o", "/nonexistent/t.html"), 1, "error: cannot write")
        expect(ladder(good), 2, "--output is required")
        expect(ladder(good, "-o", page, "--from", "soon"), 2, '"soon" is not a moment')


CASES = [
    a_real_run_is_drawn_searched_and_unfolded,
    barriers_and_clock_jumps_are_drawn,
    moves_of_a_manual_clock_are_drawn,
    a_clock_that_runs_does_not_jump,
    captures_of_two_epochs_are_joined,
    a_rejected_request_has_arrived,
    messages_to_a_host_without_a_trace_are_not_lost,
    causes_are_before_effects,
    hostile_text_is_no_markup_and_bundles_fold,
    a_page_says_what_it_lacks,
    wrong_files_are_named,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("ladder", [(case.__name__, case) for case in CASES]))
