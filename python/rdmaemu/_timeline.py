"""The timeline of the hosts in the message of a test that failed."""

from __future__ import annotations

import ctypes
import os
import re
from typing import Optional

from rdmaemu._library import Error, call

# A failing test shows this many lines of the timeline; a file has the rest.
LINES = 60

# Which exception (its id) left the first with statement of a host, and how long the timeline was then.
_failure: Optional[tuple[int, int]] = None
_ended: Optional[str] = None  # the timeline of hosts that an exception closed


def read() -> str:
    """Returns what happened lately, a line each, oldest first."""
    size = call("rdmaemu_timeline", None, 0) + 1
    text = ctypes.create_string_buffer(size)
    call("rdmaemu_timeline", text, size)
    return text.value.decode(errors="replace")


def begin_test() -> None:
    """Forgets the failures of earlier tests."""
    global _failure, _ended
    _failure = _ended = None


def mark_failure(error: BaseException) -> None:
    """Remembers the place of an exception in the timeline: the first with statement that it leaves."""
    global _failure
    if _failure is None or _failure[0] != id(error):
        try:
            _failure = id(error), call("rdmaemu_timeline", None, 0)
        except Error:
            pass


def keep(error: BaseException) -> None:
    """Keeps the timeline of the hosts, which are about to be closed by an exception."""
    global _ended
    mark_failure(error)
    try:
        _ended = read()
    except Error:
        pass


def of_failure(test: str, error: Optional[BaseException]) -> Optional[str]:
    """Returns at most LINES lines around the failure, and None when there is no timeline.

    When the timeline is longer, a file named after the test gets all of it, in
    TEST_UNDECLARED_OUTPUTS_DIR, TMPDIR or /tmp.
    """
    text = _ended
    if text is None:
        try:
            text = read()
        except Error:
            return None
    mark = _failure[1] if _failure is not None and _failure[0] == id(error) else None
    return around(text, mark, test) if text else None


def around(text: str, mark: Optional[int], test: str) -> str:
    """Returns LINES lines of the text, as many as possible on both sides of byte `mark` (None: the
    text's end)."""
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
