"""How far a prefetch comes: as many pages as there is room for, in the order of the prefix.

Room is made as for a demand, but for one thing: of pages that other sequences hold, only so many
are moved down as the caller allows. It is a hint; what does not fit stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from kvtier.pages import GPU, HOST, Page
from kvtier.planner import GroupDemand, GroupPlan, Start, send_down
from kvtier.planner import may_go as all_that_may_go
from kvtier.queues import EVICTABLE
from kvtier.room import View, make_room, spare
from kvtier_spec import Phase


def lift(view: View, group: int, wanted: GroupDemand, tier: int, moving: int) -> GroupPlan:
    """Plan to bring pages up to a tier; those that are there, or fly, are left."""
    own = {*wanted.pages, *wanted.spares}
    pages = [page for page in dict.fromkeys(wanted.pages) if _may_rise(page, tier)]
    if tier == GPU:
        return _to_gpu(view, group, pages, own, moving=moving)
    return _to_tier(view, group, pages, tier, own, moving=moving)


def _may_rise(page: Page, tier: int) -> bool:
    """Say whether a page is colder and free to come: a flight down is no obstacle to a recall."""
    is_recall = tier == GPU and page.primary == HOST and page.phase is not Phase.OPEN
    return page.primary > tier and (page.flight is None or is_recall)


def _to_gpu(
    view: View, group: int, pages: list[Page], own: Collection[Page], *, moving: int
) -> GroupPlan:
    free = view.pools[GPU][group].free
    staying = {*own, *_held_and_leaving(view, HOST, group)}
    may_go = all_that_may_go(view, group, staying, spare(view, HOST, group, staying))
    victims = list(islice(_sparing(may_go, moving), max(0, len(pages) - free)))
    chosen = pages[: free + len(victims)]
    found = GroupPlan(recall=[page for page in chosen if page.primary == HOST])
    found.starts = _starts(chosen, GPU)
    send_down(view, group, victims, staying, found)
    return found


def _to_tier(
    view: View, group: int, pages: list[Page], tier: int, own: Collection[Page], *, moving: int
) -> GroupPlan:
    held = [page for page in _held_and_leaving(view, tier, group) if page not in own]
    staying = {*own, *held[moving:]}
    room = make_room(view, tier, group, len(pages), keeping=own.__contains__, staying=staying)
    found = GroupPlan()
    found.clear(tier, room)
    found.starts = _starts(pages[: view.pools[tier][group].free + room.slots], tier)
    return found


def _held_and_leaving(view: View, tier: int, group: int) -> list[Page]:
    return [page for page in view.held[tier][group] if page.places[tier] == EVICTABLE]


def _sparing(pages: Iterator[Page], moving: int) -> Iterator[Page]:
    """Leave pages that are held, but for so many."""
    for page in pages:
        if page.holds:
            if not moving:
                continue
            moving -= 1
        yield page


def _starts(pages: list[Page], target: int) -> list[Start]:
    by_source: dict[int, list[Page]] = {}
    for page in pages:
        if page.primary > max(target, HOST):
            by_source.setdefault(page.primary, []).append(page)
    return [Start(source, target, part) for source, part in by_source.items()]
