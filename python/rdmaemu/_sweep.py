"""Fault sweeps in a Python test: the points at which a body can meet faults, and those faults."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Callable, Iterable, Iterator

from rdmaemu._hosts import Host
from rdmaemu._library import Backend, backend, call, encoded
from rdmaemu._matrix import points_at
from rdmaemu._rules import Fault

_POINTS = ("call", "cm", "event", "wc", "packet", "memory")
# Programs may poll and arm millions of times.
_LEFT_OUT = ("call.poll_cq", "call.req_notify_cq")


def _is_chosen(patterns: Iterable[str], text: str) -> bool:
    """Returns whether a pattern matches the text. '*' matches any text. No pattern: True."""
    wanted = list(patterns)
    return not wanted or any(
        re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL)
        for pattern in wanted)


def _likely_faults(place: str) -> list[tuple[str, str]]:
    """Returns (name, keys) of each fault that makes sense at the place."""
    name = encoded(place, "place")
    text = ctypes.create_string_buffer(call("rdmaemu_rule_faults", name, None, 0) + 1)
    call("rdmaemu_rule_faults", name, text, len(text))
    lines = text.value.decode().splitlines()
    return [(line.split("\t")[0], line.split("\t")[1]) for line in lines]


def _chosen_moments(moments: int, most: int) -> Iterator[int]:
    """Yields the first, the last and moments between; all of them if `most` is 0."""
    if most == 0 or moments <= most:
        yield from range(1, moments + 1)
    else:
        for i in range(most):
            yield 1 if most == 1 else 1 + i * (moments - 1) // (most - 1)


def sweep_points(body: Callable[[Host], Any], *, points: Iterable[str] = (),
                 faults: Iterable[str] = (), per_site: int = 3, max_runs: int = 0,
                 **options: Any) -> dict[str, str]:
    """Runs body(host) once without a fault, and returns the faults that it can meet.

    The result maps names such as "call.reg_mr#2: errno=ENOMEM" to rules, as for_each_fault and
    pytest_plugin.faults take them. `points` and `faults` choose by patterns ("call.*", "errno=*").
    Of each place the first moment, the last one and some between get faults, `per_site` in all (0:
    each moment). `max_runs` limits the result (0: no limit). `options` are those of Host. An
    exception of the body is raised here. No host may be open. Raises ValueError when no fault is left, and on another
    backend than embedded hosts.
    """
    if backend() is not Backend.EMBEDDED:
        raise ValueError("sweep_points needs embedded hosts, and the backend is \"%s\"" %
                         backend().value)
    chosen_points, chosen_faults = list(points), list(faults)
    with Host(**options) as host:
        witnesses: list[tuple[str, Fault]] = []
        for point in _POINTS:
            for place in points_at(point):
                if (place not in _LEFT_OUT and _is_chosen(chosen_points, place) and
                        _likely_faults(place)):
                    witnesses.append((place, host.fault(at=place)))
        body(host)
        moments = [(place, witness.fired) for place, witness in witnesses]
    plan = {
        "%s#%d: %s" % (place, nth, name): "at = \"%s\", nth = %d, %s" % (place, nth, keys)
        for place, fired in moments
        for nth in _chosen_moments(fired, per_site)
        for name, keys in _likely_faults(place) if _is_chosen(chosen_faults, name)}
    if not plan:
        raise ValueError("there is nothing to sweep: the body met %d places that have faults, and "
                         "none is chosen" % sum(fired > 0 for _, fired in moments))
    return dict(list(plan.items())[:max_runs or None])
