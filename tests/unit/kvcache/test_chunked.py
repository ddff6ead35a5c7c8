"""The chunked vectors against plain lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp.kvcache.chunked import (
    CHUNK_SIZE,
    MASK,
    SHIFT,
    OpenIntVector,
    OpenObjectVector,
    make_int_vector,
    make_object_vector,
)

LENGTHS = [0, 1, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1, 3 * CHUNK_SIZE]
INTS = st.integers(-(2**31), 2**31 - 1)
WRITES = st.lists(st.tuples(st.integers(0, 3 * CHUNK_SIZE - 1), INTS), max_size=8)


@pytest.mark.parametrize("length", LENGTHS)
def test_vector_holds_its_elements(length: int) -> None:
    """Elements can be gone through in both directions and read by index, across the borders of chunks."""
    model = list(range(-1, length - 1))
    for vector in (make_int_vector(model), make_object_vector(model)):
        assert model == list(vector)
        assert model == [vector[index] for index in range(length)]
    assert model[::-1] == list(reversed(make_int_vector(model)))


@pytest.mark.parametrize("length", LENGTHS)
def test_equal_elements_are_equal_vectors(length: int) -> None:
    """Vectors compare and hash by their elements."""
    model = list(range(length))
    for make in (make_int_vector, make_object_vector):
        assert make(model) == make(tuple(model))
        assert hash(make(model)) == hash(make(tuple(model)))
        assert make(model) != make([*model, 7])


@pytest.mark.parametrize("start", [0, 3, CHUNK_SIZE - 1, CHUNK_SIZE, CHUNK_SIZE + 1])
@pytest.mark.parametrize("length", [0, 1, 5, CHUNK_SIZE, CHUNK_SIZE + 7])
def test_part_of_a_vector_is_that_of_the_list(start: int, length: int) -> None:
    """A part may begin and end in any chunk, and its elements may be negative."""
    model = list(range(-7, 3 * CHUNK_SIZE - 7))

    assert model[start : start + length] == list(make_int_vector(model).between(start, start + length))


@pytest.mark.parametrize("first", LENGTHS)
@pytest.mark.parametrize("second", LENGTHS)
def test_vector_grows_at_its_end(first: int, second: int) -> None:
    """However full the last chunk is, the grown vector equals one that was made at once."""
    model = list(range(second, -first, -1))
    grown = make_int_vector(model[:first]).extend(model[first:])

    assert make_int_vector(model) == grown
    assert first + second == len(grown)


@given(WRITES)
def test_opened_vector_is_a_list_and_leaves_the_frozen_one_alone(writes: list[tuple[int, int]]) -> None:
    """Writes are read back, closing gives the list, and the vector that was opened is what it was."""
    before = list(range(3 * CHUNK_SIZE))
    model = list(before)
    ints, objects = make_int_vector(before), make_object_vector(before)
    open_ints, open_objects = OpenIntVector(ints), OpenObjectVector(objects)
    for index, value in writes:
        model[index] = value
        open_ints[index >> SHIFT][index & MASK] = value
        open_objects[index >> SHIFT][index & MASK] = value

        assert (
            value == open_ints[index >> SHIFT][index & MASK] == open_objects[index >> SHIFT][index & MASK]
        )

    assert make_int_vector(model) == open_ints.close()
    assert make_object_vector(model) == open_objects.close()
    assert before == list(ints) == list(objects)


def test_untouched_chunks_are_shared() -> None:
    """Closing copies the chunks that were written; if none was, it gives the vector itself."""
    vector = make_int_vector(range(3 * CHUNK_SIZE))
    opened = OpenIntVector(vector)
    opened[1][0] = -1
    closed = opened.close()

    assert vector.chunks[0] is closed.chunks[0]
    assert vector.chunks[2] is closed.chunks[2]
    assert vector is OpenIntVector(vector).close()
