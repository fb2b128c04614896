"""Golden stories: a text file of commands, and under each what the cache said and journalled.

A command is a line behind `> `; what follows, up to the next, is the record. Anyone can read and
review one without knowing the test code. `pytest --rewrite-golden` writes them anew.

    > cache gpu=2 host=4 policy=shadow_first
    > a = sequence x y
    > resume a new=2
    open p0 p1 at 0 1
    granted
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvtier import Busy, Cache, Config, CpuEngine, Demand, Granted, Group, KvtierError
from kvtier.tiers import HostPool
from kvtier_spec import Batch, Kind, Record
from model_tests.universe import CHAINS

PAGE_BYTES = 8
TIERS = ("gpu", "host", "disk", "remote")


class Teller:
    """Perform a story's commands and write down what happens."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[tuple[int, int], str] = {}
        self.sequences: dict[str, Any] = {}
        self.tickets: tuple[int, ...] = ()

    def tell(self, text: str) -> str:
        """Perform every command of a story; give the story with what was said."""
        for line in text.splitlines():
            if line.startswith("#") or not line.strip():
                self.lines.append(line)
            elif line.startswith("> "):
                self.lines.append(line)
                self._perform(line[2:].split())
        return "\n".join(self.lines) + "\n"

    def _perform(self, words: list[str]) -> None:
        if "=" in words[1:2]:
            name, _, verb, *rest = words
            self.sequences[name] = self.cache.sequence(rest)
            hits = self.sequences[name].hits
            self.lines.append(", ".join(f"{count} on {tier}" for tier, count in hits.items()))
            return
        verb, *rest = words
        plain = [word for word in rest if "=" not in word]
        options = dict(word.split("=") for word in rest if "=" in word)
        try:
            self._do(verb, plain, options)
        except KvtierError as error:
            self.lines.append(f"{type(error).__name__}: {error}")

    def _do(self, verb: str, plain: list[str], options: dict[str, str]) -> None:
        if verb == "cache":
            self._build(options)
            return
        verbs: dict[str, Callable[[], object]] = {
            "drain": lambda: (self.engine.synchronize(), self.cache.poll()),
            "poll": self.cache.poll,
            "wait": lambda: self.cache.wait(self.tickets),
            "finish": lambda: self._finish(options),
            "show": self._show,
            "step": lambda: self._step(plain),
            "reset": self.cache.reset,
            "resize": lambda: self._answer(self.cache.resize(plain[0], int(plain[1]))),
        }
        if verb in verbs:
            verbs[verb]()
        else:
            self._on_sequence(verb, self.sequences[plain[0]], plain[1:], options)

    def _step(self, plain: list[str]) -> None:
        pairs = (word.split(":") for word in plain)
        self._answer(self.cache.step([Demand(self.sequences[n], int(k)) for n, k in pairs]))

    def _finish(self, options: dict[str, str]) -> None:
        """Let the first job of a fallible tier end, after the copies that it waits for."""
        while self.engine.pump():
            pass
        failed = [int(row) for row in options.get("failed", "").split(",") if row]
        self.engine.finish(self.engine.finishable()[0], failed=failed)
        self.cache.poll()

    def _on_sequence(
        self, verb: str, sequence: Any, plain: list[str], options: dict[str, str]
    ) -> None:
        def resume() -> None:
            new = int(options.get("new", "0"))
            if "fail" not in options:
                self._answer(sequence.resume(new, stream="compute"))
                return
            at, queued = map(int, options["fail"].split(","))
            with self.engine.failing(at=at, queued=queued):
                self._answer(sequence.resume(new, stream="compute"))

        verbs: dict[str, Callable[[], object]] = {
            "resume": resume,
            "append": lambda: self._answer(sequence.append(int(plain[0]))),
            "commit": lambda: sequence.commit(plain),
            "trim": lambda: sequence.trim(int(plain[0])),
            "suspend": sequence.suspend,
            "close": sequence.close,
            "prefetch": lambda: self._note(sequence.prefetch(plain[0])),
            "state": lambda: self.lines.append(str(sequence)),
        }
        verbs[verb]()

    def _note(self, tickets: tuple[int, ...]) -> None:
        self.tickets = tickets
        self.lines.append(f"tickets {tickets}")

    def _build(self, options: dict[str, str]) -> None:
        self.names.clear()
        slots = {tier: int(options[tier]) for tier in TIERS if tier in options}
        windows = [int(w) for w in options.get("windows", "").split(",") if w]
        groups = [Group(page_bytes=PAGE_BYTES)]
        groups += [Group(f"window{w}", PAGE_BYTES, window=w) for w in windows]
        memories = [[HostPool(count, PAGE_BYTES) for _ in groups] for count in slots.values()]
        is_late = options.get("engine") == "late"
        self.engine = CpuEngine(memories, is_manual=is_late, job_threads=0)
        config = Config(
            chain=CHAINS[len(slots)],
            slots=slots,
            policy=options["policy"],
            cold_policy=options.get("cold", "shadow_first"),
            demote=options.get("demote", "ahead"),
            clean_low=float(options.get("low", "0")),
            clean_high=float(options.get("high", "1")),
            audit=True,
            groups=tuple(groups),
        )
        self.cache = Cache(config, engine=self.engine, memories=memories)
        self.cache.subscribe(self._write_down)

    def _answer(self, outcome: object) -> None:
        self.tickets = outcome.tickets if isinstance(outcome, Busy) else ()
        self.lines.append("granted" if isinstance(outcome, Granted) else str(outcome))

    def _show(self) -> None:
        for group, kind in enumerate(self.cache.config.groups):
            states = self.cache._checker.state_names(group)  # noqa: SLF001
            said = ", ".join(f"{self.name(page, group)} {state}" for page, state in states.items())
            prefix = f"{kind.name}: " if len(self.cache.config.groups) > 1 else ""
            self.lines.append(prefix + (said or "nothing"))
        for tier, stats in self.cache.stats().tiers.items():
            slots = ", ".join(f"{n} {state}" for state, n in stats.slots.items() if n)
            self.lines.append(f"{tier}: {slots}; available {self.cache.available(tier)}")

    def name(self, page: int, group: int) -> str:
        """Name a page by its key, or by its number while it is open."""
        return self.names.get((group, page), f"p{page}")

    def _write_down(self, batch: Batch) -> None:
        for record in batch:
            if record.kind is Kind.COMMIT and not record.is_private:
                pairs = zip(record.pages, map(str, record.keys), strict=True)
                self.names |= {(record.group, page): key for page, key in pairs}
            self.lines.append(self._line(record))

    def _line(self, record: Record) -> str:
        tiers = [tier.name for tier in self.cache.config.chain.tiers]
        late = " late" if record.is_late else ""
        words = [record.kind + (" as twins" if record.is_private else late)]
        if len(self.cache.config.groups) > 1:
            words.insert(0, f"[{self.cache.config.groups[record.group].name}]")
        if record.kind in (Kind.COPY, Kind.START):
            words.append(f"{tiers[record.source]}>{tiers[record.target]}")
        elif record.kind in _OF_A_TIER:
            words.append(tiers[record.target])
        words += self._pages(record)
        if len(record.slots):
            words.append("at " + " ".join(map(str, record.slots)))
        return " ".join(words)

    def _pages(self, record: Record) -> list[str]:
        if record.kind is Kind.COMMIT and record.is_private:
            pairs = zip(record.pages, record.keys, strict=True)
            return [f"p{page} of {key}" for page, key in pairs]
        found = [self.name(page, record.group) for page in record.pages]
        return found + (["from", *(f"p{twin}" for twin in record.twins)] if record.twins else [])


_OF_A_TIER = (
    Kind.RELEASE,
    Kind.LOSE,
    Kind.QUARANTINE,
    Kind.READMIT,
    Kind.RETIRE,
    Kind.GROW,
)


def tell(text: str) -> str:
    """Tell a story anew."""
    return Teller().tell(text)
