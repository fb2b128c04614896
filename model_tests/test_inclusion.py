"""T1 and the facts F1 to F4: what inclusion changes and what it does not, on arbitrary traces."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtier.bench.inclusion import FREE, Differs, compare
from kvtier.replay import Modes, Replay, Sizes
from kvtier.trace import Request, extract, load
from kvtier_spec import Batch, Kind

Turn = tuple[int, int, int, int]
"""Session, pages to cut off its context, pages to add, private pages."""
TURNS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 4), st.integers(0, 2)),
    min_size=1,
    max_size=60,
)
SIZES = st.builds(
    lambda window, gpu, host: Sizes(window=window, slots={"gpu": gpu, "host": host}),
    st.integers(1, 4),
    st.integers(8, 24),
    st.integers(0, 40),
)
LONGEST = 14


def requests_of(turns: list[Turn]) -> list[Request]:
    """Make requests of growing sessions that share two pages; equal ids mean equal prefixes."""
    fresh = iter(range(2, 1 << 20))
    contexts = {session: [0, 1] for session in range(5)}
    found = []
    for session, cut, add, private in turns:
        context = contexts[session]
        kept = max(2, len(context) - cut)
        context[kept:] = [next(fresh) for _ in range(add)]
        if len(context) > LONGEST:
            contexts[session] = context = [0, 1, next(fresh)]
        found.append(Request(tuple(context), private, str(session)))
    return found


@dataclass
class Watched:
    """A replay whose evictions from the gpu are written down, by request."""

    replay: Replay
    evicted: set[tuple[int, object]] = field(default_factory=set)
    dropped_for_want_of_room: int = 0
    _on_gpu: set[int] = field(default_factory=set)
    _committed: dict[int, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replay.cache.subscribe(self)

    def __call__(self, batch: Batch) -> None:
        """Follow what comes to the gpu and what leaves it."""
        for record in batch:
            for index, page in enumerate(record.pages):
                if record.kind is Kind.COMMIT:
                    self._committed[page] = record.keys[index]
                if record.kind is Kind.OPEN or (record.kind is Kind.COPY and record.target == 0):
                    self._on_gpu.add(page)
                leaves = record.kind is Kind.RELEASE and record.target == 0
                if leaves or record.kind is Kind.DROP:
                    self._leave(page, dropped=record.kind is Kind.DROP)

    def _leave(self, page: int, *, dropped: bool) -> None:
        if page in self._on_gpu and page in self._committed:
            self.evicted.add((self.replay.counts.requests, self._committed[page]))
            self.dropped_for_want_of_room += dropped
        self._on_gpu.discard(page)

    def pages_left_on_gpu(self) -> int:
        """Count committed pages on the gpu."""
        return len(self._on_gpu & set(self._committed))


def watched(turns: list[Turn], sizes: Sizes, mode: str) -> Watched:
    """Build a replay on the null engine, watched and audited."""
    return Watched(
        Replay(requests_of(turns), sizes, Modes(policy=mode), moves_bytes=False, audit=True)
    )


@given(TURNS, SIZES, st.sampled_from(["shadow_first", "shadow_first_hottest"]))
def test_t1_inclusion_can_be_free(turns: list[Turn], sizes: Sizes, mode: str) -> None:
    """Under shadow_first the primaries are, at every request, where exclusive tiers have them."""
    exclusive = Replay(requests_of(turns), sizes, Modes(policy="exclusive"), moves_bytes=False)
    inclusive = Replay(requests_of(turns), sizes, Modes(policy=mode), moves_bytes=False, audit=True)

    for request in exclusive.requests:
        exclusive.request(request)
        inclusive.request(request)

        assert exclusive.cache.primaries() == inclusive.cache.primaries()
        for count in ("gpu_hits", "host_hits", "computed"):
            assert getattr(exclusive.counts, count) == getattr(inclusive.counts, count)


@given(TURNS, SIZES)
def test_f2_shadow_first_is_exclusive_but_for_copies(turns: list[Turn], sizes: Sizes) -> None:
    """Every copy that exclusive tiers make is made or saved; all else is equal."""
    runs = {mode: watched(turns, sizes, mode) for mode in ("exclusive", "shadow_first")}
    base, other = (run.replay.run() for run in runs.values())

    assert other.d2h_pages + other.saved_pages == base.d2h_pages
    assert other.h2d_pages == base.h2d_pages
    assert runs["shadow_first"].evicted == runs["exclusive"].evicted


@given(TURNS, SIZES, st.integers(0, 40))
def test_f1_the_gpu_does_not_depend_on_the_host(turns: list[Turn], sizes: Sizes, host: int) -> None:
    """What is on the gpu, and what leaves it, is the same for every host policy and size."""
    other = Sizes(window=sizes.window, slots={"gpu": sizes.gpu, "host": host})
    runs = [watched(turns, sizes, "exclusive"), watched(turns, other, "page_first")]

    counts = [run.replay.run() for run in runs]

    assert runs[0].evicted == runs[1].evicted
    assert counts[0].gpu_hits == counts[1].gpu_hits


@given(TURNS, st.integers(8, 24), st.integers(0, 40))
def test_f3_exclusive_tiers_hit_what_one_lru_list_hits(
    turns: list[Turn], gpu: int, host: int
) -> None:
    """With one request running, exclusive tiers are one LRU list, cut by private and held pages."""
    replay = Replay(
        requests_of(turns),
        Sizes(window=1, slots={"gpu": gpu, "host": host}),
        Modes(policy="exclusive"),
        moves_bytes=False,
    )
    lru: OrderedDict[int, None] = OrderedDict()
    expected = 0

    for request in replay.requests:
        if len(request.keys) + request.private > gpu:
            replay.request(request)
            continue
        before = replay.counts.host_hits
        replay.request(request)
        recalled = replay.counts.host_hits - before
        expected += next(
            (i for i, key in enumerate(request.keys) if key not in lru), len(request.keys)
        )
        for key in reversed(request.keys):
            lru[key] = None
            lru.move_to_end(key)
        while len(lru) > gpu + host - request.private - recalled:
            lru.popitem(last=False)

    assert replay.counts.gpu_hits + replay.counts.host_hits == expected


@given(TURNS, SIZES, st.sampled_from(["exclusive", "page_first", "shadow_first"]))
def test_f4_every_page_that_came_up_goes_down(turns: list[Turn], sizes: Sizes, mode: str) -> None:
    """Pages recalled or computed = copied down + saved + dropped for want of room + still there."""
    run = watched(turns, sizes, mode)
    for request in run.replay.requests:
        run.replay.request(request)
    left = run.pages_left_on_gpu()
    dropped = run.dropped_for_want_of_room

    counts = run.replay.counts
    run.replay._sum()  # noqa: SLF001 - counts before the cache is closed

    came = counts.h2d_pages + counts.computed
    assert came == counts.d2h_pages + counts.saved_pages + dropped + left


REAL = Sizes(window=3, slots={"gpu": 300, "host": 400})
"""Sizes for a real trace."""


@pytest.mark.parametrize("mode", FREE)
def test_t1_on_a_real_trace(mode: str) -> None:
    """The same hits and places after each of 200 requests of coding agents."""
    done = compare(
        load(extract(), limit=200), Sizes(window=3, slots={"gpu": 300, "host": 400}), mode
    )

    assert done.requests == 200
    assert done.places > 10_000


def test_t1_needs_its_conditions() -> None:
    """The comparison can fail: `page_first` gives up real pages, and is told apart."""
    with pytest.raises(Differs, match="request"):
        compare(
            load(extract(), limit=200),
            Sizes(window=3, slots={"gpu": 300, "host": 400}),
            "page_first",
        )
