"""What the book-keeping costs a page moved: bursts on the null engine, one journal subscriber.

Each burst is timed alone and divided by the pages that it moved, reclaimed or dropped. The fastest
and the median of several rounds are given: the fastest says what the code costs, the median what
this machine made of it. The named baseline is a loop over as many slotted objects that moves each
from one ordered dictionary to another: the least that any LRU of pages does.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

from kvtier.cache import Cache
from kvtier.config import Config
from kvtier.pages import Page
from kvtier.sequence import Sequence
from kvtier.transfer import NullEngine
from kvtier_spec import GPU_HOST, GPU_HOST_DISK, Chain

BURST_PAGES = 1000
ROUNDS = 15


@dataclass(frozen=True, slots=True)
class Burst:
    """One kind of burst: microseconds a page, the fastest and the median round."""

    name: str
    pages: int
    us_min: float
    us_median: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """A burst ready to run: what to time, and how many pages it moves."""

    run: Callable[[], object]
    pages: int


def measure(rounds: int = ROUNDS) -> list[Burst]:
    """Time every burst; the baseline comes first."""
    kinds: dict[str, Callable[[], Prepared]] = {
        "baseline: move in ordered dictionaries": _baseline,
        "evict with a copy": lambda: _evict(shadowed=False),
        "evict to a shadow, no copy": lambda: _evict(shadowed=True),
        "recall": _recall,
        "recall and evict": _swap,
        "reclaim shadows for copies": _reclaim,
        "3 tiers: evict with a copy, host full of clean pages": _cascade,
        "3 tiers: write down ahead": _write_down,
        "3 tiers: fetch": _fetch,
        "3 tiers: recall and evict": lambda: _swap(GPU_HOST_DISK),
    }
    return [_time(name, prepare, rounds) for name, prepare in kinds.items()]


def _time(name: str, prepare: Callable[[], Prepared], rounds: int) -> Burst:
    took, pages = [], 0
    for _ in range(rounds):
        burst = prepare()
        gc.collect()
        gc.disable()
        begin = perf_counter()
        burst.run()
        took.append((perf_counter() - begin) * 1e6 / burst.pages)
        gc.enable()
        pages = burst.pages
    return Burst(name, pages, min(took), median(took))


def _baseline() -> Prepared:
    pages = [Page(number, 0, [number, None]) for number in range(BURST_PAGES)]
    hot, cold = OrderedDict.fromkeys(pages), OrderedDict[Page, None]()

    def run() -> None:
        for page in pages:
            del hot[page]
            page.slots[0], page.slots[1] = None, page.id
            cold[page] = None

    return Prepared(run, BURST_PAGES)


def _cache(policy: str, gpu: int, host: int, chain: Chain = GPU_HOST, share: float = 1.0) -> Cache:
    """Make a cache; `share` is how much of the host a cleaner keeps clean, if there is a disk."""
    slots = dict(zip((tier.name for tier in chain.tiers), (gpu, host, 8 * host), strict=False))
    config = Config(slots=slots, chain=chain, policy=policy, clean_low=share, clean_high=share)
    cache = Cache(config, engine=NullEngine([4096]))
    cache.subscribe(lambda _batch: None)
    return cache


def _settle(cache: Cache) -> None:
    """Let everything that is under way end, and what the cleaner begins upon that."""
    while True:
        cache.poll()
        if not cache.flights():
            return


def _fill(cache: Cache, name: str) -> Sequence:
    """Bring BURST_PAGES committed pages to the gpu, computed or recalled, and suspend them."""
    keys = [(name, number) for number in range(BURST_PAGES)]
    sequence = cache.sequence(keys)
    assert sequence.resume(new=BURST_PAGES - sequence.matched), "the burst does not fit"
    sequence.commit(keys[sequence.committed :])
    sequence.suspend()
    return sequence


def _evict(*, shadowed: bool) -> Prepared:
    """Open one page for each page evicted: the gpu is full of suspended pages."""
    cache = _cache("shadow_first", BURST_PAGES, 4 * BURST_PAGES)
    first = _fill(cache, "a")
    if shadowed:
        _fill(cache, "b").close()
        assert first.resume()
        first.suspend()
    other = cache.sequence()
    return Prepared(lambda: other.resume(new=BURST_PAGES), BURST_PAGES)


def _recall() -> Prepared:
    """Recall into free slots."""
    cache = _cache("shadow_first", 2 * BURST_PAGES, 4 * BURST_PAGES)
    first = _fill(cache, "a")
    blocker = cache.sequence()
    blocker.resume(new=2 * BURST_PAGES)
    blocker.close()
    return Prepared(first.resume, BURST_PAGES)


def _swap(chain: Chain = GPU_HOST) -> Prepared:
    """Recall a suspended sequence while as many pages go down: two moves a page."""
    cache = _cache("exclusive", BURST_PAGES, 4 * BURST_PAGES, chain, share=0)
    first = _fill(cache, "a")
    _fill(cache, "b")
    return Prepared(first.resume, 2 * BURST_PAGES)


def _cascade() -> Prepared:
    """Evict pages of the gpu into a host full of clean ones, which sink: two moves a page."""
    cache = _cache("exclusive", BURST_PAGES, BURST_PAGES, GPU_HOST_DISK)
    _fill(cache, "a")
    _fill(cache, "b")
    _settle(cache)
    cache.config = replace(cache.config, clean_low=0, clean_high=0)
    other = cache.sequence()
    return Prepared(lambda: other.resume(new=BURST_PAGES), 2 * BURST_PAGES)


def _write_down() -> Prepared:
    """Let the cleaner write the host down: flights begun and landed, and all polls meanwhile."""
    cache = _cache("exclusive", BURST_PAGES, BURST_PAGES, GPU_HOST_DISK)
    _fill(cache, "a")
    _fill(cache, "b")
    return Prepared(lambda: _settle(cache), BURST_PAGES)


def _fetch() -> Prepared:
    """Resume a sequence from the disk: flights begun and landed, pages pinned."""
    cache = _cache("exclusive", 2 * BURST_PAGES, BURST_PAGES, GPU_HOST_DISK)
    first = _fill(cache, "a")
    for name in ("b", "c", "d"):
        _fill(cache, name).close()
        _settle(cache)
    blocker = cache.sequence()
    blocker.resume(new=2 * BURST_PAGES)
    blocker.close()
    _settle(cache)

    def run() -> None:
        while not first.resume():
            cache.poll()

    return Prepared(run, BURST_PAGES)


def _reclaim() -> Prepared:
    """Evict with copies into a host that is full of shadows: a reclaim and a copy each."""
    cache = _cache("shadow_first", 2 * BURST_PAGES, BURST_PAGES)
    shadowed = _fill(cache, "a")
    blocker = cache.sequence()
    blocker.resume(new=2 * BURST_PAGES)
    blocker.close()
    assert shadowed.resume()
    _fill(cache, "b")
    other = cache.sequence()
    return Prepared(lambda: other.resume(new=BURST_PAGES), 2 * BURST_PAGES)
