"""Time the persistent containers that the state could be built of: `python -m tests.bench.persistent`.

Needs nothing but the package. Figures are microseconds of processor time per operation, the least of
several repeats.
"""

import gc
import os
import random
import time
import timeit
from collections.abc import Callable

from immutables import Map
from pyrsistent import pmap, pvector

from kvsched_fp.kvcache.chunked import MASK, SHIFT, OpenIntVector, make_int_vector

NUM_OPERATIONS = 256
NUM_BLOCKS = 32_000


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
    time_collections()
