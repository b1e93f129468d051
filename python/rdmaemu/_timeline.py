"""The timeline of the hosts in the message of a failed test, and the test's report."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from typing import Iterator, Optional

from rdmaemu._library import Error, call, encoded

# A failed test shows this many lines of the timeline. A file contains all lines.
LINES = 60

# The variable that names the directory of reports, and the limit of each trace and each capture in a
# report, in bytes. Hosts keep so much in memory.
REPORT_VARIABLE = "RDMAEMU_REPORT"
REPORT_BYTES = 8 << 20
_MAX_PATH_BYTES = 4096

# Attributes of an exception that propagates out of a with statement of this package. _MARK is the
# timeline's length at the first such with statement. _TEXT is the timeline when the exception
# closed the hosts.
_MARK, _TEXT = "_rdmaemu_timeline_bytes", "_rdmaemu_timeline"


def read() -> str:
    """Returns the recent events, one line each, oldest first."""
    size = call("rdmaemu_timeline", None, 0) + 1
    text = ctypes.create_string_buffer(size)
    call("rdmaemu_timeline", text, size)
    return text.value.decode(errors="replace")


def mark_failure(error: BaseException) -> None:
    """Records the exception's position in the timeline, at the first with statement that it
    leaves."""
    if not hasattr(error, _MARK):
        try:
            setattr(error, _MARK, call("rdmaemu_timeline", None, 0))
        except Error:
            pass


def keep(error: BaseException) -> None:
    """Saves the timeline of the hosts before an exception closes them."""
    mark_failure(error)
    try:
        setattr(error, _TEXT, read())
    except Error:
        pass


def report_directory() -> str:
    """Returns the directory below which a failed test leaves a report: RDMAEMU_REPORT, else one in
    TEST_UNDECLARED_OUTPUTS_DIR. "": no test leaves a report."""
    outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    return os.environ.get(REPORT_VARIABLE, os.path.join(outputs, "rdmaemu-reports") if outputs else "")


def write_report(directory: str, name: str) -> str:
    """Writes a report, and returns its directory. See Host.report."""
    path = ctypes.create_string_buffer(_MAX_PATH_BYTES)
    call("rdmaemu_report", os.fsencode(directory), encoded(name, "name"), path, len(path))
    return os.fsdecode(path.value)


def report_of_failure(test: str) -> tuple[Optional[str], str]:
    """Writes the report of a failed test, if tests leave reports. Returns its directory, and a line
    for the test's message."""
    directory = report_directory()
    if not directory:
        return None, ""
    try:
        path = write_report(directory, test)
    except Error as error:
        # The test has no host that keeps a report.
        return None, "" if error.errno in (errno.ENOENT, errno.EINVAL) else "none: %s" % error
    said = "the report of this test is in %s; " % path
    if os.path.exists(os.path.join(path, "ladder.html")):
        return path, said + "open its ladder.html"
    return path, said + ("draw it: cd %s && rdmaemu trace ladder *.jsonl *.pcapng -o ladder.html" %
                         path)


def of_failure(test: str, error: Optional[BaseException],
               report: Optional[str] = None) -> Optional[str]:
    """Returns at most LINES lines around the failure, or None when there is no timeline.

    Writes all lines to timeline.txt of the directory `report`. Without a report, and if there are
    more lines, writes them to a file named after the test, in TEST_UNDECLARED_OUTPUTS_DIR, TMPDIR
    or /tmp.
    """
    mark = text = None
    for each in _chain(error):
        mark = getattr(each, _MARK, mark)
        text = getattr(each, _TEXT, text)
    if text is None:
        try:
            text = read()
        except Error:
            return None
    return around(text, mark, test, report) if text else None


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """Yields the exception, and the exceptions during whose handling it was raised."""
    known: list[BaseException] = []
    while error is not None and error not in known:
        known.append(error)
        yield error
        error = error.__cause__ or error.__context__


def around(text: str, mark: Optional[int], test: str, report: Optional[str] = None) -> str:
    """Returns LINES lines of the text, centred on byte `mark` where possible. None means the end of
    the text."""
    lines = text.splitlines()
    written = _write(text, test, report) if report or len(lines) > LINES else ""
    if len(lines) <= LINES:
        return text
    before = len(lines) if mark is None else text.encode()[:mark].count(b"\n")
    first = min(max(0, before - LINES // 2), len(lines) - LINES)
    head = "[lines %d to %d of %d; all of them: %s]" % (
        first + 1, first + LINES, len(lines), written)
    return "\n".join([head, *lines[first:first + LINES]]) + "\n"


def _write(text: str, test: str, report: Optional[str]) -> str:
    directory = (os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR") or os.environ.get("TMPDIR") or "/tmp")
    name = re.sub(r"[^A-Za-z0-9_.\[\]-]+", "_", test)[-150:]
    path = os.path.join(directory, "rdmaemu-timeline-%s-%d.txt" % (name, os.getpid()))
    if report:
        path = os.path.join(report, "timeline.txt")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return "no file could be written (%s)" % error
    return path
