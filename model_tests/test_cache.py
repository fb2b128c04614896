"""The public face: answers, errors, handles, and what they leave alone."""

from __future__ import annotations

import numpy as np
import pytest

from kvtier import (
    BadRequest,
    Busy,
    Cache,
    CacheClosed,
    CacheFailed,
    Config,
    ConfigError,
    CopyFailed,
    CpuEngine,
    Demand,
    Granted,
    Group,
    NullEngine,
    OutOfSlots,
    Sequence,
    SpecViolation,
    StaleHandle,
    WrongState,
)
from kvtier.journal import ObserverWarning
from kvtier.queues import Queues
from kvtier.submissions import Submissions
from kvtier.tiers import HostPool
from kvtier_spec import Batch, Chain, Record, Tier


def cache(gpu: int = 4, host: int = 8, policy: str = "shadow_first") -> Cache:
    """A small audited cache with real bytes."""
    config = Config(
        slots={"gpu": gpu, "host": host}, policy=policy, audit=True, groups=(Group(page_bytes=8),)
    )
    return Cache(config)


def late_cache(gpu: int, host: int) -> tuple[Cache, CpuEngine]:
    """A cache whose copies wait to be pumped."""
    memories = [[HostPool(gpu, 8)], [HostPool(host, 8)]]
    engine = CpuEngine(memories, is_manual=True)
    config = Config(slots={"gpu": gpu, "host": host}, audit=True, groups=(Group(page_bytes=8),))
    return Cache(config, engine=engine, memories=memories), engine


def run(of: Cache, *keys: str) -> Sequence:
    """Look a prompt up, compute what is missing, commit it; the sequence stays active."""
    sequence = of.sequence(keys)
    assert sequence.resume(new=len(keys) - sequence.matched)
    sequence.commit(keys[sequence.matched :])
    return sequence


def test_a_prefix_is_found_on_all_tiers_and_held() -> None:
    """Hits are counted by tier, and what was found cannot be dropped while the sequence lives."""
    of = cache(gpu=3, host=1)
    run(of, "a", "b").close()
    run(of, "x", "y").close()

    found = of.sequence(["a", "b"])

    assert found.hits == {"gpu": 1, "host": 1}
    pressure = of.sequence()
    assert isinstance(pressure.resume(new=3), OutOfSlots)
    assert pressure.resume(new=2)


def test_a_refusal_says_who_holds_what() -> None:
    """Out of slots names tier, group, numbers, and the sequences with what they hold."""
    of = cache(gpu=4, host=0)
    user = run(of, "a", "b", "c")

    refused = of.sequence().resume(new=2)

    assert isinstance(refused, OutOfSlots)
    assert (refused.tier, refused.group, refused.asked, refused.available) == ("gpu", "full", 2, 1)
    assert [(h.sequence, h.pinned, h.held) for h in refused.holders] == [(user.id, 3, 0)]
    assert "sequence 0 (3 pinned, 0 held)" in str(refused)


def test_fewer_keys_than_open_pages_may_be_committed() -> None:
    """Commit names the next open pages in order; the rest stays open."""
    of = cache()
    sequence = of.sequence()
    assert sequence.resume(new=3)

    sequence.commit(["a"])
    sequence.commit(["b"])

    assert (sequence.committed, sequence.open) == (2, 1)
    assert of.sequence(["a", "b", "c"]).matched == 2


def test_trim_gives_the_last_open_pages_back() -> None:
    """Trimmed pages are free at once; committed ones cannot be trimmed."""
    of = cache()
    sequence = of.sequence()
    assert sequence.resume(new=4)
    sequence.commit(["a"])

    sequence.trim(2)

    assert of.available("gpu") == 2
    with pytest.raises(BadRequest, match="only open pages"):
        sequence.trim(2)


def test_twins_end_with_one_page_under_the_key() -> None:
    """Two commits of one key: both read their own bytes, and one page stays."""
    of = cache()
    first, second = of.sequence(["a"]), of.sequence(["a"])
    assert first.resume(new=1)
    assert second.resume(new=1)
    first.commit(["a"])
    second.commit(["a"])

    assert first.slots().tolist() != second.slots().tolist()
    second.suspend()
    assert second.resume()
    assert first.slots().tolist() == second.slots().tolist()


def test_a_step_is_all_or_nothing() -> None:
    """Many demands, one plan: if one does not fit, none is met."""
    of = cache(gpu=4, host=0)
    one, two = of.sequence(), of.sequence()

    assert isinstance(of.step([Demand(one, 2), Demand(two, 3)]), OutOfSlots)
    assert isinstance(of.step([Demand(one, 2), Demand(two, 2)]), Granted)
    assert len({*one.slots().tolist(), *two.slots().tolist()}) == 4


def test_a_page_shared_by_two_sequences_of_a_step_is_recalled_once() -> None:
    """One recall serves both, with a pin each."""
    of = cache(gpu=4, host=8)
    run(of, "a", "b").close()
    blocker = of.sequence()
    assert blocker.resume(new=4)
    blocker.close()
    one, two = of.sequence(["a", "b"]), of.sequence(["a", "b"])

    granted = of.step([Demand(one), Demand(two)])

    assert isinstance(granted, Granted)
    assert granted.recalled == 2
    one.close()
    assert two.slots().tolist() == [0, 1] or len(two.slots()) == 2


def test_a_stale_table_is_an_error_not_a_wrong_page() -> None:
    """A table taken before a suspension is refused once a slot has another owner."""
    of = cache(gpu=2)
    sequence = run(of, "a", "b")
    table = sequence.table()
    assert table.check().tolist() == sequence.slots().tolist()
    sequence.suspend()
    other = of.sequence()
    assert other.resume(new=1)

    with pytest.raises(StaleHandle, match="given slots back"):
        table.check()


@pytest.mark.parametrize(
    "act",
    [
        lambda s: s.slots(),
        lambda s: s.append(1),
        lambda s: s.commit(["a"]),
        lambda s: s.trim(0),
        lambda s: s.suspend(),
    ],
)
def test_what_needs_pins_is_refused_while_suspended(act) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """A suspended sequence has no slots; the error says to resume it."""
    with pytest.raises(WrongState, match="resume"):
        act(cache().sequence())


def test_a_key_that_was_looked_up_otherwise_is_refused() -> None:
    """Committing another key than the prompt's at a position is a mistake of the caller."""
    sequence = cache().sequence(["a", "b"])
    assert sequence.resume(new=2)

    with pytest.raises(BadRequest, match="another key"):
        sequence.commit(["b"])


def test_a_closed_sequence_and_a_closed_cache_say_so() -> None:
    """Closing is idempotent; whatever comes after it is a clear error."""
    of = cache()
    sequence = run(of, "a")
    sequence.close()
    sequence.close()
    with pytest.raises(WrongState):
        sequence.resume()
    of.close()
    of.close()
    with pytest.raises(CacheClosed):
        of.sequence()


def test_closing_a_cache_closes_its_sequences_and_returns_its_memory() -> None:
    """After close nothing is left, and the memory says that it is gone."""
    of = cache()
    sequence = run(of, "a")
    memory = of.memory("gpu")

    of.close()

    assert sequence.state == "closed"
    with pytest.raises(CacheClosed):
        _ = memory.array


def test_an_observer_cannot_break_the_cache() -> None:
    """An exception of a subscriber is a warning and a count; the others are told."""
    of = cache()
    told: list[Batch] = []

    def broken(_: Batch) -> None:
        raise RuntimeError("observer")

    leave = of.subscribe(broken)
    of.subscribe(told.append)
    with pytest.warns(ObserverWarning, match="observer"):
        run(of, "a")
    leave()
    run(of, "b")

    assert len(told) >= 4
    assert of.stats().observer_failures >= 1


def test_an_interrupt_inside_a_commit_stops_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C in the middle of a change the cache refuses to go on, with its last events."""
    of = cache()
    run(of, "a").close()
    before = Queues.reconcile

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Queues, "reconcile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        of.sequence(["a"])
    monkeypatch.setattr(Queues, "reconcile", before)

    with pytest.raises(CacheFailed, match="commit") as found:
        of.sequence(["a"])
    assert found.value.events
    of.close()


def test_the_auditor_stops_a_cache_that_breaks_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal that is no run of the spec is an error of ours, and says so."""
    of = cache()
    sequence = run(of, "a")
    monkeypatch.setattr(Submissions, "note_writes", lambda *_: None)
    original = of._journal.emit  # noqa: SLF001

    def without_fence(records: list[Record]) -> None:
        for record in records:
            record.fence = None
        original(records)

    monkeypatch.setattr(of._journal, "emit", without_fence)  # noqa: SLF001
    assert sequence.append(1)
    with pytest.raises(SpecViolation, match="fence of the last write"):
        sequence.commit(["b"])
    with pytest.raises(CacheFailed):
        of.poll()
    of.close()


def test_a_failed_recall_leaves_the_sequence_suspended_and_may_be_repeated() -> None:
    """Nothing is lost by a failed copy; asking again works."""
    of, engine = late_cache(2, 4)
    sequence = run(of, "a", "b")
    sequence.suspend()
    other = of.sequence()
    assert other.resume(new=2)
    other.close()

    with engine.failing(at=1, queued=1), pytest.raises(CopyFailed, match="ask again"):
        sequence.resume(stream="s")

    assert sequence.state == "suspended"
    assert of.stats().tiers["gpu"].slots["quarantined"] == 2  # type: ignore[index]
    busy = sequence.resume(stream="s")
    assert isinstance(busy, Busy)
    of.wait(busy.tickets)
    of.wait(busy.tickets)
    assert sequence.resume(stream="s")


def test_bytes_survive_eviction_and_recall() -> None:
    """What was written is read back after it was on the host."""
    of = cache(gpu=2, host=4)
    sequence = of.sequence(["a", "b"])
    assert sequence.resume(new=2)
    of.memory("gpu").array[sequence.slots()] = np.array([[1], [2]], np.uint8)
    sequence.commit(["a", "b"])
    sequence.suspend()
    other = of.sequence()
    assert other.resume(new=2)
    of.memory("gpu").array[other.slots()] = 9
    other.close()

    assert sequence.resume()

    assert of.memory("gpu").array[sequence.slots()][:, 0].tolist() == [1, 2]


def test_available_counts_shadows_as_room() -> None:
    """Shadows never make less available, on either tier (I7)."""
    of = cache(gpu=2, host=2)
    run(of, "a", "b").close()
    other = of.sequence()
    assert other.resume(new=2)
    other.close()
    run(of, "a", "b").close()

    stats = of.stats()
    assert stats.tiers["host"].shadows == 2
    assert (of.available("gpu"), of.available("host")) == (2, 2)


@pytest.mark.parametrize("policy", ["exclusive", "page_first", "shadow_first"])
def test_stats_are_sums_over_the_journal(policy: str) -> None:
    """Copies, saved copies and reclaimed shadows are counted from what happened."""
    of = cache(gpu=2, host=2, policy=policy)
    for name in "abacab":
        run(of, name, name + "1").close()

    stats = of.stats()

    down, up = stats.copied[("gpu", "host")], stats.copied.get(("host", "gpu"), 0)
    assert down * 8 == of.engine.copied()[0, 1]
    assert up * 8 == of.engine.copied()[1, 0]
    assert (stats.saved["gpu"] == 0) or policy != "exclusive"


def test_a_null_cache_has_no_memory_and_says_so() -> None:
    """Asking a cache that moves nothing for its memory is a clear error."""
    of = Cache(Config(slots={"gpu": 1, "host": 1}), engine=NullEngine())
    with pytest.raises(BadRequest, match="no memories"):
        of.memory("gpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"slots": {"gpu": 0, "host": 1}}, "give 1 to"),
        ({"slots": {"gpu": 1, "disk": 1}}, "give each a number"),
        ({"slots": {"gpu": 1, "host": 1}, "policy": "magic"}, "no policy 'magic'"),
        ({"slots": {"gpu": 1, "host": 1}, "groups": ()}, "at least one"),
        ({"slots": {"gpu": 1, "host": 1}, "groups": (Group(), Group())}, "another name"),
        ({"slots": {"gpu": 1, "host": {"a": 1}}, "groups": (Group("b"),)}, "give each a number"),
        ({"slots": {"gpu": 1, "host": 1}, "cold_policy": "magic"}, "no cold_policy 'magic'"),
        ({"slots": {"gpu": 1, "host": 1}, "demote": "never"}, "no demote 'never'"),
        ({"slots": {"gpu": 1, "host": 1}, "clean_low": 0.9}, "the low one first"),
        (
            {
                "slots": {"gpu": 1, "host": 1, "cxl": 1},
                "chain": Chain(Tier("gpu", writable=True), Tier("host"), Tier("cxl")),
            },
            "'cxl' cannot fail",
        ),
    ],
)
def test_a_bad_configuration_is_refused_where_it_is_written(
    arguments: dict[str, object], message: str
) -> None:
    """One error, of our family, that says what to do."""
    with pytest.raises(ConfigError, match=message):
        Config(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("new", [-1, 1 << 30])
def test_a_senseless_demand_is_refused(new: int) -> None:
    """Numbers outside any use are mistakes, not refusals."""
    with pytest.raises(BadRequest):
        cache().sequence().resume(new=new)
