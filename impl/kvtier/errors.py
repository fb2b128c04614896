"""Every error that kvtier raises, on one screen.

One base class, then a closed family. Messages say what happened, to which page or sequence, and
what to do. A refusal for want of room is no error but an answer (`outcomes.py`).
"""

from __future__ import annotations


class KvtierError(Exception):
    """The base of all errors of this package."""


class ConfigError(KvtierError, ValueError):
    """A configuration that cannot work; nothing was built."""


class BadRequest(KvtierError, ValueError):
    """An argument that makes no sense for this call; nothing was changed."""


class WrongState(KvtierError):
    """An operation that the sequence's state does not allow; nothing was changed."""


class StaleHandle(KvtierError):
    """A handle to slots that have changed owners since: an error, not a wrong page."""


class PageLost(KvtierError):
    """A page that a sequence holds could not be read: it goes on with a shorter prefix.

    `sequence` is the one, `blocks` how many it has left; compute the others anew. Told once; the
    sequence is suspended.
    """

    def __init__(self, sequence: object, blocks: int) -> None:
        super().__init__(
            f"pages of {sequence} were lost: a tier could not read them, or read other bytes; "
            f"{blocks} blocks are left: resume() again with as many new pages as are missing"
        )
        self.sequence, self.blocks = sequence, blocks


class TierFailed(KvtierError):
    """The memory of a tier raised where it must not; the cache goes on."""

    def __init__(self, tier: str, what: str, reason: str) -> None:
        super().__init__(f"tier {tier} could not {what}: {reason}; repeat it, or do without it")
        self.tier, self.reason = tier, reason


class CacheClosed(KvtierError):
    """The cache was closed; open a new one."""


class CopyFailed(KvtierError):
    """A copy could not be submitted; the state is legal, and the operation may be repeated.

    `stage` names the stage that failed; earlier stages stand, pins and holds are as before.
    `queued` copies may be under way: their target slots are quarantined until they have ended.
    """

    def __init__(self, stage: str, queued: int, reason: str) -> None:
        super().__init__(f"the {stage} copies were not submitted ({reason}); ask again or give up")
        self.stage, self.queued, self.reason = stage, queued, reason


class CacheFailed(KvtierError):
    """The cache stopped after an error inside a commit; open a new one. `events` are its last."""

    def __init__(self, reason: str, events: tuple[str, ...] = ()) -> None:
        tail = "".join(f"\n  {event}" for event in events)
        super().__init__(f"the cache has stopped: {reason}; open a new one. Last events:{tail}")
        self.reason, self.events = reason, events

    def again(self) -> CacheFailed:
        """Give a fresh error that says the same, for the next caller."""
        return type(self)(self.reason, self.events)


class SpecViolation(CacheFailed):
    """A bug of ours: the journal is no run of the spec. Please report it with the events shown."""
