"""What each guard is for: take it away and see what breaks.

`missing(rule, guard)` explores small worlds without one guard and gives the shortest way to a
violation. Guards that no invariant can miss stand in `SILENT` with the reason; a test holds that
the two together are all guards of the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvtier_spec.chain import GPU_HOST, GPU_HOST_DISK, Chain
from kvtier_spec.explore import Exploration, explore
from kvtier_spec.lifecycle import RULES
from kvtier_spec.world import Spec

WORLDS: tuple[tuple[Chain, int, tuple[int, ...]], ...] = (
    (GPU_HOST, 2, (2, 1)),
    (GPU_HOST_DISK, 1, (1, 1, 1)),
    (GPU_HOST_DISK, 2, (2, 1, 1)),
)
"""Chain, pages, slots of each tier: small first, so that a violation is found in a second."""

_PINNED = "a pinned page is on the gpu (I4), and 'pinned' is asked too"
_NO_ROW = "asked only to keep rows that can never fire out of the table: "

SILENT: dict[tuple[str, str], str] = {
    ("commit", "valid on gpu"): _PINNED,
    ("commit twin", "valid on gpu"): _PINNED,
    ("commit twin", "pinned"): "an open page has a user, and 'unheld' leaves only a pin",
    ("commit late", "valid on gpu"): _PINNED,
    ("commit late", "open"): "it would forget a page that is committed, which `forget` may do",
    ("join", "committed"): "only committed pages have a key and no gpu replica",
    ("joined", "twin"): "the join's 'same key' asks for a twin",
    ("pin", "open, committed or forgotten"): _NO_ROW + "a twin has its one pin",
    ("unpin", "open, committed or forgotten"): _NO_ROW + "a twin's one pin leaves by drop",
    ("unpin", "valid on gpu"): _PINNED,
    ("hold", "open: on the gpu"): _NO_ROW + "elsewhere an open page is held already",
    ("unhold", "open, committed or forgotten"): _NO_ROW + "nothing else can be held",
    ("unhold", "open: on the gpu"): _NO_ROW + "elsewhere the hold is its only user",
    ("start", "open, committed or forgotten"): _NO_ROW
    + "a twin is on the gpu, where no flight starts",
    ("release", "committed or forgotten"): "an open page or a twin has no other valid replica",
    ("drop", "has a valid replica"): "a drop of an absent page changes nothing; it must not be "
    "journalled, and the trace checker refuses it",
    (
        "doom",
        "open, committed or forgotten",
    ): "to doom a doomed page changes nothing; it must not be "
    "journalled, and the trace checker refuses it",
}
"""(rule, guard) -> why no invariant sees its absence."""


def guards() -> Iterator[tuple[str, str]]:
    """List every guard of the table as (rule, guard)."""
    for rule in RULES:
        for guard in rule.guards:
            yield rule.label, guard.name


def missing(rule: str, guard: str) -> Exploration:
    """Explore without one guard, worlds growing, until something breaks or all are explored."""
    found = Exploration()
    for chain, pages, slots in WORLDS:
        found = explore(Spec(chain).without(rule, guard), pages=pages, slots=slots)
        if found.violations:
            break
    return found
