"""Which pages are written down to a fallible tier, and what that tier gives up for them. Pure.

Three occasions ask: the cleaner, ahead of need (`wanted`, `ahead`); a plan that would drop pages of
the host which could be written first (`before`, the demand mode of replays); and a demand in whose
way only held pages stand (`unblock`). A page that is written down is clean: it can leave at once.

Room below is made as anywhere: by the policy of that tier, out of what can go now. But the copy
below of a page that stands clean right above is not reclaimed for a page that is to become clean:
that would clean one and soil another, for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice

from kvtier.pages import HOST, Page
from kvtier.planner import GroupPlan, Start
from kvtier.queues import PARKED
from kvtier.room import Keep, View, make_room
from kvtier_spec import Phase

MAX_FLYING_PAGES = 256
"""Pages of one tier and group that the cleaner has on the way at once: what keeps a disk busy."""


def wanted(view: View, tier: int, group: int, low: float, high: float) -> int:
    """Count the pages to write down ahead of need: too few slots could be had without a loss.

    `low` and `high` are shares of the tier's slots: below the one, write until the other.
    """
    pool = view.pools[tier][group]
    standing = view.evictable[tier][group]
    unclean = view.unclean[tier][group]
    clean = len(standing) + len(standing.parked) - len(unclean)
    easy = pool.free + len(view.reclaimable[tier][group]) + clean
    if not len(unclean) or easy >= low * pool.count:
        return 0
    flying = sum(
        len(flight.pages)
        for flight in view.flights.values()
        if (flight.source, flight.group) == (tier, group)
    )
    return max(0, min(int(high * pool.count) + 1 - easy, MAX_FLYING_PAGES - flying))


def ahead(view: View, tier: int, group: int, count: int) -> GroupPlan:
    """Write the coldest pages of a tier down ahead of need.

    Open pages are left: they would move instead of becoming clean.
    """
    pages = (page for page in view.unclean[tier][group] if page.phase is not Phase.OPEN)
    return write(view, tier, group, list(islice(pages, count)))


def before(
    view: View,
    tier: int,
    group: int,
    pages: list[Page],
    *,
    keeping: Collection[Page],
    staying: Collection[Page],
    takes: Callable[[int], bool],
) -> GroupPlan:
    """Write pages down that a plan would drop, leaving out the coldest if there is no room for all.

    What the tier below would drop for them, and could itself be written down, goes first.
    """
    if not takes(tier + 1):
        return GroupPlan()
    found = write(
        view,
        tier,
        group,
        pages,
        keeping=keeping.__contains__,
        staying=staying,
        coldest_first=False,
    )
    if found.unclean:
        deeper = before(
            view,
            tier + 1,
            group,
            found.unclean,
            keeping=keeping,
            staying=staying,
            takes=takes,
        )
        if deeper.starts:
            return deeper
    return found


def unblock(
    view: View, group: int, count: int, staying: Collection[Page], takes: Callable[[int], bool]
) -> list[GroupPlan]:
    """Write held pages down that stand in the way of `count` slots, tier by tier.

    `takes` says whether a tier can be written to.
    """
    found = []
    for tier in (tier for tier in range(HOST, len(view.pools) - 1) if takes(tier + 1)):
        pages = list(islice(_stuck(view, tier, group, staying), count))
        plan = write(view, tier, group, pages, staying=staying)
        if plan.starts:
            found.append(plan)
            count -= len(plan.starts[0].pages)
    return found or _push_on(view, group, count, staying, takes)


def _push_on(
    view: View, group: int, count: int, staying: Collection[Page], takes: Callable[[int], bool]
) -> list[GroupPlan]:
    """Let held pages that are clean sink, and write them on from there.

    Where the tier below is full of the copies of pages that stand right above, no other page can be
    written to it; going down twice, these make room.
    """
    for tier in (tier for tier in range(HOST, len(view.pools) - 2) if takes(tier + 2)):
        pages = (
            page
            for page in view.held[tier][group]
            if page.slots[tier + 1] is not None
            and page.flight is None
            and not page.is_valid_below(tier + 1)
            and page not in staying
        )
        plan = write(view, tier + 1, group, list(islice(pages, count)), staying=staying)
        if plan.starts:
            plan.release(tier, plan.starts[0].pages, is_eviction=True)
            return [plan]
    return []


def _stuck(view: View, tier: int, group: int, staying: Collection[Page]) -> Iterator[Page]:
    unclean = view.unclean[tier][group]
    return (page for page in unclean if page.places[tier] == PARKED and page not in staying)


def write(
    view: View,
    tier: int,
    group: int,
    pages: Sequence[Page],
    *,
    keeping: Keep | None = None,
    staying: Collection[Page] = (),
    coldest_first: bool = True,
) -> GroupPlan:
    """Plan flights of pages to the tier below, as many as it takes.

    Copies there of pages that are to keep (by default those that stand right above) stay.
    """
    found, below = GroupPlan(), tier + 1
    if not pages or below == len(view.pools):
        return found
    keep = keeping or (lambda page: page.primary == tier)
    room = make_room(view, below, group, len(pages), keeping=keep, staying=staying)
    able = min(len(pages), view.pools[below][group].free + room.slots)
    if able:
        chosen = pages[:able] if coldest_first else pages[len(pages) - able :]
        found.starts = [Start(tier, below, list(chosen))]
    found.clear(below, room)
    found.unclean = room.drop if below + 1 < len(view.pools) else []
    return found
