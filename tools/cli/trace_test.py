"""Tests each filter, form of output and exit status of `rdmaemu trace`, on traces written by hand
and on a real trace of a host."""

import json
import os
import re
import sys
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests",
                                "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, free_addresses  # noqa: E402

ADDRESS, OTHER = free_addresses(2)


def check(holds, text):
    if not holds:
        raise Failure(text)


def expect(result, status, *words):
    said = result.stdout + result.stderr
    check(result.returncode == status, "status %s instead of %s: %s" %
          (result.returncode, status, said))
    for word in words:
        check(word in said, "%r is not in: %s" % (word, said))
    return result


class Traces(Emulator):
    """Writes traces, and runs `rdmaemu trace`."""

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def records(self, name, *records):
        """Writes a trace of these records, one millisecond apart."""
        lines = []
        for number, record in enumerate(records):
            whole = {"process": 7, "thread": 1, "kind": "call", "result": 0, "took_ns": 500, **record}
            lines.append('{"time":1700000000.%03d000000,%s' % (number, json.dumps(whole)[1:]))
        return self.write(name, "\n".join(lines) + "\n")

    def connection(self, name, *more):
        return self.records(
            name, {"what": "alloc_pd", "object": "context1", "result": "pd1"},
            {"what": "create_qp", "object": "pd1", "result": "qp1"},
            {"kind": "event", "what": "ESTABLISHED", "object": "id1"},
            {"what": "modify_qp", "object": "qp1", "process": 8}, *more)

    def show(self, *arguments):
        """Returns the names of the records that `trace show --json` prints."""
        result = expect(self.rdmaemu("trace", "show", "--json", *arguments), 0)
        return [json.loads(line)["what"] for line in result.stdout.splitlines()]

    def diff(self, *arguments):
        return self.rdmaemu("trace", "diff", *arguments)


def filters_select():
    with Traces() as traces:
        path = traces.connection("a.jsonl")
        everything = ["alloc_pd", "create_qp", "ESTABLISHED", "modify_qp"]
        for arguments, names in (
                ([], everything),
                (["--object", "qp1"], ["create_qp", "modify_qp"]),
                (["--object", "id"], ["ESTABLISHED"]),
                (["--object", "id1,qp1"], everything[1:]),
                (["--kind", "event"], ["ESTABLISHED"]),
                (["--what", "alloc_pd", "--what", "create_qp"], everything[:2]),
                (["--process", "8"], ["modify_qp"]),
                (["--from", "1ms", "--to", "2ms"], everything[1:3]),
                (["--from", "0.0025s"], ["modify_qp"]),
                (["--to", "0s"], ["alloc_pd"]),
                (["--kind", "call", "--process", "7", "--object", "qp"], ["create_qp"])):
            found = traces.show(path, *arguments)
            check(found == names, "%s: %s instead of %s" % (arguments, found, names))
        result = expect(traces.rdmaemu("trace", "show", path), 0)
        check(result.stdout.splitlines()[1] ==
              "  0.001000000  7          call        pd1        create_qp = qp1  [500 ns]",
              result.stdout)


def a_hosts_trace_merges_with_a_programs():
    with Traces() as traces:
        host = os.path.join(traces.directory, "host.jsonl")
        expect(traces.rdmaemu("run", "--host", "a", "--address", ADDRESS, "--trace", host, "--",
                              "ibv_devinfo"), 0)
        early = traces.connection("early.jsonl")  # in 2023
        late = traces.write("late.jsonl", '{"time":3900000000.0,"process":7,"kind":"end",'
                                          '"what":"exit"}\n')
        names = traces.show(host, late, early)
        check(names[:4] == ["alloc_pd", "create_qp", "ESTABLISHED", "modify_qp"], names)
        check(names[4] == "START" and names[-1] == "exit", names)
        expect(traces.rdmaemu("trace", "show", host, "--process", "a", "--kind", "host"), 0, "START")
        own = os.path.join(traces.directory, "own.jsonl")
        expect(traces.rdmaemu("run", "--host", "b", "--address", ADDRESS, "--trace", own, "--clock",
                              "virtual", "--", "true"), 0)
        expect(traces.rdmaemu("trace", "show", own, early), 0, "note: the trace " + own)


def traces_of_two_hosts_and_a_program_merge():
    emulated.need("rdma_server")
    with Traces() as traces:
        a, b, saw = files = [os.path.join(traces.directory, name) for name in ("a", "b", "saw")]
        server = traces.start("a", ADDRESS, ["rdma_server"], ["--trace", a])
        expect(traces.rdmaemu("wait", "--host", "a", "--listening", "7471"), 0)
        expect(traces.rdmaemu("run", "--host", "b", "--address", OTHER, "--trace", b,
                              "--program-trace", saw, "--", "rdma_client", "-s", ADDRESS), 0)
        check(server.wait(30) == 0, server.describe())
        for order in (files, files[::-1]):
            names = [name for name in traces.show(*order) if name in ("REQ", "REP", "rdma_connect")]
            check(names == ["REQ", "REQ", "REP", "REP", "rdma_connect"], names)
        summary = expect(traces.rdmaemu("trace", "summary", *files), 0, "reg_mr", "rdma_connect")
        check(re.search(r"^ *cm[.]send REQ +1$", summary.stdout, re.MULTILINE), summary.stdout)
        expect(traces.diff(a, saw), 1, a + " is the trace of a host, and " + saw + " that of a program")
        expect(traces.diff(a, b), 122, "only in ")


def traces_of_hosts_are_the_same_with_other_seeds_and_watchers():
    with Traces() as traces:
        for name, seed, command in (("one", "1", "ibv_devinfo"),
                                    ("two", "2", "$RDMAEMU_BIN hosts; ibv_devinfo"),
                                    ("three", "3", "ibv_devinfo; ibv_devinfo")):
            expect(traces.rdmaemu("run", "--host", "a", "--address", ADDRESS, "--seed", seed, "--trace",
                                  os.path.join(traces.directory, name), "--", "sh", "-c", command), 0)
        one, two, three = (os.path.join(traces.directory, name) for name in ("one", "two", "three"))
        expect(traces.diff(one, two), 0, "\nsame\n")
        expect(traces.diff(one, three), 122, "a, calls of client 2", "only in b")


def a_summary_is_text_or_json():
    with Traces() as traces:
        path = traces.connection("a.jsonl")
        expect(traces.rdmaemu("trace", "summary", path), 0, "4 records in 0.003000000 s",
               "event ESTABLISHED", "objects left open: 2",
               "qp1 of process 7, created at %s:2: create_qp = qp1" % path)
        summary = json.loads(expect(traces.rdmaemu("trace", "summary", "--json", path), 0).stdout)
        check([one["object"] for one in summary["left_open"]] == ["pd1", "qp1"], summary)
        check(summary["calls"][0]["median_ns"] == 500, summary)


def a_diff_has_a_status_of_its_own_for_each_outcome():
    with Traces() as traces:
        same, a = traces.connection("same.jsonl"), traces.connection("a.jsonl")
        b = traces.connection("b.jsonl", {"what": "post_send", "object": "qp1"})
        expect(traces.diff(same, a), 0, "\nsame\n")
        expect(traces.diff(a, b), 122, "first difference:", "call post_send", "only in b",
               "\ndifferent: 1 difference\n")
        known = traces.write("known.toml",
                             '[[accept]]\nwhat = "post_send"\nreason = "b sends once more"\n')
        expect(traces.diff(a, b, "--accept", known), 0, "accepted: b sends once more",
               "\nsame, 1 accepted\n")
        expect(traces.diff(a, same, "--accept", known), 123, known + ":1: no difference needs")
        expect(traces.diff(a, traces.write("empty.jsonl", "")), 1, "error: ", "has no records")
        expect(traces.diff(a, os.path.join(traces.directory, "missing")), 1, "error: cannot read")
        expect(traces.diff(a), 2, "B is required")
        expect(traces.diff(a, b, "--accept", traces.write("bad.toml", "[[accept]]\nwat = 1\n")), 1,
               "bad.toml:2: there is no key `wat`")


def a_diff_is_text_json_or_junit():
    with Traces() as traces:
        a = traces.connection("a.jsonl")
        b = traces.connection("b.jsonl", {"what": "post_send", "object": "qp1", "process": 8})
        junit = os.path.join(traces.directory, "out.xml")
        result = json.loads(expect(traces.diff(a, b, "--json", "--junit", junit), 122).stdout)
        check(result["same"] is False and result["first"]["what"] == "post_send", result)
        check(result["first"]["b"]["line"] == 5, result)
        suite = xml.etree.ElementTree.parse(junit).getroot().find("testsuite")
        check(suite.get("failures") == "1", suite.attrib)
        check(len(suite.findall("testcase")) == int(suite.get("tests")), suite.attrib)
        expect(traces.diff(a, b, "--junit", "/nonexistent/out.xml"), 1, "error: cannot write")


def timing_is_compared_on_request():
    with Traces() as traces:
        a = traces.records("a.jsonl", {"what": "rdma_connect", "took_ns": 5_000})
        b = traces.records("b.jsonl", {"what": "rdma_connect", "took_ns": 5_000_000})
        expect(traces.diff(a, b), 0)
        expect(traces.diff(a, b, "--timing"), 122, "took: 1 us to 10 us | 1 ms to 10 ms")


def wrong_traces_and_words_are_one_line():
    with Traces() as traces:
        bad = traces.write("bad.jsonl", '{"time":1.0,"process":1,"kind":"end"}\nnonsense\n')
        for command in ("show", "summary"):
            result = expect(traces.rdmaemu("trace", command, bad), 1, bad + ":2: not a record")
            check(result.stderr.count("\n") == 1 and result.stderr.startswith("error: "),
                  result.stderr)
        good = traces.connection("good.jsonl")
        expect(traces.rdmaemu("trace", "show", good, "--from", "soon"), 2, '"soon" is not a moment')
        expect(traces.rdmaemu("trace", "show", good, "--from", "-1s"), 2)
        expect(traces.rdmaemu("trace", "show"), 2, "FILE is required")
        expect(traces.rdmaemu("trace", "frob"), 2, "show")
        cut = traces.write("cut.jsonl", '{"time":1.0,"process":1,"kind":"end"}\n{"time":2')
        expect(traces.rdmaemu("trace", "show", cut), 0, "note: the last line of " + cut)
        for command in ("show", "summary", "diff"):
            expect(traces.rdmaemu("trace", command, "--help"), 0, "Example", "rdmaemu trace")


CASES = [
    filters_select,
    a_hosts_trace_merges_with_a_programs,
    traces_of_two_hosts_and_a_program_merge,
    traces_of_hosts_are_the_same_with_other_seeds_and_watchers,
    a_summary_is_text_or_json,
    a_diff_has_a_status_of_its_own_for_each_outcome,
    a_diff_is_text_json_or_junit,
    timing_is_compared_on_request,
    wrong_traces_and_words_are_one_line,
]

if __name__ == "__main__":
    sys.exit(emulated.run_cases("trace", [(case.__name__, case) for case in CASES]))
