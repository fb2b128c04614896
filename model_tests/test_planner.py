"""The planner against brute force: refused exactly when no plan exists, in small worlds."""

from __future__ import annotations

import random
from itertools import combinations, product

import pytest

from kvtier import planner
from kvtier.pages import Page
from kvtier.planner import GPU, HOST, GroupDemand, Plan, Short
from kvtier.policy import POLICIES
from model_tests.driver import Driver, populate
from model_tests.universe import PROMPTS, Setup

STEPS = 60


def brute_force(driver: Driver, new: int) -> bool:
    """Try every way to make room for `new` pages: who leaves the gpu, and how each of them does."""
    store = driver.cache._store  # noqa: SLF001
    short = new - store.pools[GPU][0].free
    pages = list(store.pages[0].values())
    movable = [p for p in pages if p.slots[GPU] is not None and not p.pins]
    if short <= 0:
        return True
    return any(
        _works(store.pools[HOST][0].free, pages, victims, ways)
        for victims in combinations(movable, short)
        for ways in product(("drop", "rebind", "copy"), repeat=short)
    )


def _works(free: int, pages: list[Page], victims: tuple[Page, ...], ways: tuple[str, ...]) -> bool:
    """Say whether these victims can leave in these ways, the host giving up all that it may."""
    stays: set[Page] = set()
    copies = 0
    for page, way in zip(victims, ways, strict=True):
        if way == "drop" and page.holds:
            return False
        if way == "rebind" and page.slots[HOST] is None:
            return False
        stays |= {page} if way == "rebind" else set()
        copies += way == "copy"
    given_up = [
        page
        for page in pages
        if page.slots[HOST] is not None
        and page not in stays
        and (page.slots[GPU] is not None or not page.holds)
    ]
    return copies <= free + len(given_up)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("seed", range(6))
def test_a_demand_is_refused_exactly_when_no_plan_exists(policy: str, seed: int) -> None:
    """I7 and I11: granted whenever brute force finds a way, and `available` is the most."""
    draw = random.Random(seed)
    driver = Driver(Setup(policy, draw.randint(2, 5), draw.randint(0, 4)))
    for _ in range(draw.randint(0, 5)):
        populate(driver, draw.randrange(len(PROMPTS)), draw.choice(["close", "suspend"]))
    for _ in range(STEPS):
        calls = driver.calls()
        driver.do(draw.choice(calls[draw.choice(sorted(calls))]))
        store, most = driver.cache._store, 0  # noqa: SLF001
        for new in range(driver.setup.gpu + 1):
            answer = planner.plan(store, [GroupDemand(new=new)])
            possible = brute_force(driver, new)
            assert isinstance(answer, Plan) == possible, f"{new} new pages: {answer}"
            most = new if possible else most
            if isinstance(answer, Short):
                assert answer.available == answer.later == most
        assert driver.cache.available("gpu") == most


def test_planning_moves_no_counter() -> None:
    """A plan is data: making it, granted or refused, changes nothing."""
    driver = Driver(Setup("shadow_first", 4, 2))
    for prompt in (0, 2, 1):
        populate(driver, prompt, "close")
    before = driver.fingerprint()

    for new in range(6):
        planner.plan(driver.cache._store, [GroupDemand(new=new)])  # noqa: SLF001

    assert driver.fingerprint() == before
