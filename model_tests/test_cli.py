"""The command line: what it prints, what it refuses, how it exits."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvtier import BadRequest
from kvtier.cli import kvtier
from kvtier.trace import extract, load, page_tokens_of

SMALL = ["--limit", "60", "--gpu", "260", "--host", "300", "--window", "2"]


def call(*arguments: str) -> Result:
    """Run a command; errors of ours come out as they are."""
    return CliRunner().invoke(kvtier, list(arguments), catch_exceptions=True)


def test_replay_prints_a_comparison() -> None:
    """The table has a line a mode and says that all pages were compared."""
    result = call("replay", *SMALL)

    assert result.exit_code == 0, result.output
    for word in ("exclusive", "page_first", "shadow_first", "all equal"):
        assert word in result.output


def test_replay_prints_json() -> None:
    """A list of objects, one a mode, with the counts that others read."""
    result = call("replay", *SMALL, "--json", "--engine", "null", "--mode", "exclusive,page_first")

    runs = json.loads(result.output)
    names = {"mode", "gpu_hits", "host_hits", "disk_hits", "computed", "d2h_pages", "h2d_pages"}
    names |= {"saved_pages", "disk_write_pages", "disk_read_pages", "disk_saved_pages"}
    names |= {"d2h_bytes", "saved_bytes"}
    assert [run["mode"] for run in runs] == ["exclusive", "page_first"]
    assert all(names <= set(run) for run in runs)
    assert runs[1]["d2h_bytes"] == runs[1]["d2h_pages"] * 4096


def test_null_and_cpu_engines_count_the_same() -> None:
    """What moves does not depend on whether bytes move."""
    counts = [
        json.loads(call("replay", *SMALL, "--json", "--engine", engine).output)
        for engine in ("cpu", "null")
    ]
    for run in counts[0] + counts[1]:
        del run["verified_pages"]
    assert counts[0] == counts[1]


def test_replay_draws_a_picture(tmp_path: Path) -> None:
    """--plot writes a picture."""
    target = tmp_path / "run.png"
    result = call("replay", *SMALL, "--engine", "null", "--plot", str(target))

    assert result.exit_code == 0, result.output
    assert target.read_bytes().startswith(b"\x89PNG")


def test_a_trace_of_ones_own_needs_sizes(tmp_path: Path) -> None:
    """A missing size is named, not guessed."""
    path = tmp_path / "t.jsonl"
    path.write_text('{"input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}\n')

    assert isinstance(call("replay", str(path)).exception, BadRequest)
    given = call("replay", str(path), "--gpu", "4", "--host", "4", "--window", "1", "--json")
    assert json.loads(given.output)[0]["computed"] == 2


def test_a_mode_that_is_not_there_is_named() -> None:
    """A wrong mode lists those that exist."""
    result = call("replay", "--mode", "magic")
    assert result.exit_code == 2
    assert "no 'magic'" in result.output


NEGATIVE = '{"input_length": -1, "output_length": 1, "hash_ids": [1, 2]}'


@pytest.mark.parametrize("line", ["nonsense", NEGATIVE, '{"input_length": 1}', "[]"])
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: str) -> None:
    """The error says which line of which file."""
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(BadRequest, match=r"bad\.jsonl:1"):
        load(path)


def test_traces_are_read_compressed_and_by_name(tmp_path: Path) -> None:
    """Plain and xz give the same; the tokens of a page stand in the name."""
    plain = tmp_path / "x_b64.jsonl"
    plain.write_bytes(lzma.decompress(extract().read_bytes()))
    assert load(plain, page_tokens=512) == load(extract())
    assert (page_tokens_of(plain), page_tokens_of(extract())) == (64, 512)
    with pytest.raises(BadRequest, match="no trace at"):
        load(tmp_path / "missing.jsonl")


def test_check_explores_and_passes() -> None:
    """The check prints its counts and exits with 0."""
    result = call("check")
    assert result.exit_code == 0, result.output
    assert "1,088,429" in result.output
    assert "two shadows and a full host" in result.output


def test_a_planted_violation_gives_a_shortest_path() -> None:
    """Without a guard the check shows the way to what breaks and exits with 1."""
    result = call("check", "--plant", "copy:none on target")
    assert result.exit_code == 1
    assert "shortest way, 4 events" in result.output
    assert call("check", "--plant", "release:committed or forgotten").exit_code == 0
    assert call("check", "--plant", "no:such").exit_code == 2


def test_diagram_prints_mermaid_and_tables() -> None:
    """The state diagram of any chain, as text."""
    assert "stateDiagram-v2" in call("diagram").output
    assert "host_to_disk" in call("diagram", "--tiers", "3", "--flights").output
    assert "| `copy gpu>host` |" in call("diagram", "--table").output


def test_bench_bookkeeping_prints_ratios() -> None:
    """Every burst is compared with the named baseline of the same run."""
    result = call("bench", "bookkeeping", "--rounds", "1", "--json")
    bursts = json.loads(result.output)
    assert bursts[0]["name"].startswith("baseline")
    assert len(bursts) == 10
    assert sum(burst["name"].startswith("3 tiers") for burst in bursts) == 4
    assert "x baseline" in call("bench", "bookkeeping", "--rounds", "1").output


def test_a_replay_with_a_disk_shows_both_ways_down() -> None:
    """Hits, disk writes and waits of both modes side by side; every page is compared."""
    sizes = ("--window", "3", "--gpu", "300", "--host", "200", "--disk", "900")
    options = ("replay", "--limit", "40", "--mode", "shadow_first", "--disk-shadows", "page_first")
    counts = json.loads(call(*options, *sizes, "--json").output)
    shown = call(*options, *sizes).output

    assert [count["mode"].split(" / ")[-1] for count in counts] == ["on_demand", "ahead"]
    assert all(count["verified_pages"] == count["pages"] for count in counts)
    assert counts[0]["disk_write_pages"] > 0
    assert counts[1]["waited_write_pages_mean"] == 0
    assert "disk writes" in shown
    assert call(*options, *sizes, "--demote", "never").exit_code == 2


def test_bench_figures_says_what_it_did_not_run(tmp_path: Path) -> None:
    """Without traces nothing is equal, and the exit code says so."""
    result = call("bench", "figures", str(tmp_path))
    assert result.exit_code == 1
    assert "0 equal, 0 differ, 68 not run" in result.output


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", b"\xff\xfe"),
        ("a.jsonl.xz", b"hello"),
        ("a.jsonl.gz", b"hello"),
        ("a.jsonl", b""),
    ],
)
def test_what_is_no_trace_is_one_clear_error(tmp_path: Path, name: str, data: bytes) -> None:
    """Whatever is wrong with a file, the error names it."""
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadRequest, match=name):
        load(path)


def test_blank_lines_are_skipped_and_limits_count_lines(tmp_path: Path) -> None:
    """A blank line is no request."""
    path = tmp_path / "t.jsonl"
    line = '{"input_length": 512, "output_length": 1, "hash_ids": [1]}\n'
    path.write_text(line + "\n" + line)
    assert (len(load(path)), len(load(path, limit=1))) == (2, 1)


def test_a_picture_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    """Neither a missing folder nor an unknown format is a traceback."""
    for target in (tmp_path / "no" / "x.png", tmp_path / "x.nothing"):
        result = call("replay", "--limit", "5", "--engine", "null", "--plot", str(target))
        assert isinstance(result.exception, BadRequest)
