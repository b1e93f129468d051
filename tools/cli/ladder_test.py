"""Makes pages of `rdmaemu trace ladder` from a real run and from hostile traces, and opens them in
headless Chromium. The state of a page is in the attributes of <html> (tools/cli/ladder/controls.js)."""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
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
# Chromium starts in a second on an idle machine, and much later on a busy one.
BROWSER_LIMIT_S = 200


def open_page(page, fragment):
    """Returns the attributes of <html> when the page has run, and the page's text."""
    browser = emulated.need("chromium")
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
             "--user-data-dir=" + profile, "--window-size=1280,800", "--dump-dom",
             "file://%s#%s" % (page, fragment)],
            env=dict(os.environ, HOME=profile), text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=BROWSER_LIMIT_S)
    # Pages of Chromium itself (chrome://) write messages, too.
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line and
            "source: chrome://" not in line]
    check(not said, "the page wrote to the console: %s" % said)
    found = re.search(r"<html[^>]*>", done.stdout)
    check(found, "no page: " + done.stderr[-2000:])
    state = dict(re.findall(r'data-([a-z-]+)="([^"]*)"', found.group()))
    check(state.get("ready") == "1" and state.get("errors") == "0", state)
    return state, done.stdout


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
    hostile_text_is_no_markup_and_bundles_fold,
    a_page_says_what_it_lacks,
    wrong_files_are_named,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("ladder", [(case.__name__, case) for case in CASES]))
