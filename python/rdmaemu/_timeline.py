"""Adds the timeline of the hosts to the message of a failed test."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Iterator, Optional

from rdmaemu._library import Error, call

# A failed test shows this many lines of the timeline. A file contains all lines.
LINES = 60

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


def of_failure(test: str, error: Optional[BaseException]) -> Optional[str]:
    """Returns at most LINES lines around the failure, or None when there is no timeline.

    When the timeline is longer, writes all of it to a file named after the test, in
    TEST_UNDECLARED_OUTPUTS_DIR, TMPDIR or /tmp.
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
    return around(text, mark, test) if text else None


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """Yields the exception, and the exceptions during whose handling it was raised."""
    known: list[BaseException] = []
    while error is not None and error not in known:
        known.append(error)
        yield error
        error = error.__cause__ or error.__context__


def around(text: str, mark: Optional[int], test: str) -> str:
    """Returns LINES lines of the text, centred on byte `mark` where possible. None means the end of
    the text."""
    lines = text.splitlines()
    if len(lines) <= LINES:
        return text
    before = len(lines) if mark is None else text.encode()[:mark].count(b"\n")
    first = min(max(0, before - LINES // 2), len(lines) - LINES)
    head = "[lines %d to %d of %d; all of them: %s]" % (
        first + 1, first + LINES, len(lines), _write(text, test))
    return "\n".join([head, *lines[first:first + LINES]]) + "\n"


def _write(text: str, test: str) -> str:
    directory = (os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR") or os.environ.get("TMPDIR") or "/tmp")
    name = re.sub(r"[^A-Za-z0-9_.\[\]-]+", "_", test)[-150:]
    path = os.path.join(directory, "rdmaemu-timeline-%s-%d.txt" % (name, os.getpid()))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return "no file could be written (%s)" % error
    return path
