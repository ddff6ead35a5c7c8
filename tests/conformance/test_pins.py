"""Another reference than the pinned one is refused."""

import json
from pathlib import Path

import pytest

from . import pins


@pytest.fixture
def reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make up a reference of one file, and pins that fit it."""
    folder = tmp_path / "vllm"
    (folder / "v1/core").mkdir(parents=True)
    (folder / "v1/core/pool.py").write_text("blocks = 3\n")
    (tmp_path / "pins.json").write_text(json.dumps({"sha256": pins.hash_files(folder)}))
    monkeypatch.setattr(pins, "PINS", tmp_path / "pins.json")
    monkeypatch.setattr(pins, "find_reference", lambda: folder)
    return folder


def test_pinned(reference: Path) -> None:
    """The pinned files pass."""
    pins.check_pins()

    assert list(pins.hash_files(reference)) == ["v1/core/pool.py"]


def test_changed(reference: Path) -> None:
    """A changed file is named."""
    (reference / "v1/core/pool.py").write_text("blocks = 4\n")

    with pytest.raises(pins.PinError, match=r"changed: v1/core/pool\.py"):
        pins.check_pins()


def test_missing(reference: Path) -> None:
    """A file that is gone is named."""
    (reference / "v1/core/pool.py").unlink()

    with pytest.raises(pins.PinError, match=r"missing: v1/core/pool\.py"):
        pins.check_pins()


def test_new(reference: Path) -> None:
    """A new file among the modelled ones is named: something may have moved there."""
    (reference / "v1/core/queue.py").write_text("")

    with pytest.raises(pins.PinError, match=r"not pinned: v1/core/queue\.py"):
        pins.check_pins()


def test_no_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vLLM, the error says how to get it."""
    monkeypatch.setattr(pins, "find_reference", lambda: None)

    with pytest.raises(pins.PinError, match=r"reference-env\.sh"):
        pins.check_pins()
