"""The trace checker: it follows legal journals and refuses the first illegal event, by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtier import NullEngine
from kvtier.replay import Modes, Replay, Sizes
from kvtier.trace import extract, load
from kvtier_spec import GPU_HOST, GPU_HOST_DISK, Batch, Checker, Kind, Record, TraceError

FENCE = (3, 1)


def checker() -> Checker:
    """A checker of two slots a tier."""
    return Checker(GPU_HOST, [(2, 2)])


def journal() -> list[Record]:
    """A page opened, committed, unpinned, evicted and recalled."""
    return [
        Record(Kind.OPEN, [1], [0]),
        Record(Kind.COMMIT, [1], keys=["k"], fence=FENCE),
        Record(Kind.UNPIN, [1]),
        Record(Kind.COPY, [1], [1], source=0, target=1),
        Record(Kind.RELEASE, [1], target=0),
        Record(Kind.COPY, [1], [0], source=1, target=0),
        Record(Kind.PIN, [1]),
    ]


def test_a_legal_journal_passes() -> None:
    """The world is followed to its end."""
    follows = checker()
    follows.feed(journal())

    assert follows.state_names() == {1: "gpu+host"}
    assert follows.check() == []
    assert [str(v) for v in follows.quiescent()] != []


@pytest.mark.parametrize("missing", range(6))
def test_a_missing_line_is_noticed(missing: int) -> None:
    """A journal with one line left out is no run of the spec."""
    lines = journal()
    del lines[missing]

    with pytest.raises(TraceError):
        checker().feed(lines)


@pytest.mark.parametrize(
    ("line", "damage", "guard"),
    [
        (1, {"fence": None}, "fence of the last write"),
        (1, {"is_private": True}, "a page under the key"),
        (3, {"slots": [7]}, "slot free"),
        (4, {"target": 1}, "unpinned if gpu"),
        (0, {"pages": [1, 2], "slots": [0, 0]}, "slot free"),
    ],
)
def test_damage_is_named(line: int, damage: dict[str, object], guard: str) -> None:
    """The error names the event, the page and the guard that fails."""
    lines = journal()
    lines[line] = replace(lines[line], **damage)
    if guard == "unpinned if gpu":
        lines[4] = Record(Kind.RELEASE, [1], target=0)
        lines.insert(4, Record(Kind.PIN, [1]))

    with pytest.raises(TraceError) as found:
        checker().feed(lines)

    assert found.value.guard == guard
    assert found.value.guard in str(found.value)


def test_flights_are_judged_too() -> None:
    """A demotion that lands twice is refused at the second landing."""
    follows = Checker(GPU_HOST_DISK, [(1, 1, 1)])
    lines = [
        Record(Kind.OPEN, [1], [0]),
        Record(Kind.COMMIT, [1], keys=["k"], fence=FENCE),
        Record(Kind.UNPIN, [1]),
        Record(Kind.COPY, [1], [0], source=0, target=1),
        Record(Kind.START, [1], [0], source=1, target=2),
        Record(Kind.LAND, [1]),
    ]
    follows.feed(lines)
    assert follows.state_names() == {1: "gpu+host+disk"}

    with pytest.raises(TraceError, match="in flight"):
        follows.feed([Record(Kind.LAND, [1])])


def test_a_join_moves_the_slot_and_the_users() -> None:
    """A page on the host takes its twin's slot; the twin is gone."""
    follows = checker()
    follows.feed(journal()[:5])
    follows.feed(
        [
            Record(Kind.OPEN, [2], [0]),
            Record(Kind.COMMIT, [2], keys=["k"], fence=FENCE, is_private=True),
            Record(Kind.JOIN, [1], twins=[2]),
        ]
    )

    assert follows.state_names() == {1: "gpu+host"}
    assert follows.check() == []


@pytest.mark.parametrize(
    "record",
    [
        Record(Kind.OPEN, [1], [-1]),
        Record(Kind.OPEN, [1, 2], [0]),
        Record(Kind.OPEN, [1], [0], group=3),
        Record(Kind.QUARANTINE, slots=[-1]),
        Record(Kind.QUARANTINE, slots=[9]),
        Record(Kind.RELEASE, [1], target=5),
        Record(Kind.COMMIT, [1], fence=FENCE),
        Record(Kind.JOIN, [1]),
    ],
)
def test_what_cannot_be_read_is_refused(record: Record) -> None:
    """A malformed record is an error of the journal, not of the checker."""
    with pytest.raises(TraceError):
        checker().feed([record])


def test_a_replica_of_a_tier_that_cannot_fail_is_lost_by_a_fault_only() -> None:
    """`lose` is no way around the guards of `release` and `drop`."""
    follows = checker()
    follows.feed(journal()[:3])
    with pytest.raises(TraceError, match="a device fault"):
        follows.feed([Record(Kind.LOSE, [1], target=0)])
    follows.feed([Record(Kind.LOSE, [1], target=0, is_fault=True)])

    assert follows.state_names() == {}


def test_a_quarantined_slot_is_nobodys() -> None:
    """Slots set aside cannot be taken until they are readmitted."""
    follows = checker()
    follows.feed([Record(Kind.QUARANTINE, slots=[0], target=0)])

    with pytest.raises(TraceError, match="slot free"):
        follows.feed([Record(Kind.OPEN, [1], [0])])
    follows.feed([Record(Kind.READMIT, slots=[0], target=0), Record(Kind.OPEN, [1], [0])])


def test_a_real_replays_journal_is_legal_and_loses_no_line_unnoticed() -> None:
    """The journal of the main job passes; with any tenth batch missing it does not."""
    batches: list[Batch] = []
    sizes = Sizes(window=3, slots={"gpu": 260, "host": 200})
    run = Replay(load(extract(), limit=40), sizes, Modes(policy="shadow_first"), moves_bytes=False)
    run.cache.subscribe(batches.append)
    run.run()
    slots = [(260, 200)]

    whole = Checker(GPU_HOST, slots)
    for batch in batches:
        whole.feed(batch)
    assert whole.quiescent() == []
    assert isinstance(run.cache.engine, NullEngine)

    for missing in range(0, len(batches) - 20, 10):
        assert _noticed(slots, batches[:missing] + batches[missing + 1 :]), f"batch {missing}"


def _noticed(slots: list[tuple[int, int]], batches: list[Batch]) -> bool:
    """Say whether a journal is refused, or found unfinished at its end."""
    partial = Checker(GPU_HOST, slots)
    try:
        for batch in batches:
            partial.feed(batch)
    except TraceError:
        return True
    return bool(partial.quiescent())


def test_a_forgotten_page_is_found_no_more_and_its_key_is_free() -> None:
    """After a reset the key may be committed anew; a late commit takes no key."""
    follows = Checker(GPU_HOST, [(3, 1)])
    follows.feed([Record(Kind.OPEN, [1, 2, 3], [0, 1, 2])])
    follows.feed([Record(Kind.COMMIT, [1], keys=["k"], fence=(3, 1))])
    follows.feed([Record(Kind.FORGET, [1])])

    follows.feed([Record(Kind.COMMIT, [2], keys=["k"], fence=(3, 1), is_late=True)])
    follows.feed([Record(Kind.COMMIT, [3], keys=["k"], fence=(3, 1))])

    assert follows.state_names() == {1: "forgotten@gpu", 2: "forgotten@gpu", 3: "gpu"}
    with pytest.raises(TraceError, match="committed"):
        follows.feed([Record(Kind.FORGET, [1])])


def test_a_pool_grows_at_its_end_and_nowhere_else() -> None:
    """Slots that were not there come one after the other; one that is there has retired before."""
    follows = Checker(GPU_HOST, [(1, 1)])
    follows.feed([Record(Kind.GROW, slots=[1, 2], target=0), Record(Kind.OPEN, [1], [2])])

    for slot in (1, 4):
        with pytest.raises(TraceError, match="slot retiring"):
            follows.feed([Record(Kind.GROW, slots=[slot], target=0)])
    follows.feed([Record(Kind.RETIRE, slots=[1], target=0), Record(Kind.GROW, slots=[1], target=0)])


def test_an_eviction_is_of_the_warmest_replica() -> None:
    """Who calls the release of a shadow an eviction is contradicted."""
    follows = Checker(GPU_HOST, [(1, 1)])
    follows.feed([Record(Kind.OPEN, [1], [0]), Record(Kind.COMMIT, [1], keys=["k"], fence=(3, 1))])
    follows.feed([Record(Kind.UNPIN, [1]), Record(Kind.COPY, [1], [0], source=0, target=1)])

    with pytest.raises(TraceError, match="the warmest replica"):
        follows.feed([Record(Kind.RELEASE, [1], target=1, is_eviction=True)])
    follows.feed([Record(Kind.RELEASE, [1], target=0, is_eviction=True)])
