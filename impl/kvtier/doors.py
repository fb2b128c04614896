"""Validation at the door: what makes no sense is refused before anything changes.

Inside a commit an exception stops the cache, so whatever a caller can get wrong is asked here, with
one error of our family that says what to give instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from operator import index

from kvtier.config import MAX_SLOTS, Config
from kvtier.errors import BadRequest
from kvtier.slots import MAX_LANES
from kvtier.transfer import Engine

MAX_PAGES_A_DEMAND = 1 << 20
"""Pages of one demand: a million; more is a wrong unit."""


def keys(given: Iterable[Hashable]) -> list[Hashable]:
    """Check that keys are a collection of hashable things, one a block."""
    if isinstance(given, str | bytes | bytearray):
        raise BadRequest(f"keys is one {type(given).__name__}; give a list of keys, one a block")
    try:
        found = list(given)
        for key in found:
            hash(key)
    except TypeError as error:
        raise BadRequest(f"keys are hashable, one a block ({error})") from error
    return found


def count(given: int, what: str, *, most: int = MAX_PAGES_A_DEMAND) -> int:
    """Check that a count of pages is a whole number within bounds."""
    try:
        found = index(given)
    except TypeError as error:
        raise BadRequest(f"{what} is {given!r}; give a whole number") from error
    if not 0 <= found <= most:
        raise BadRequest(f"{what} is {found}; give 0 to {most}")
    return found


def tickets(given: Iterable[int]) -> set[int]:
    """Check that tickets are a collection of numbers."""
    try:
        return {index(ticket) for ticket in given}
    except TypeError as error:
        raise BadRequest(f"tickets are {given!r}; give those of a Busy: answer.tickets") from error


def seconds(given: float | None) -> float | None:
    """Check that a time is a number of seconds, or none."""
    if given is None or (isinstance(given, int | float) and given >= 0):
        return given
    raise BadRequest(f"timeout_s is {given!r}; give seconds, or None to wait as long as it takes")


def group(config: Config, given: int) -> int:
    """Check the number of a group."""
    return count(given, "the group", most=len(config.groups) - 1)


def slots(given: int | Mapping[str, int], config: Config, *, least: int) -> list[int]:
    """Check new numbers of slots: one for every group, or one for each by name."""
    names = [group.name for group in config.groups]
    if isinstance(given, Mapping) and set(given) != set(names):
        raise BadRequest(f"slots are given for {list(given)}; the groups are {names}")
    asked = [given[name] for name in names] if isinstance(given, Mapping) else [given] * len(names)
    counts = [count(number, "the number of slots", most=MAX_SLOTS) for number in asked]
    if min(counts) < least:
        raise BadRequest(f"the number of slots is {min(counts)}; give {least} or more")
    return counts


def lane(engine: Engine, stream: Hashable | None) -> int:
    """Name the lane of a stream that can be one, and is not one too many."""
    try:
        found = engine.lane(stream)
    except TypeError as error:
        raise BadRequest(f"stream {stream!r} cannot be told apart from others: {error}") from error
    if found >= MAX_LANES:
        raise BadRequest(f"more than {MAX_LANES} streams; use streams again instead of new ones")
    return found
