"""Prompts run to some end before a run begins, so that pages lie on every tier."""

from __future__ import annotations

from kvtier import Busy
from model_tests.driver import Driver
from model_tests.universe import MAX_SEQUENCES


def populate(driver: Driver, prompt: int, end: str, more: int = 0) -> None:
    """Run a prompt and `more` blocks behind it, then close or suspend; skipped where it cannot.

    Who suspends with some blocks more leaves one of them open. Every other time all that is late
    happens before, so that pages come to rest on every tier.
    """
    if more % 2 and driver.setup.engine == "late":
        driver.engine.synchronize()
    if len(driver.users) == MAX_SEQUENCES:
        driver.acts.close(0)
    driver.settle()
    driver.acts.sequence(prompt)
    index, sequence = len(driver.users) - 1, driver.users[-1].sequence
    new = len(sequence.prompt) - sequence.committed + more
    answer = driver.acts.resume(index, new, None)
    for _ in range(8):
        if not isinstance(answer, Busy):
            break
        driver.cache.wait(answer.tickets)
        answer = driver.acts.resume(index, new, None)
    left_open = int(end == "suspend" and more > 1)
    if answer:
        if new > left_open:
            driver.acts.commit(index, new - left_open)
        if end == "suspend":
            driver.acts.suspend(index)
            return
    driver.acts.close(index)
