"""Runs a test's body under many faults, one after the other."""

from __future__ import annotations

import ctypes
import dataclasses
import traceback
from typing import Any, Callable, Iterable, Mapping, Optional, Union

from rdmaemu._hosts import Host, attach
from rdmaemu._library import Backend, backend, call, encoded
from rdmaemu._rules import Fault, RuleLike, text_of

Points = Union[Mapping[str, RuleLike], Iterable[RuleLike]]


@dataclasses.dataclass
class FaultOutcome:
    """What a body did under one fault."""

    point: str                         # the fault's name in the list of points
    rule: str                          # the text of the rule
    fired: int = 0                     # how often the rule fired
    error: Optional[Exception] = None  # what the body raised
    details: str = ""                  # the error's traceback

    @property
    def survived(self) -> bool:
        """Whether the rule fired and the body returned."""
        return self.fired > 0 and self.error is None

    def __str__(self) -> str:
        if self.error is not None:
            result = "failed: %s: %s" % (type(self.error).__name__, self.error)
        else:
            result = "survived" if self.fired else "the rule never fired"
        return "%-40s %s" % (self.point, result)


class FaultMatrix(list[FaultOutcome]):
    """The outcomes, in the order of the points. Its text has a line for each."""

    def __str__(self) -> str:
        return "%d fault points: %d survived, %d failed, %d never fired\n%s" % (
            len(self), len(self.survived), len(self.failed), len(self.never_fired),
            "".join("  %s\n" % outcome for outcome in self))

    @property
    def survived(self) -> list[str]:
        """The points whose rule fired, and under which the body returned."""
        return [each.point for each in self if each.survived]

    @property
    def failed(self) -> list[str]:
        """The points under which the body raised."""
        return [each.point for each in self if each.error is not None]

    @property
    def never_fired(self) -> list[str]:
        """The points under which the body returned without meeting the fault."""
        return [each.point for each in self if each.error is None and each.fired == 0]

    def check(self) -> None:
        """Raises AssertionError, with the matrix and the first traceback, when a point failed.

        Points that never fired do not count as failed: compare never_fired too.
        """
        details = [each.details for each in self if each.error is not None]
        if details:
            raise AssertionError("%s%s" % (self, details[0]))


def points_at(point: str, **keys: Any) -> dict[str, dict[str, Any]]:
    """Returns one fault point for each place of a point: points_at("cm", first=1, drop=True).

    `point` is "call", "cm", "event", "wc", "async", "packet" or "memory". The first entry of the
    example is "cm.req": {"at": "cm.req", "first": 1, "drop": True}. Raises Error with EINVAL for
    another point.
    """
    name = encoded(point, "point")
    places = ctypes.create_string_buffer(call("rdmaemu_rule_places", name, None, 0) + 1)
    call("rdmaemu_rule_places", name, places, len(places))
    return {place: {"at": place, **keys} for place in places.value.decode().split()}


def calls_fail(errno: Union[int, str] = "ENOMEM", nth: int = 1) -> dict[str, dict[str, Any]]:
    """Returns the points at which the nth call of each kind fails with an errno, without effect."""
    return points_at("call", nth=nth, errno=errno)


def cm_messages_lost(count: int = 1) -> dict[str, dict[str, Any]]:
    """Returns the points at which the first `count` CM messages of each kind are lost."""
    return points_at("cm", first=count, drop=True)


def completions_fail(status: str = "retry_exc_err", nth: int = 1) -> dict[str, dict[str, Any]]:
    """Returns the points at which the nth completion of each kind has this status (ibv_wc_status)."""
    return points_at("wc", nth=nth, status=status)


def named_points(points: Points) -> list[tuple[str, str]]:
    """Returns (name, rule text) of each point. A rule without a name in `points` has its text."""
    if isinstance(points, Mapping):
        return [(name, text_of(rule, {})) for name, rule in points.items()]
    texts = [text_of(rule, {}) for rule in points]
    return [(text, text) for text in texts]


def for_each_fault(points: Points, body: Callable[[Host, Fault], Any],
                   **options: Any) -> FaultMatrix:
    """Runs body(host, fault) once for each fault point, each time on a new host.

    `points` are rules (texts or mappings of keys), or a mapping of names to rules. `options` are those
    of Host. With RDMAEMU_BACKEND=host all points have the host process. An Exception of a body ends its
    point and not the matrix. Returns the outcomes; FaultMatrix.check makes a test of them.
    """
    outcomes = FaultMatrix()
    for name, text in named_points(points):
        outcome = FaultOutcome(name, text)
        is_process = backend() is Backend.HOST
        with attach() if is_process else Host(**options) as host:
            with host.fault(text) as fault:
                try:
                    body(host, fault)
                except Exception as error:
                    outcome.error = error
                    outcome.details = traceback.format_exc()
            outcome.fired = fault.fired
        outcomes.append(outcome)
    return outcomes
