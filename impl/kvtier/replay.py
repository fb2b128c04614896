"""Replay a request trace by really running the cache, and count.

Rules. Requests come in file order. At most `window` run: before one is admitted, a running one of
the same session is closed, then the oldest while `window` run. Admission is one demand: recall of
the longest prefix that any tier has, plus new pages for the rest of the prompt and for the output;
if it is refused, the oldest running request is closed and it is asked again; if it is busy, the
request waits. Pages of a prompt behind the first miss are computed anew, even if some tier has
them. A request larger than the gpu is rejected and not counted. All tiers behind the host are
counted as `disk`. A request runs for long enough that the disk copies under way when it begins have
ended when the next one comes: the disk keeps up on average, and counts do not depend on its speed.

Real bytes move unless the engine is `null`: every page carries content derived from its key, and
every page of every prompt is compared when its request has been admitted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvtier.cache import Cache
from kvtier.config import Config, Group
from kvtier.errors import KvtierError, PageLost
from kvtier.memories import Factory
from kvtier.outcomes import Busy, Granted
from kvtier.sequence import Sequence as Running
from kvtier.trace import Request
from kvtier.transfer import NullEngine
from kvtier_spec import GPU_HOST, Chain, SlotState

SAMPLES = 400
"""Points of a run's timeline."""

PRIVATE_BYTE = 0xFF
"""What is written into partial and output pages, which nobody may ever find."""

_MASK = (1 << 64) - 1
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Mismatch(KvtierError):
    """A page held other bytes than its key says: the one thing that must never happen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is replayed on: running requests, slots of each tier by name, bytes of a page."""

    window: int
    slots: Mapping[str, int]
    page_bytes: int = 4096

    @property
    def gpu(self) -> int:
        """Count the slots of the first tier."""
        return next(iter(self.slots.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """How a replay gives pages up: the policies, and when pages are written to a fallible tier."""

    policy: str
    cold_policy: str = "none"
    demote: str = "on_demand"


@dataclass(slots=True)
class Counts:
    """What a replay counts, in pages (and bytes where the name says so)."""

    mode: str
    requests: int = 0
    rejected: int = 0
    forced: int = 0
    pages: int = 0
    gpu_hits: int = 0
    host_hits: int = 0
    disk_hits: int = 0
    computed: int = 0
    d2h_pages: int = 0
    h2d_pages: int = 0
    saved_pages: int = 0
    disk_write_pages: int = 0
    disk_read_pages: int = 0
    disk_saved_pages: int = 0
    d2h_bytes: int = 0
    h2d_bytes: int = 0
    saved_bytes: int = 0
    verified_pages: int = 0
    lost_pages: int = 0
    waited_write_pages: list[int] = field(default_factory=list, repr=False)
    """By request that waited: pages of copies down that it waited for."""
    waited_read_pages: list[int] = field(default_factory=list, repr=False)
    """By request that waited: pages of copies up that it waited for."""

    @property
    def hit_rate(self) -> float:
        """Give the share of prompt pages that were found on any tier."""
        return (self.gpu_hits + self.host_hits + self.disk_hits) / max(1, self.pages)

    def as_dict(self) -> dict[str, int | float | str]:
        """Give all counts by name; of what requests waited for the mean and the 99th percentile."""
        found = asdict(self)
        for name in ("waited_write_pages", "waited_read_pages"):
            waits = found.pop(name)
            found[f"{name}_mean"] = sum(waits) / max(1, self.requests)
            found[f"{name}_p99"] = percentile(waits, self.requests, 0.99)
        return found


def percentile(waits: Sequence[int], requests: int, share: float) -> int:
    """Give a percentile over all requests, those among them that waited for nothing.

    >>> percentile([7, 9], 100, 0.99)
    9
    """
    ordered = sorted(waits)
    index = int(share * requests) - (requests - len(ordered))
    return ordered[min(index, len(ordered) - 1)] if ordered and index >= 0 else 0


@dataclass(slots=True)
class Sample:
    """One point of a run: requests so far, bytes copied down, slots and shadows by tier."""

    request: int
    d2h_bytes: int
    used: dict[str, int]
    shadows: dict[str, int]


@dataclass(slots=True)
class Replay:
    """One replay of a trace in one mode; `run` does it.

    `chain` has the tiers that `sizes.slots` names; `tiers` gives the classes of those that have no
    default. On the null engine (`moves_bytes=False`) flights end at the next poll.
    """

    requests: Sequence[Request]
    sizes: Sizes
    modes: Modes
    chain: Chain = GPU_HOST
    tiers: Mapping[str, Factory] | None = None
    moves_bytes: bool = True
    audit: bool = False
    counts: Counts = field(init=False)
    timeline: list[Sample] = field(default_factory=list)
    cache: Cache = field(init=False)
    _running: list[tuple[str | None, Running]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = Counts(self.name)
        config = Config(
            chain=self.chain,
            slots=self.sizes.slots,
            policy=self.modes.policy,
            cold_policy=self.modes.cold_policy,
            demote=self.modes.demote,
            audit=self.audit,
            groups=(Group(page_bytes=self.sizes.page_bytes),),
        )
        engine = None if self.moves_bytes else NullEngine([self.sizes.page_bytes])
        self.cache = Cache(config, engine=engine, tiers=self.tiers)

    @property
    def name(self) -> str:
        """Name the run: its policies, as far as the chain has a use for them."""
        if len(self.chain) == len(GPU_HOST):
            return self.modes.policy
        return f"{self.modes.policy} / {self.modes.cold_policy} / {self.modes.demote}"

    def run(self, tick: Callable[[int], object] = lambda _: None) -> Counts:
        """Replay all requests; `tick` is told how many are done."""
        every = max(1, len(self.requests) // SAMPLES)
        for number, request in enumerate(self.requests, 1):
            self.request(request)
            if number % every == 0 or number == len(self.requests):
                self._sample(number)
                tick(number)
        self._sum()
        self.cache.close()
        return self.counts

    def request(self, request: Request) -> None:
        """Admit one request, after closing those that must make way."""
        self._make_way(request.session)
        if len(request.keys) + request.private > self.sizes.gpu:
            self.counts.rejected += 1
            return
        sequence = self.cache.sequence(request.keys)
        if not self._admit(request, sequence):
            sequence.close()
            self.counts.rejected += 1
            return
        self._count(request, sequence)
        self._compute(request, sequence)
        self.cache.wait(self.cache.flights())
        self._running.append((request.session, sequence))

    def _admit(self, request: Request, sequence: Running) -> bool:
        """Ask until granted: wait where it is busy, close the oldest where slots are short."""
        waited = Counter[bool]()
        while True:
            new = len(request.keys) - sequence.committed + request.private
            try:
                answer = sequence.resume(new=new)
            except PageLost:
                self.counts.lost_pages += new
                continue
            if isinstance(answer, Granted):
                break
            if isinstance(answer, Busy):
                self._wait(answer.tickets, waited)
            elif self._running:
                self._close(0)
                self.counts.forced += 1
            else:  # it holds pages behind a gap that leave it no room: not a prefix
                return False
        if waited:
            self.counts.waited_write_pages.append(waited[False])
            self.counts.waited_read_pages.append(waited[True])
        return True

    def _wait(self, tickets: Sequence[int], waited: Counter[bool]) -> None:
        """Wait, and count the pages waited for: those coming up to the gpu, and others."""
        flights = self.cache.flights()
        for source, target, pages in (flights[one] for one in tickets if one in flights):
            waited[self.chain.index(target) < self.chain.index(source)] += pages
        self.cache.wait(tickets)

    def _make_way(self, session: str | None) -> None:
        same = [i for i, (other, _) in enumerate(self._running) if other == session]
        if session is not None and same:
            self._close(same[0])
        while len(self._running) >= self.sizes.window:
            self._close(0)

    def _close(self, index: int) -> None:
        self._running.pop(index)[1].close()

    def _count(self, request: Request, sequence: Running) -> None:
        counts = self.counts
        counts.requests += 1
        counts.pages += len(request.keys)
        counts.gpu_hits += sequence.hits["gpu"]
        counts.host_hits += sequence.hits["host"]
        counts.disk_hits += sequence.matched - sequence.hits["gpu"] - sequence.hits["host"]
        counts.computed += len(request.keys) - sequence.matched

    def _compute(self, request: Request, sequence: Running) -> None:
        """Stand for the forward pass: write what was missing, commit it, read the whole prompt."""
        first = sequence.committed
        fresh = request.keys[first:]
        if not self.moves_bytes:
            sequence.commit(fresh)
            return
        memory = self.cache.memory("gpu")
        slots = sequence.slots()
        memory.write(slots[first : len(request.keys)], content(fresh, self.sizes.page_bytes))
        private = np.full((request.private, self.sizes.page_bytes), PRIVATE_BYTE, np.uint8)
        memory.write(slots[len(request.keys) :], private)
        sequence.commit(fresh)
        self._verify(request.keys, memory.read(sequence.slots()[: len(request.keys)]))

    def _verify(self, keys: Sequence[int], found: NDArray[np.uint8]) -> None:
        expected = content(keys, self.sizes.page_bytes)
        if not np.array_equal(found, expected):
            wrong = np.flatnonzero((found != expected).any(axis=1))
            raise Mismatch(
                f"{self.modes.policy}: page {keys[wrong[0]]} holds other bytes than its key's"
            )
        self.counts.verified_pages += len(keys)

    def _sample(self, number: int) -> None:
        stats = self.cache.stats()
        copied = stats.copied.get(("gpu", "host"), 0) * self.sizes.page_bytes
        used = {name: tier.slots[SlotState.OWNED] for name, tier in stats.tiers.items()}
        shadows = {name: tier.shadows for name, tier in stats.tiers.items()}
        self.timeline.append(Sample(number, copied, used, shadows))

    def _sum(self) -> None:
        stats, counts, size = self.cache.stats(), self.counts, self.sizes.page_bytes
        warm = ("gpu", "host")
        counts.d2h_pages = stats.copied.get(("gpu", "host"), 0)
        counts.h2d_pages = sum(n for (_, to), n in stats.copied.items() if to == "gpu")
        counts.disk_write_pages = sum(
            n for (of, to), n in stats.copied.items() if of == "host" and to not in warm
        )
        counts.disk_read_pages = sum(
            n for (of, to), n in stats.copied.items() if of not in warm and to in warm
        )
        counts.saved_pages, counts.disk_saved_pages = stats.saved["gpu"], stats.saved.get("host", 0)
        counts.d2h_bytes, counts.h2d_bytes = counts.d2h_pages * size, counts.h2d_pages * size
        counts.saved_bytes = counts.saved_pages * size


def content(keys: Sequence[int], page_bytes: int) -> NDArray[np.uint8]:
    """Derive the bytes of pages from their keys: shape (keys, page_bytes), different for each.

    >>> a, b = content([1, 2], 12)
    >>> len(a), bool((a == b).all())
    (12, False)
    """
    words = np.arange(-(-page_bytes // 8), dtype=np.uint64)
    names = np.array([key & _MASK for key in keys], np.uint64) * _ODD
    rows = names[:, None] ^ words[None, :]
    return rows.view(np.uint8)[:, :page_bytes]
