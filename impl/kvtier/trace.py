"""Request traces: one JSON object a line, in the Mooncake format, plain or compressed.

A request has `input_length` and `output_length` in tokens and `hash_ids`, one integer a page of the
prompt; equal ids mean equal prefixes up to and including that page. `session_id` is optional.
"""

from __future__ import annotations

import gzip
import json
import lzma
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import IO

from kvtier.errors import BadRequest

EXTRACT = "weka_n8_b512_first500.jsonl.xz"
"""The trace that ships with the package; its source and licence stand in `data/README.md`."""

MAX_REQUESTS = 10_000_000
"""Lines that are read of one trace."""


@dataclass(frozen=True, slots=True)
class Request:
    """What one request needs: pages with keys, and private pages (partial tail and output)."""

    keys: tuple[int, ...]
    private: int
    session: str | None = None


def extract() -> Path:
    """Find the trace that ships with the package."""
    return Path(str(resources.files("kvtier") / "data" / EXTRACT))


def page_tokens_of(path: Path) -> int:
    """Read the tokens of a page off a file's name (`_b64`); 512 where it says nothing."""
    for part in path.name.split(".")[0].split("_"):
        if part.startswith("b") and part[1:].isdigit():
            return int(part[1:])
    return 512


def load(path: Path, *, page_tokens: int | None = None, limit: int | None = None) -> list[Request]:
    """Read a trace; `page_tokens` by default from the file's name."""
    tokens = page_tokens or page_tokens_of(path)
    try:
        with _open(path) as lines:
            found = [
                _request(path, number, line, tokens)
                for number, line in islice(enumerate(lines, 1), limit or MAX_REQUESTS)
                if line.strip()
            ]
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise BadRequest(f"{path} cannot be read as a trace: {error}") from error
    if not found:
        raise BadRequest(f"{path}: no requests in it")
    return found


def _open(path: Path) -> IO[str]:
    if not path.is_file():
        raise BadRequest(f"no trace at {path}")
    if path.suffix == ".xz":
        return lzma.open(path, "rt")
    return gzip.open(path, "rt") if path.suffix == ".gz" else path.open()


def _request(path: Path, number: int, line: str, tokens: int) -> Request:
    try:
        fields = json.loads(line)
        prompt, output = int(fields["input_length"]), int(fields["output_length"])
        full = min(len(fields["hash_ids"]), prompt // tokens)
        keys = tuple(int(key) for key in fields["hash_ids"][:full])
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise BadRequest(f"{path}:{number}: no request in Mooncake format ({error!r})") from error
    if prompt < 0 or output < 0:
        raise BadRequest(f"{path}:{number}: a negative length in {line.strip()[:80]}")
    private = max(0, -(-(prompt + output) // tokens) - full)
    return Request(keys, private, fields.get("session_id"))
