"""One question to the lifecycle: may this event happen to this page, here and now.

A `Case` gathers all that a guard may look at. Guards are named predicates over a case; each says
what it needs to know, so that the table can be generated from those that need the state alone,
while counts of users and facts of the world (slots, keys, fences) stay on the row as conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from kvtier_spec.chain import Chain
from kvtier_spec.states import GPU, State
from kvtier_spec.vocabulary import Phase, SlotState


@dataclass(frozen=True, slots=True)
class Case:
    """A page's state and users, the tiers that the event names, and the facts of the world.

    `source` and `target` are tier positions (events of one tier name it as the target);
    `slot` is the state of the slot to be taken; `fenced` says that the fence of the last write came
    along; `fault` that the device failed; `key_known` that another page is found under the key;
    `same_key` that a twin carries it.
    """

    chain: Chain
    state: State
    source: int = GPU
    target: int = GPU
    pins: int = 0
    holds: int = 0
    slot: SlotState | None = None
    fenced: bool = False
    fault: bool = False
    key_known: bool = False
    same_key: bool = False

    @property
    def is_private(self) -> bool:
        """Say whether the page belongs to one user, with whom it goes."""
        return self.state.phase in (Phase.OPEN, Phase.TWIN)


class Needs(StrEnum):
    """What a guard looks at."""

    STATE = "state"
    USERS = "users"
    WORLD = "world"


@dataclass(frozen=True, slots=True)
class Guard:
    """A named condition; `__call__` says whether it holds for a case."""

    name: str
    needs: Needs
    predicate: Callable[[Case], bool]

    def __call__(self, case: Case) -> bool:
        """Judge a case."""
        return self.predicate(case)


def _state(name: str, predicate: Callable[[Case], bool]) -> Guard:
    return Guard(name, Needs.STATE, predicate)


def _users(name: str, predicate: Callable[[Case], bool]) -> Guard:
    return Guard(name, Needs.USERS, predicate)


def _world(name: str, predicate: Callable[[Case], bool]) -> Guard:
    return Guard(name, Needs.WORLD, predicate)


# The phase of the page.
is_absent = _state("absent", lambda c: c.state.phase is Phase.ABSENT)
is_open = _state("open", lambda c: c.state.phase is Phase.OPEN)
is_committed = _state("committed", lambda c: c.state.phase is Phase.COMMITTED)
is_twin = _state("twin", lambda c: c.state.phase is Phase.TWIN)
is_written = _state(
    "committed or forgotten", lambda c: c.state.phase in (Phase.COMMITTED, Phase.FORGOTTEN)
)
is_live = _state(
    "open, committed or forgotten",
    lambda c: c.state.phase in (Phase.OPEN, Phase.COMMITTED, Phase.FORGOTTEN),
)
is_readable = _state("has a valid replica", lambda c: bool(c.state.valid))

# Its replicas and its flight.
valid_on_source = _state("valid on source", lambda c: c.source in c.state.valid)
valid_on_target = _state("valid there", lambda c: c.target in c.state.valid)
valid_on_gpu = _state("valid on gpu", lambda c: GPU in c.state.valid)
none_on_target = _state("none on target", lambda c: c.target not in c.state.owned())
none_on_gpu = _state("no gpu replica", lambda c: GPU not in c.state.valid)
no_flight_into_gpu = _state(
    "no flight into gpu", lambda c: c.state.flight is None or c.state.flight[1] != GPU
)
another_valid = _state("another valid replica", lambda c: bool(c.state.valid - {c.target}))
in_flight = _state("in flight", lambda c: c.state.flight is not None)
no_flight = _state("no flight", lambda c: c.state.flight is None)
not_flight_source = _state(
    "not a flight's source", lambda c: c.state.flight is None or c.state.flight[0] != c.target
)
open_not_in_flight = _state(
    "open: no flight", lambda c: c.state.phase is not Phase.OPEN or c.state.flight is None
)
open_on_gpu = _state(
    "open: on the gpu", lambda c: c.state.phase is not Phase.OPEN or GPU in c.state.valid
)

# The tiers that the event names.
both_infallible = _state("both infallible", lambda c: c.chain.is_eager(c.source, c.target))
one_fallible = _state("one is fallible", lambda c: not c.chain.is_eager(c.source, c.target))
not_from_writable = _state(
    "no flight from the writable tier", lambda c: not c.chain.tiers[c.source].writable
)

# Its users.
pinned = _users("pinned", lambda c: c.pins > 0)
held = _users("held", lambda c: c.holds > 0)
unheld = _users("unheld", lambda c: c.holds == 0)
unpinned_if_gpu = _users("unpinned if gpu", lambda c: c.target != GPU or c.pins == 0)
open_unpinned = _users("open: unpinned", lambda c: c.state.phase is not Phase.OPEN or c.pins == 0)
room_for_pin = _users("private: one pin", lambda c: not c.is_private or c.pins == 0)
room_for_hold = _users("private: one hold", lambda c: not c.is_private or c.holds == 0)
keeps_a_user = _users("private: keeps a user", lambda c: not c.is_private or c.pins + c.holds > 1)
unused = _users("no user but a private page's own", lambda c: c.pins + c.holds == int(c.is_private))

# The world.
slot_free = _world("slot free", lambda c: c.slot is SlotState.FREE)
fenced = _world("fence of the last write", lambda c: c.fenced)
key_new = _world("no page under the key", lambda c: not c.key_known)
key_known = _world("a page under the key", lambda c: c.key_known)
fallible_or_fault = _world(
    "a fallible tier, or a device fault", lambda c: c.chain.tiers[c.target].fallible or c.fault
)
same_key = _world("same key", lambda c: c.same_key)
