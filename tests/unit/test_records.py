"""The quick way to construct a hot record makes the same value as the ordinary one."""

import attrs
import pytest

from kvsched_fp.outputs import EngineOutput, make_engine_output
from kvsched_fp.progress import Progress, after_schedule
from kvsched_fp.records import quick_constructor, quick_copier, quick_evolver
from kvsched_fp.request import RequestStatus


@attrs.frozen(weakref_slot=False)
class Point:
    """Two fields."""

    x: int
    y: int = 0


def test_record_is_an_ordinary_one() -> None:
    """Same class, equal, same hash, and frozen."""
    made = quick_constructor(Point)(1, 2)

    assert type(made) is Point
    assert Point(1, 2) == made
    assert hash(Point(1, 2)) == hash(made)
    assert Point(1, 3) == attrs.evolve(made, y=3)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.x = 5  # type: ignore[misc]


def test_hot_records_keep_the_order_of_their_fields() -> None:
    """A row that is planned and comes back differs from an ordinary one in nothing."""
    planned = after_schedule(Progress(), 3, 4, True, ())
    told = make_engine_output("a", (1,), None, None, None, None, (), None, False)

    assert Progress(RequestStatus.WAITING, 3, 4, True) == planned
    assert EngineOutput("a", (1,), None, None, None) == told


def test_every_field_is_asked_for() -> None:
    """There are no defaults on the quick way."""
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        quick_constructor(Point)(1)


def test_changed_record_is_an_ordinary_one() -> None:
    """The fields that are named change, the others stay, and the record that was copied is as before."""
    before = Point(1, 2)
    changed = quick_evolver(Point)(before, y=3)

    assert type(changed) is Point
    assert Point(1, 3) == changed
    assert hash(Point(1, 3)) == hash(changed)
    assert Point(1, 2) == before
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        changed.y = 5  # type: ignore[misc]


def test_change_of_no_field_is_refused() -> None:
    """A name that is misspelt does not get lost."""
    with pytest.raises(TypeError, match="Point has no field 'z'"):
        quick_evolver(Point)(Point(1), z=3)


def test_copy_is_an_ordinary_one() -> None:
    """What is given comes by position in the order that was asked for, what is fixed is as it was said."""
    before = Point(1, 2)

    assert Point(4, 3) == quick_copier(Point, "y", "x")(before, 3, 4)
    assert Point(1, 7) == quick_copier(Point, y=7)(before)
    assert Point(1, 2) == before
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        quick_copier(Point, "x")(before, 5).y = 5


def test_copy_with_no_such_field_is_refused() -> None:
    """A name that is misspelt is found when the function is made."""
    with pytest.raises(TypeError, match="Point has no field 'z'"):
        quick_copier(Point, "z")
    with pytest.raises(TypeError, match="Point has no field 'z'"):
        quick_copier(Point, z=3)


def test_record_that_checks_its_fields_is_refused() -> None:
    """The checks would be skipped."""

    @attrs.frozen(weakref_slot=False)
    class Checked:
        x: int = attrs.field(validator=attrs.validators.instance_of(int))

    with pytest.raises(TypeError, match="Checked has something to run at construction"):
        quick_constructor(Checked)


def test_record_that_does_something_when_it_is_made_is_refused() -> None:
    """That would be skipped, too."""

    @attrs.frozen(weakref_slot=False)
    class Busy:
        x: int

        def __attrs_post_init__(self) -> None:
            raise AssertionError

    with pytest.raises(TypeError, match="Busy has something to run at construction"):
        quick_constructor(Busy)


@attrs.frozen(weakref_slot=False)
class Move:
    """Fields with the names of what a copier may have inside."""

    before: int
    made: int
    record: int


def test_fields_may_have_any_name() -> None:
    """Nothing in the text of a copier has the name of a field."""
    assert Move(4, 2, 3) == quick_copier(Move, "before")(Move(1, 2, 3), 4)
    assert Move(1, 5, 6) == quick_copier(Move, made=5, record=6)(Move(1, 2, 3))


@pytest.mark.parametrize(("changed", "fixed"), [(("x", "x"), {}), (("x",), {"x": 1}), (("z",), {})])
def test_a_copier_takes_each_field_once(changed: tuple[str, ...], fixed: dict[str, int]) -> None:
    """A name that is given twice, or is no field, is an error when the copier is made."""
    with pytest.raises(TypeError, match=r"has no field .*, or it was given twice"):
        quick_copier(Point, *changed, **fixed)
