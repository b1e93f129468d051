"""Counts the test cases of one or more Bazel runs and prints the closing line.

usage: test_results.py DIRECTORY; for each stage it holds STAGE.json (Bazel's build events) and
STAGE.status (its exit status). Exits 0 when something passed and nothing failed.
"""

import json
import os
import sys
import urllib.parse
import xml.etree.ElementTree

# Bazel's exit statuses for "all passed" and "some test failed". All others are failures of the run.
TEST_STATUSES = (0, 3)
MESSAGE_LINES = 12  # of a failed case that the closing list repeats
MESSAGE_WIDTH = 240


class Count:
    def __init__(self):
        self.passed = 0
        self.failed = []  # text lines
        self.skipped = []  # (label, name, reason)


def local_name(tag):
    return tag.rsplit("}", 1)[-1]


def shortened(children):
    """Returns the first lines of a failed case's message, indented."""
    child = children.get("failure", children.get("error"))
    lines = [line.rstrip() for line in (child.get("message") or child.text or "").splitlines()]
    lines = [line[:MESSAGE_WIDTH] for line in lines if line.strip()]
    if len(lines) > MESSAGE_LINES:
        lines = lines[:MESSAGE_LINES] + ["[...]"]
    return "".join("\n    " + line for line in lines)


def without_place(reason):
    """Returns a skip's reason without gtest's file and line, which differ for equal reasons."""
    line = " ".join(reason.split())
    return line.split("Skipped", 1)[1].strip() if "Skipped" in line else line


def print_skipped(skipped):
    """Prints one line per target and reason: the first skipped case and the number of others."""
    groups = {}
    for label, name, reason in skipped:
        groups.setdefault((label, reason), []).append(name)
    for (label, reason), names in groups.items():
        more = " and %d more" % (len(names) - 1) if len(names) > 1 else ""
        print("skipped: %s %s%s: %s" % (label, names[0], more, reason))


def count_cases(path, label, count):
    """Adds the cases of one test.xml. Returns how many failed."""
    failures = 0
    for case in xml.etree.ElementTree.parse(path).iter():
        if local_name(case.tag) != "testcase" or case.get("status") == "notrun":
            continue
        name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
        children = {local_name(child.tag): child for child in case}
        if "failure" in children or "error" in children:
            count.failed.append("%s %s%s" % (label, name, shortened(children)))
            failures += 1
        elif "skipped" in children or case.get("result") == "skipped":
            reason = children["skipped"].get("message", "") if "skipped" in children else ""
            count.skipped.append((label, name, without_place(reason) or "no reason given"))
        else:
            count.passed += 1
    return failures


def count_stage(directory, stage, count):
    tests, results = set(), {}
    path = os.path.join(directory, stage + ".json")
    with open(path) as lines:
        events = [json.loads(line) for line in lines if line.strip()]
    for event in events:
        key = event["id"]
        if "targetConfigured" in key and "test" in event.get("configured", {}).get("targetKind", ""):
            tests.add(key["targetConfigured"]["label"])
        if "testResult" in key and "testResult" in event:
            label = key["testResult"]["label"]
            result = event["testResult"]
            outputs = [one["uri"] for one in result.get("testActionOutput", [])
                       if one["name"] == "test.xml"]
            results.setdefault(label, []).append((result.get("status", "NO_STATUS"), outputs))
    for label in sorted(results):
        shown = label if stage == "tests" else "%s (%s)" % (label, stage)
        for status, outputs in results[label]:
            failures = 0
            for uri in outputs:
                try:
                    failures += count_cases(urllib.parse.unquote(urllib.parse.urlparse(uri).path),
                                            shown, count)
                except (OSError, xml.etree.ElementTree.ParseError) as error:
                    failures += 1
                    count.failed.append("%s: its results cannot be read: %s" % (shown, error))
            if status not in ("PASSED", "FLAKY") and failures == 0:
                count.failed.append("%s: %s" % (shown, status))
    # With --build_tests_only a filtered target is configured but has no result. So a missing result
    # is a failure only if the run failed.
    status = read_status(directory, stage)
    if status not in TEST_STATUSES:
        for label in sorted(tests - set(results)):
            count.failed.append("%s (%s): did not build or did not run" % (label, stage))
        if not tests - set(results) and not count.failed:
            count.failed.append("%s: bazel ended with status %d" % (stage, status))


def read_status(directory, stage):
    with open(os.path.join(directory, stage + ".status")) as text:
        return int(text.read())


def main():
    directory = sys.argv[1]
    count = Count()
    stages = sorted((name[:-len(".status")] for name in os.listdir(directory)
                     if name.endswith(".status")), key=lambda stage: (stage != "tests", stage))
    for stage in stages:
        try:
            count_stage(directory, stage, count)
        except (OSError, ValueError) as error:
            count.failed.append("%s: bazel left no results: %s" % (stage, error))
    print_skipped(count.skipped)
    for line in count.failed:
        print("FAILED: " + line)
    closing = "%d passed, %d failed" % (count.passed, len(count.failed))
    if count.skipped:
        closing += ", %d skipped" % len(count.skipped)
    print(closing)
    return 1 if count.failed or not count.passed else 0


if __name__ == "__main__":
    sys.exit(main())
