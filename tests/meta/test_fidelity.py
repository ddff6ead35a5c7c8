"""The fidelity page lists the reference completely."""

from pathlib import Path

import pytest

from tests.conformance.pins import find_reference
from tests.meta.fidelity import (
    made_up,
    read_functions,
    read_listed,
    read_mentioned,
    read_pins,
    read_section,
    unlisted,
)

COMPLETE = ("v1/core/", "v1/request.py")
"""Where every function is listed."""

INTERFACE = "SchedulerInterface."

FILES = [name for name in read_pins() if name.startswith(COMPLETE)]


@pytest.fixture
def reference() -> Path:
    """Give the folder of the reference."""
    folder = find_reference()
    if folder is None:
        pytest.skip("vLLM is not installed: make an environment with tests/conformance/reference-env.sh")
    return folder


def test_every_pinned_file_has_its_place() -> None:
    """With a table of functions, or a row of its own."""
    assert FILES == [name for name in FILES if name in read_listed()]
    assert [] == [name for name in read_pins() if name not in read_mentioned()]


@pytest.mark.parametrize("name", FILES)
def test_every_function_is_listed(reference: Path, name: str) -> None:
    """No function, class or method is forgotten."""
    assert [] == unlisted(read_listed()[name], read_functions(reference / name))


@pytest.mark.parametrize("name", FILES)
def test_no_function_is_made_up(reference: Path, name: str) -> None:
    """What is listed is there, in that file."""
    assert [] == made_up(read_listed()[name], read_functions(reference / name))


def test_the_adapters_have_the_whole_interface(reference: Path) -> None:
    """Every method that vLLM asks of a scheduler stands in the table of the adapters."""
    functions = read_functions(reference / "v1/core/sched/interface.py")
    methods = [name.removeprefix(INTERFACE) for name in functions if name.startswith(INTERFACE)]

    assert len(methods) > 20
    assert [] == [name for name in methods if name not in read_section("The adapters")]


def test_what_a_list_leaves_out_is_found(tmp_path: Path) -> None:
    """A method may be listed by its own name, by its full name, or with all of its class."""
    path = tmp_path / "pool.py"
    path.write_text(
        "def make(): ...\n"
        "class Pool:\n"
        "    def __len__(self): ...\n"
        "    def take(self): ...\n"
        "    def free(self): ...\n"
        "class Queue:\n"
        "    def take(self): ...\n"
    )
    functions = read_functions(path)

    assert ["make", "Pool", "Pool.take", "Pool.free", "Queue", "Queue.take"] == unlisted([], functions)
    assert ["make", "Pool.free", "Queue", "Queue.take"] == unlisted(["Pool.take"], functions)
    assert ["make", "Pool.free"] == unlisted(["take"], functions)
    assert ["make", "Queue", "Queue.take"] == unlisted(["Pool.*"], functions)
    assert [] == unlisted(["*"], functions)
    assert ["give", "Queue.free"] == made_up(["make", "give", "Pool.*", "Queue.free"], functions)
