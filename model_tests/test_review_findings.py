"""The four findings of the upstream review: right here, each with a test that fails if wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kvtier import Cache, CopyFailed, planner
from kvtier.errors import KvtierError
from kvtier.pages import HOST
from kvtier.policy import PageFirst, ShadowFirst
from kvtier.store import Store
from kvtier_spec import GPU_HOST_DISK, Checker, Kind, Record, Snapshot
from model_tests.test_cache import late_cache


def run(of: Cache, *keys: str, extra: int = 0) -> None:
    """Run a prompt to its end."""
    sequence = of.sequence(keys)
    assert sequence.resume(new=len(keys) - sequence.matched + extra, stream="s")
    sequence.commit(keys[sequence.matched :])
    sequence.close()


def the_error_path_leaves_rebound_pages_alone() -> None:
    """A batch fails half submitted: the page re-bound to its shadow is still on the host."""
    of, engine = late_cache(3, 4)
    run(of, "x")
    run(of, extra=3)
    run(of, "x")
    run(of, "y", "z")
    with engine.failing(at=1, queued=1), pytest.raises(CopyFailed):
        of.sequence().resume(new=3, stream="s")

    assert of.sequence(["x"]).hits == {"gpu": 0, "host": 1}


def _releases_rebound(self: Store, group: int, plan: planner.GroupPlan) -> None:
    try:
        _OFFLOAD(self, group, plan)
    except CopyFailed:
        self.ledger.give([page for page in plan.batch if page not in plan.offload], HOST)
        raise


def a_page_promoted_from_disk_is_no_shadow() -> None:
    """Disk -> host makes a page of the host: evictable, its disk replica the shadow (I3)."""
    follows = Checker(GPU_HOST_DISK, [(1, 1, 1)])
    follows.feed(
        [
            Record(Kind.OPEN, [1], [0]),
            Record(Kind.COMMIT, [1], keys=["k"], fence=(3, 1)),
            Record(Kind.UNPIN, [1]),
            Record(Kind.COPY, [1], [0], source=0, target=1),
            Record(Kind.RELEASE, [1], target=0),
            Record(Kind.START, [1], [0], source=1, target=2),
            Record(Kind.LAND, [1]),
            Record(Kind.RELEASE, [1], target=1),
            Record(Kind.START, [1], [0], source=2, target=1),
            Record(Kind.LAND, [1]),
        ]
    )
    nothing: frozenset[int] = frozenset()
    right = Snapshot(
        pools=follows.world().pools,
        replicas={1: (None, 0, 0)},
        pins={},
        holds={},
        evictable=(nothing, frozenset({1}), nothing),
        reclaimable=(nothing, nothing, frozenset({1})),
        found={"k": 1},
    )
    attached = replace(
        right,
        evictable=(nothing, nothing, nothing),
        reclaimable=(nothing, frozenset({1}), frozenset({1})),
    )

    assert follows.check([right]) == []
    assert [v.invariant for v in follows.check([attached])] == ["I3", "I3"]


def shadows_go_before_real_pages() -> None:
    """The host is full of one real page and one shadow: a copy takes the shadow's slot."""
    of, _ = late_cache(2, 2)
    run(of, "x")
    run(of, "y")
    run(of, "z", extra=1)
    run(of, "x")
    run(of, extra=1)

    assert of.sequence(["y"]).hits == {"gpu": 0, "host": 1}


def shadows_are_room_but_not_free_slots() -> None:
    """After a recall the shadow's slot is owned, not free; what is available is as before."""
    of, _ = late_cache(2, 2)
    run(of, "x", "y")
    run(of, extra=2)
    run(of, "x", "y")

    host = of.stats().tiers["host"]
    assert (host.slots["free"], host.shadows) == (0, 2)  # type: ignore[index]
    assert of.available("host") == 2


_OFFLOAD = Store._offload  # noqa: SLF001

FINDINGS: list[tuple[Callable[[], None], tuple[Any, str, Any] | None]] = [
    (the_error_path_leaves_rebound_pages_alone, (Store, "_offload", _releases_rebound)),
    (a_page_promoted_from_disk_is_no_shadow, None),
    (shadows_go_before_real_pages, (ShadowFirst, "give_up", PageFirst.give_up)),
    (
        shadows_are_room_but_not_free_slots,
        (planner, "spare", lambda view, tier, group, *_: view.pools[tier][group].free),
    ),
]
"""The scenario, and the faulty behaviour that must make it fail (None: it compares both itself)."""


@pytest.mark.parametrize(("scenario", "fault"), FINDINGS)
def test_findings_of_the_upstream_review(
    scenario: Callable[[], None],
    fault: tuple[Any, str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The runtime does it rightly, and the scenario fails on the behaviour that was found."""
    scenario()

    if fault is not None:
        monkeypatch.setattr(*fault)
        with pytest.raises((AssertionError, KvtierError, StopIteration)):
            scenario()
