"""Time the persistent containers that the state could be built of: `python -m tests.bench.persistent`.

Needs nothing but the package. Figures are microseconds of processor time per operation, the least of
several repeats.
"""

import functools
import gc
import os
import random
import time
import timeit
from collections.abc import Callable
from typing import Any

import attrs
from immutables import Map
from pyrsistent import pdeque, pmap, pvector

from kvsched_fp.deque import make_deque
from kvsched_fp.kvcache.chunked import MASK, SHIFT, OpenIntVector, make_int_vector
from kvsched_fp.kvcache.layered import LayeredMap, OpenLayeredMap
from kvsched_fp.progress import Progress
from kvsched_fp.records import quick_constructor, quick_evolver

NUM_OPERATIONS = 256
NUM_BLOCKS = 32_000
NUM_STEPS = 100


def per_operation(work: Callable[[], object]) -> float:
    """Give the microseconds per operation of `work`, which does `NUM_OPERATIONS` of them."""
    repeats = timeit.repeat(work, number=20, repeat=7, timer=time.process_time)
    return min(repeats) / 20 / NUM_OPERATIONS * 1e6


def report(name: str, work: Callable[[], object]) -> None:
    """Print one row."""
    print(f"{name:44}{per_operation(work):8.3f}")


def time_maps() -> None:
    """Compare the look-up maps at 256 string keys."""
    plain = {f"request-{index}": index for index in range(NUM_OPERATIONS)}
    persistent, mapping = pmap(plain), Map(plain)

    def set_in_pmap() -> None:
        evolver = persistent.evolver()
        for key in plain:
            evolver[key] = time_maps
        evolver.persistent()

    def set_in_map() -> None:
        mutation = mapping.mutate()
        for key in plain:
            mutation[key] = time_maps
        mutation.finish()

    report("pmap get", lambda: [persistent[key] for key in plain])
    report("immutables.Map get", lambda: [mapping[key] for key in plain])
    report("pmap set, evolver", set_in_pmap)
    report("immutables.Map set, mutation", set_in_map)


def time_columns() -> None:
    """Compare the columns of a pool of 32,000 blocks, with as many changes as a busy step makes."""
    chosen = random.Random(0).sample(range(NUM_BLOCKS), NUM_OPERATIONS)
    vector, packed = pvector(range(NUM_BLOCKS)), make_int_vector(range(NUM_BLOCKS))

    def set_in_pvector() -> None:
        evolver = vector.evolver()
        for index in chosen:
            evolver[index] = -1
        evolver.persistent()

    def set_in_chunks() -> None:
        opened = OpenIntVector(packed)
        for index in chosen:
            opened[index >> SHIFT][index & MASK] = -1
        opened.close()

    report("pvector set, evolver", set_in_pvector)
    report("chunked set", set_in_chunks)


def time_prefix_indexes() -> None:
    """Compare the prefix index over many steps; each removes old keys and enters as many new ones."""
    keys = [os.urandom(36) for _ in range(NUM_BLOCKS + NUM_STEPS * NUM_OPERATIONS)]
    present = {key: index for index, key in enumerate(keys[:NUM_BLOCKS])}
    steps = [
        range(start, start + NUM_OPERATIONS) for start in range(0, len(keys) - NUM_BLOCKS, NUM_OPERATIONS)
    ]

    def in_map() -> None:
        index = Map(present)
        for step in steps:
            opened = index.mutate()
            for number in step:
                if opened.get(keys[number]) is not None:
                    del opened[keys[number]]
                if opened.get(keys[NUM_BLOCKS + number]) is None:
                    opened[keys[NUM_BLOCKS + number]] = number
            index = opened.finish()

    def in_layers() -> None:
        index = layered
        for step in steps:
            opened = OpenLayeredMap(index)
            for number in step:
                if opened.get(keys[number]) is not None:
                    opened.remove(keys[number])
            opened.add_if_all_new({keys[NUM_BLOCKS + number]: number for number in step})
            index = opened.close()

    opened = OpenLayeredMap(LayeredMap[bytes, int]())
    opened.add_if_all_new(present)
    layered = opened.close()
    for name, work in (("immutables.Map", in_map), ("layers", in_layers)):
        spent = min(timeit.repeat(work, number=1, repeat=5, timer=time.process_time))
        print(f"{'enter and remove a key, ' + name:44}{spent / NUM_STEPS / NUM_OPERATIONS * 1e6:8.3f}")


def time_deques() -> None:
    """Compare the queues: each entry goes in at the back and out at the front, beside some others.

    Of 10,000, what `pdeque` takes to turn its back around, once per entry, is not in the figure.
    """

    def go_through(queue: Any) -> None:
        for number in range(NUM_OPERATIONS):
            queue = queue.append(number).popleft()

    def walk_over(queue: Any) -> None:
        for _ in range(NUM_OPERATIONS):
            list(queue)

    for name, make in (("pdeque", pdeque), ("deque", make_deque)):
        for size in (2, 200, 10_000):
            report(f"{name} of {size}, in and out", functools.partial(go_through, make(range(size))))
        report(f"{name} walk over two", functools.partial(walk_over, make(range(2))))


def time_records() -> None:
    """Compare the ways to construct a `Progress`, and to change one of its fields."""
    make = quick_constructor(Progress)
    values = attrs.astuple(Progress(), recurse=False)
    report("frozen record", lambda: [Progress(*values) for _ in range(NUM_OPERATIONS)])
    report("frozen record, quickly", lambda: [make(*values) for _ in range(NUM_OPERATIONS)])
    evolve, record = quick_evolver(Progress), Progress()
    report("attrs.evolve", lambda: [attrs.evolve(record, events=()) for _ in range(NUM_OPERATIONS)])
    report("evolve quickly", lambda: [evolve(record, events=()) for _ in range(NUM_OPERATIONS)])


def time_collections() -> None:
    """Compare what one collection of the youngest generation costs with one young column of each kind."""
    makers: dict[str, Callable[[], object]] = {
        "pvector": lambda: pvector(range(NUM_BLOCKS)),
        "tuple": lambda: tuple(range(NUM_BLOCKS)),
        "chunked": lambda: make_int_vector(range(NUM_BLOCKS)),
        "map of 20-byte keys": lambda: Map({os.urandom(20): index for index in range(NUM_OPERATIONS)}),
    }
    for name, make in makers.items():
        gc.collect()
        gc.disable()
        young = make()
        start = time.process_time()
        gc.collect(0)
        spent = (time.process_time() - start) * 1e6
        gc.enable()
        print(f"collection with a young {name:20}{spent:8.1f}")
        del young


if __name__ == "__main__":
    time_maps()
    time_columns()
    time_prefix_indexes()
    time_deques()
    time_records()
    time_collections()
