"""The planner against brute force in small worlds: what is available, and the three answers."""

from __future__ import annotations

import random
from itertools import product

import pytest

from kvtier import Busy, Granted, OutOfSlots, planner
from kvtier.planner import GroupDemand, Plan, Short
from kvtier.policy import POLICIES
from model_tests import brute
from model_tests.driver import Driver
from model_tests.populate import populate
from model_tests.universe import MAX_SEQUENCES, PROMPTS, Setup, drawn_names

STEPS = 40


def drawn(draw: random.Random, policy: str, tiers: int, engine: str) -> Driver:
    """Make a cache of small tiers that has run some prompts."""
    colder = tuple(draw.choice([0, 1, 2, 4]) for _ in range(tiers - 2))
    demote = draw.choice(["ahead", "on_demand"])
    setup = Setup(policy, draw.randint(2, 4), draw.randint(0, 3), engine, colder, "page_first")
    driver = Driver(Setup(**{**vars(setup), "demote": demote}))
    for _ in range(draw.randint(0, 6)):
        populate(driver, draw.randrange(len(PROMPTS)), draw.choice(["close", "suspend"]))
    return driver


@pytest.mark.parametrize("tiers", [2, 3, 4])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_the_three_answers_are_those_of_brute_force(policy: str, tiers: int) -> None:
    """I7, I11: granted if a plan exists now, busy if one will exist, refused if none can."""
    for seed, engine in product(range(4), ("null", "late")):
        draw = random.Random(f"{seed} {tiers}")
        driver = drawn(draw, policy, tiers, engine)
        for _ in range(STEPS):
            calls = driver.calls()
            driver.do(draw.choice(calls[draw.choice(drawn_names(calls))]))
            driver.settle()
            judge(driver)
            if len(driver.users) < MAX_SEQUENCES:
                ask(driver, draw.randint(0, driver.counts["gpu"]))


def judge(driver: Driver) -> None:
    """Hold what the planner says of every number of new pages against brute force."""
    ledger, most = driver.ledger, 0
    world = brute.small(ledger)
    for new in range(driver.counts["gpu"] + 1):
        answer = planner.plan(ledger, [GroupDemand(new=new)])
        now = brute.granted(world, new)
        assert isinstance(answer, Plan) == now, f"{new} new pages: {answer} in {world}"
        most = new if now else most
        if isinstance(answer, Short):
            will = brute.later(world, ledger, new)
            assert (answer.later >= new) == will, f"{new} new pages later: {answer} in {world}"
            assert answer.available == most
    assert driver.cache.available("gpu") == most
    for tier, name in enumerate(driver.counts):
        if tier:
            assert driver.cache.available(name) == brute.spare(world, tier), name


def ask(driver: Driver, new: int) -> None:
    """Ask for new pages in earnest: the answer, too, is that of brute force."""
    world = brute.small(driver.ledger)
    now = brute.granted(world, new)
    will = now or brute.later(world, driver.ledger, new)
    sequence = driver.cache.sequence()
    answer = sequence.resume(new=new, stream="asked")
    sequence.close()
    if now and driver.setup.demote == "ahead":
        assert isinstance(answer, Granted), f"{answer} although a plan exists in {world}"
    elif will and not all(map(driver.cache._store.flights.takes, range(2, len(driver.counts)))):  # noqa: SLF001
        assert isinstance(answer, Granted | Busy | OutOfSlots)  # a tier that fails is left alone
    elif will:
        assert isinstance(answer, Granted | Busy if now else Busy), answer
    else:
        assert isinstance(answer, OutOfSlots), f"{answer} although nothing can help in {world}"


def test_planning_moves_no_counter() -> None:
    """A plan is data: making it, granted or refused, changes nothing."""
    driver = Driver(Setup("shadow_first", 4, 2))
    for prompt in (0, 2, 1):
        populate(driver, prompt, "close")
    before = driver.fingerprint()

    for new in range(6):
        planner.plan(driver.ledger, [GroupDemand(new=new)])

    assert driver.fingerprint() == before
