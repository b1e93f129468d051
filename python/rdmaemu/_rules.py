"""Fault rules: their text, and a rule on a host."""

from __future__ import annotations

import ctypes
import enum
import errno
import ipaddress
from types import TracebackType
from typing import Any, ContextManager, Mapping, NamedTuple, Optional, Union

from rdmaemu import _library, _timeline
from rdmaemu._library import Error, RuleStruct, call, encoded, milliseconds, unsigned

# A rule: its text, or its keys and values.
RuleLike = Union[str, Mapping[str, Any]]

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f",
            "\r": "\\r"}
# The rule's host has ended, or all hosts have.
_HOST_HAS_ENDED = (errno.ENOENT, errno.EIO)
_ADDRESSES = (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network,
              ipaddress.IPv6Network)


class NeverFired(AssertionError):
    """A rule that a test expected to fire never fired."""


class Rule(NamedTuple):
    """A fault rule of a host, as struct rdmaemu_rule: its name, its place, its action, how often it
    matched, and how often it fired."""

    name: str
    at: str
    does: str
    matched: int
    fired: int


def rule_text(**keys: Any) -> str:
    """Returns a rule in the syntax of docs/faults.md, as TOML.

    The keys are those of the page. A key that is a Python keyword gets an underscore at its end
    (`async_="qp_fatal"`). Keys whose value is None are omitted. Values are str, bool, int, float,
    addresses and networks of `ipaddress`, members of an enum, and lists of these. `errno` takes a
    number of the module `errno` as well as a name. Raises TypeError and ValueError for other
    values. The host checks the keys when the rule is added.
    """
    return ", ".join("%s = %s" % (key.rstrip("_"), _value(key.rstrip("_"), value))
                     for key, value in keys.items() if value is not None)


def _value(key: str, value: Any) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if key != "errno":
            return str(int(value))
        if value not in errno.errorcode:
            raise ValueError("errno = %d: there is no errno of this number" % value)
        return _quoted(errno.errorcode[value])
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, _ADDRESSES):
        return _quoted(str(value))
    if isinstance(value, (list, tuple)):
        return "[%s]" % ", ".join(_value(key, each) for each in value)
    raise TypeError("%s = %r: a rule has no %s; use str, bool, int, float or a list of these" %
                    (key, value, type(value).__name__))


def _quoted(text: str) -> str:
    """Returns a basic string of TOML 1.0 on one line in ASCII, because a rule allows no other
    strings."""
    def escaped(letter: str) -> str:
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if " " <= letter <= "~":
            return letter
        if "\ud800" <= letter <= "\udfff":
            raise ValueError("%r has a surrogate, which is no character" % text)
        return ("\\u%04x" if letter <= "\uffff" else "\\U%08x") % ord(letter)
    return '"%s"' % "".join(map(escaped, text))


def text_of(rule: Optional[RuleLike], keys: Mapping[str, Any]) -> str:
    """Returns the text of a rule. The rule is a text, a mapping, keywords, or a text to which
    keywords are added."""
    parts = [rule] if isinstance(rule, str) else []
    given = dict(rule) if isinstance(rule, Mapping) else {}
    given.update(keys)
    if given:
        parts.append(rule_text(**given))
    if not parts:
        raise TypeError("a rule is needed: its text, or keywords such as at=\"cm.req\", drop=True")
    return ", ".join(parts)


def all_rules() -> list[Rule]:
    """Returns the rules of all hosts, in their order."""
    while True:
        count = call("rdmaemu_rules", None, 0)
        structs = (RuleStruct * count)()
        found = call("rdmaemu_rules", structs, count)
        if found <= count:
            return [Rule(each.name.decode(errors="replace"), each.at.decode(errors="replace"),
                         each.does.decode(errors="replace"), each.matched, each.fired)
                    for each in structs[:found]]


class Fault:
    """A fault rule of a host.

    The host has the rule from the constructor's return until remove() or the end of the with
    statement. The counts remain readable afterwards.
    """

    def __init__(self, on: ContextManager[Any], text: str, must_fire: bool = False) -> None:
        """Adds the rule to the host that `on` enters. Only Machine.fault and Machine.expect_fault
        call it."""
        self.text = text
        self._must_fire = must_fire
        self._last: Optional[Rule] = None  # the last counts of a removed rule
        name = ctypes.create_string_buffer(_library.NAME_BYTES)
        with on:
            call("rdmaemu_rule_add", encoded(text, "rule"), name, len(name))
        self.name = name.value.decode()

    def __repr__(self) -> str:
        return "<rdmaemu.Fault %s: %s>" % (self.name, self.text)

    @property
    def matched(self) -> int:
        """How often the rule matched."""
        return self._counts().matched

    @property
    def fired(self) -> int:
        """How often the rule fired."""
        return self._counts().fired

    def wait(self, times: int = 1, timeout: float = 10.0) -> None:
        """Waits until the rule has fired `times` times since it was added, and runs the hosts
        meanwhile.

        `timeout` is in seconds of the machine's time, at most a day; 0 checks without waiting.
        Raises Error with ETIMEDOUT at the end of `timeout`. Raises Error with EDEADLK when the
        program has one thread and nothing is due.
        """
        call("rdmaemu_rule_wait", encoded(self.name, "name"), unsigned(times, "times"),
             milliseconds(timeout, "timeout"))

    def release(self) -> None:
        """Releases everything that a rule with hold=True holds. The rule remains and holds later
        matches."""
        call("rdmaemu_rule_release", encoded(self.name, "name"))

    def remove(self) -> None:
        """Removes the rule and keeps its counts. Has no effect for a removed rule."""
        if self._last is not None:
            return
        try:
            self._last = self._counts()
            call("rdmaemu_rule_remove", encoded(self.name, "name"))
        except Error as error:
            if error.errno not in _HOST_HAS_ENDED:
                raise
            self._last = self._last or Rule(self.name, "", "", 0, 0)

    def check_fired(self) -> None:
        """Raises NeverFired unless the rule has fired."""
        counts = self._counts()
        if counts.fired == 0:
            raise NeverFired("the rule %s matched %d times and never fired: %s" %
                             (self.name, counts.matched, self.text))

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException],
                 where: Optional[TracebackType]) -> None:
        if error is not None:
            _timeline.mark_failure(error)
        self.remove()
        if error is None and self._must_fire:
            self.check_fired()

    def _counts(self) -> Rule:
        if self._last is not None:
            return self._last
        try:
            for rule in all_rules():
                if rule.name == self.name:
                    return rule
        except Error as error:
            if error.errno not in _HOST_HAS_ENDED:
                raise
        # The rule's host has ended. The library still has the rule's count of firings.
        fired = self._fired_on_ended_host()
        return Rule(self.name, "", "", fired, fired)

    def _has_fired(self, times: int) -> bool:
        try:
            call("rdmaemu_rule_wait", encoded(self.name, "name"), times, 0)
        except Error as error:
            if error.errno in (errno.ETIMEDOUT, errno.EDEADLK, errno.ENOENT):
                return False  # ENOENT: it cannot fire so often any more
            raise
        return True

    def _fired_on_ended_host(self) -> int:
        least, most = 0, 1
        while self._has_fired(most):
            least, most = most, 2 * most
        while most - least > 1:
            middle = (least + most) // 2
            least, most = (middle, most) if self._has_fired(middle) else (least, middle)
        return least
