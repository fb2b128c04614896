"""The nouns and verbs that the spec, the runtime and the journal share.

Everything that crosses the border between `kvtier_spec` and `kvtier` is named here and nowhere
else: the phases of a page, the states of a slot and of a sequence, and the kinds of primitive
events. The runtime uses these names when it *emits*; only the spec knows which of them is legal
when.
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """What a page is, apart from where it is."""

    ABSENT = "absent"
    OPEN = "open"
    """Its bytes may still change; one replica, one user."""
    COMMITTED = "committed"
    """Its bytes never change again; findable under its key."""
    TWIN = "twin"
    """Committed, but another page was found under the key first: private, one user, gpu only."""
    FORGOTTEN = "forgotten"
    """Committed before a reset, or by a sequence from before it: not findable, else the same."""
    DOOMED = "doomed"
    """Dropped while a flight still touches two slots: not findable, no users, nothing readable."""


class SlotState(StrEnum):
    """Who may use a slot. A generation number goes up at each take (free -> owned)."""

    FREE = "free"
    OWNED = "owned"
    QUARANTINED = "quarantined"
    """A job that was given up may still touch it."""
    RETIRING = "retiring"
    """Taken out of the pool by a shrink."""


class SequenceState(StrEnum):
    """How a sequence uses its pages."""

    SUSPENDED = "suspended"
    RESUMING = "resuming"
    ACTIVE = "active"
    CLOSED = "closed"


class Kind(StrEnum):
    """The primitive lifecycle events; `lifecycle.RULES` says what each one does."""

    OPEN = "open"
    COMMIT = "commit"
    FORGET = "forget"
    JOIN = "join"
    PIN = "pin"
    UNPIN = "unpin"
    HOLD = "hold"
    UNHOLD = "unhold"
    COPY = "copy"
    START = "start"
    LAND = "land"
    FAIL = "fail"
    LOSE = "lose"
    RELEASE = "release"
    DROP = "drop"
    DOOM = "doom"
    RETIRE = "retire"
    QUARANTINE = "quarantine"
    READMIT = "readmit"
    GROW = "grow"


SLOT_KINDS = frozenset({Kind.RETIRE, Kind.QUARANTINE, Kind.READMIT, Kind.GROW})
"""Events of a slot; all others are events of a page."""
