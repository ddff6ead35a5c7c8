"""Where the configuration of a command comes from."""

from pathlib import Path

import attrs
import pytest

from kvsched_fp import DEFAULT, SchedulerConfig, SchedulingPolicy
from kvsched_fp.cli.config_source import parse_assignment, read_config
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.workloads.sample import REPLAY_CONFIG


def test_without_a_file_the_base_is_used() -> None:
    """Assignments change single fields of it."""
    assert REPLAY_CONFIG == read_config(None, [], REPLAY_CONFIG)
    assert attrs.evolve(REPLAY_CONFIG, num_blocks=900) == read_config(
        None, ["num_blocks=900"], REPLAY_CONFIG
    )


def test_a_file_is_used_instead_of_the_base(tmp_path: Path) -> None:
    """Fields that the file does not name have the defaults of `SchedulerConfig`."""
    path = tmp_path / "c.toml"
    path.write_text('num_blocks = 2000\npolicy = "priority"\nwatermark = 0.01\n')

    assert SchedulerConfig(
        num_blocks=2000, policy=SchedulingPolicy.PRIORITY, watermark=0.01
    ) == read_config(path, [], REPLAY_CONFIG)


def test_assignments_come_on_top_of_a_file(tmp_path: Path) -> None:
    """What is said last and nearest counts."""
    path = tmp_path / "c.json"
    path.write_text('{"num_blocks": 2000, "max_num_active_seqs": 5}')
    config = read_config(path, ["num_blocks=3000", "num_blocks=4000"], REPLAY_CONFIG)

    assert (4000, 5) == (config.num_blocks, config.max_num_active_seqs)


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    """All fields have defaults."""
    path = tmp_path / "c.toml"
    path.write_text("")

    assert DEFAULT == read_config(path, [], REPLAY_CONFIG)


def test_the_groups_follow_the_block_size() -> None:
    """The base's groups have its block size in them, so they are made anew."""
    config = read_config(None, ["block_size=1024"], REPLAY_CONFIG)

    assert (FullAttentionSpec(block_size=1024),) == config.kv_cache_groups


def test_groups_and_hasher_are_written_as_in_a_trace(tmp_path: Path) -> None:
    """Structured values have their kinds."""
    path = tmp_path / "c.toml"
    path.write_text(
        'block_hasher = {kind = "blake2b"}\n[[kv_cache_groups]]\nkind = "full_attention"\nblock_size = 16\n'
    )

    assert DEFAULT == read_config(path, [], REPLAY_CONFIG)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", ("a", 1)),
        ("a=0.5", ("a", 0.5)),
        ("a=true", ("a", True)),
        ("a=null", ("a", None)),
        ("a=[1]", ("a", [1])),
        ("a=fcfs", ("a", "fcfs")),
        ('a="fcfs"', ("a", "fcfs")),
        (" a = b=c ", ("a", "b=c")),
        ("a=" + "[" * 100_000, ("a", "[" * 100_000)),
    ],
)
def test_a_value_is_json_or_else_a_text(text: str, expected: tuple[str, object]) -> None:
    """Numbers, booleans and null need no quotes, and neither do names."""
    assert expected == parse_assignment(text)
