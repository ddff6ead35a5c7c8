"""How a shadow and a recorder are told what to do."""

import types
from pathlib import Path
from typing import Any

import pytest

from kvsched_fp.errors import InvalidConfig

pytestmark = pytest.mark.usefixtures("_reference")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvsched_fp.adapters.vllm.options import VARIABLES

    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)


def vllm_config(written: Any = None, data_parallel_index: int = 0) -> Any:
    """Make as much of vLLM's configuration as the options are in."""
    return types.SimpleNamespace(
        additional_config={} if written is None else {"kvsched_fp": written},
        parallel_config=types.SimpleNamespace(data_parallel_index=data_parallel_index),
    )


def test_order_of_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor goes before `additional_config`, and that before the environment."""
    from kvsched_fp.adapters.vllm.options import choose_shadow_options

    monkeypatch.setenv("KVSCHED_FP_SHADOW", "record")
    monkeypatch.setenv("KVSCHED_FP_TRACE", "a.jsonl")
    written = vllm_config({"on_difference": "log", "folder": str(tmp_path)})
    options = choose_shadow_options({}, written)

    assert ("log", Path("a.jsonl"), tmp_path) == (options.on_difference, options.trace, options.folder)
    assert "raise" == choose_shadow_options({"on_difference": "raise"}, written).on_difference
    assert "record" == choose_shadow_options({}, vllm_config()).on_difference


def test_defaults() -> None:
    """A shadow raises, and records nothing."""
    from kvsched_fp.adapters.vllm.options import choose_shadow_options

    options = choose_shadow_options({}, vllm_config())

    assert ("raise", None) == (options.on_difference, options.trace)


@pytest.mark.parametrize(
    ("written", "field"),
    [
        ({"on_difference": "shout"}, "on_difference"),
        ({"colour": "red"}, "kvsched_fp"),
        ("log", "kvsched_fp"),
    ],
)
def test_wrong_options(written: Any, field: str) -> None:
    """An option that is none is refused, and named."""
    from kvsched_fp.adapters.vllm.options import choose_shadow_options

    with pytest.raises(InvalidConfig, match=field):
        choose_shadow_options({}, vllm_config(written))


def test_a_recorder_has_a_trace_alone() -> None:
    """It refuses the options of a shadow, and needs a file."""
    from kvsched_fp.adapters.vllm.options import choose_trace

    assert Path("a.jsonl") == choose_trace({}, vllm_config({"trace": "a.jsonl"}))
    with pytest.raises(InvalidConfig, match="the keys trace"):
        choose_trace({}, vllm_config({"trace": "a.jsonl", "on_difference": "log"}))
    with pytest.raises(InvalidConfig, match="KVSCHED_FP_TRACE"):
        choose_trace({}, vllm_config())


def test_engines_of_a_group_share_no_file() -> None:
    """All but the first engine of a data-parallel group have their number in the name."""
    from kvsched_fp.adapters.vllm.options import choose_trace

    given = {"trace": "folder/a.jsonl"}

    assert [Path("folder/a.jsonl"), Path("folder/a-1.jsonl")] == [
        choose_trace(given, vllm_config(data_parallel_index=index)) for index in range(2)
    ]
