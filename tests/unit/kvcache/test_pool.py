"""The block pool against plain lists.

The model holds the free list, the reference counts and the prefix index as lists and dicts, and does with
them what the rules say, in the most direct way.
"""

import copy
from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import OracleBug
from kvsched_fp.ids import BlockId, BlockKey
from kvsched_fp.kvcache.chunked import CHUNK_SIZE
from kvsched_fp.kvcache.pool import BlockPool, OpenPool, as_tuple, clear_prefix_index, make_pool

KEYS = [BlockKey(bytes([number])) for number in range(3)]


@attrs.define
class Model:
    """What a pool should hold."""

    num_blocks: int
    free: list[int] = attrs.field(init=False)
    refs: dict[int, int] = attrs.field(init=False)
    keys: dict[int, BlockKey] = attrs.field(factory=dict)
    index: dict[BlockKey, list[int]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.free = list(range(1, self.num_blocks))
        self.refs = dict.fromkeys(range(1, self.num_blocks), 0)

    def take(self, num_blocks: int) -> tuple[list[int], list[BlockKey]]:
        """Take from the front; a taken block loses its key."""
        taken, self.free = self.free[:num_blocks], self.free[num_blocks:]
        lost = [self.keys[block] for block in taken if block in self.keys]
        for block in taken:
            self.refs[block] = 1
            if block in self.keys:
                key = self.keys.pop(block)
                self.index[key].remove(block)
                if not self.index[key]:
                    del self.index[key]
        return taken, lost

    def touch(self, blocks: Iterable[int]) -> None:
        """Hold each block once more."""
        for block in blocks:
            self.refs[block] += 1
            if block in self.free:
                self.free.remove(block)

    def release(self, blocks: Iterable[int], *, enable_caching: bool) -> None:
        """Let go of each block; the ones without a key go to the front, the others to the back."""
        front, back = [], []
        for block in blocks:
            self.refs[block] -= 1
            if self.refs[block] == 0:
                (back if enable_caching and block in self.keys else front).append(block)
        self.free = front + self.free + back

    def cache(self, block: int, key: BlockKey) -> None:
        """Enter a block under a key, behind the ones that are there."""
        self.keys[block] = key
        self.index.setdefault(key, []).append(block)


def read(pool: BlockPool) -> Model:
    """Read a pool into a model."""
    model = Model(pool.num_blocks)
    model.free = list(pool.free_blocks())
    model.refs = {block: pool.ref_counts[block] for block in range(1, pool.num_blocks)}
    model.keys = {block: key for block, key in enumerate(pool.keys) if key is not None}
    model.index = {key: list(as_tuple(blocks)) for key, blocks in pool.cached.items()}
    return model


def rebuild(model: Model) -> BlockPool:
    """Make a pool that holds what the model holds, by another way."""
    opened = OpenPool(make_pool(model.num_blocks))
    opened.take(model.num_blocks - 1)
    for key, blocks in model.index.items():
        opened.cache(list(map(BlockId, blocks)), [key] * len(blocks))
    for block, count in model.refs.items():
        opened.touch([BlockId(block)] * (count - 1))
    for block in reversed(model.free):  # without caching each goes to the front
        opened.release([BlockId(block)], enable_caching=False)
    return opened.close()


def change(data: st.DataObject, opened: OpenPool, model: Model) -> None:
    """Do one thing to both."""
    held = [block for block, count in model.refs.items() for _ in range(count)]
    nameless = [block for block, count in model.refs.items() if count and block not in model.keys]
    match data.draw(st.sampled_from(["take", "touch", "release", "cache"])):
        case "take":
            num_blocks = data.draw(st.integers(0, len(model.free)))
            taken, lost = opened.take(num_blocks)

            assert model.take(num_blocks) == (list(taken), lost)
        case "touch":
            blocks = data.draw(st.lists(st.sampled_from(list(model.refs)), max_size=4))
            opened.touch(map(BlockId, blocks))
            model.touch(blocks)
        case "release" if held:
            blocks = data.draw(st.permutations(held))[: data.draw(st.integers(0, len(held)))]
            enable_caching = data.draw(st.booleans())
            opened.release(map(BlockId, blocks), enable_caching=enable_caching)
            model.release(blocks, enable_caching=enable_caching)
        case "cache" if nameless:
            block, key = data.draw(st.sampled_from(nameless)), data.draw(st.sampled_from(KEYS))
            opened.cache([BlockId(block)], [key])
            model.cache(block, key)


@given(st.data(), st.sampled_from([2, 3, 7, 12]))
def test_pool_is_a_list_with_counts_and_an_index(data: st.DataObject, num_blocks: int) -> None:
    """[K-POOL-01 to K-POOL-05] After any changes in any number of calls, a pool holds what the model does.

    The pool that a call opened is what it was, and a pool with the same contents is an equal value,
    however it came about.
    """
    pool, model = make_pool(num_blocks), Model(num_blocks)
    for _ in range(data.draw(st.integers(1, 4))):
        before = copy.deepcopy(pool)
        opened = OpenPool(pool)
        for _ in range(data.draw(st.integers(0, 5))):
            change(data, opened, model)
        closed = opened.close()

        assert before == pool
        assert model == read(closed)
        assert len(model.free) == closed.num_free_blocks
        assert sorted(model.free) == [block for block, count in model.refs.items() if count == 0]
        assert rebuild(model) == closed
        assert hash(rebuild(model)) == hash(closed)
        pool = closed


@given(st.data())
def test_opened_pool_answers_like_the_closed_one(data: st.DataObject) -> None:
    """First blocks, keys, usage and evictable blocks can be read within a call."""
    opened, model = OpenPool(make_pool(7)), Model(7)
    for _ in range(data.draw(st.integers(0, 8))):
        change(data, opened, model)
    blocks = [BlockId(block) for block in model.refs]

    assert [model.index.get(key, [None])[0] for key in KEYS] == [opened.first_block(key) for key in KEYS]
    assert [model.keys.get(block) for block in blocks] == [opened.key_of(block) for block in blocks]
    assert len(model.free) == opened.count_evictable(blocks)

    usage = opened.usage
    closed = opened.close()

    assert usage == closed.usage == 1 - len(model.free) / 6
    assert [model.index.get(key, [None])[0] for key in KEYS] == [closed.first_block(key) for key in KEYS]


@pytest.mark.parametrize("num_blocks", [2, 3, CHUNK_SIZE, CHUNK_SIZE + 1, 2 * CHUNK_SIZE + 7])
def test_new_pool_is_free_in_the_order_of_ids(num_blocks: int) -> None:
    """[K-POOL-01] All but the null block, whatever the size of the chunks that hold the list."""
    pool = make_pool(num_blocks)

    assert list(range(1, num_blocks)) == pool.free_blocks()
    assert num_blocks - 1 == pool.num_free_blocks
    assert 0.0 == pool.usage


def test_blocks_far_apart_are_linked() -> None:
    """[K-POOL-03] The list may go to and fro between the chunks that hold it."""
    num_blocks = 2 * CHUNK_SIZE
    opened = OpenPool(make_pool(num_blocks))
    opened.take(num_blocks - 1)
    order = [1, num_blocks - 1, CHUNK_SIZE, CHUNK_SIZE - 1, 2]
    opened.release(map(BlockId, order), enable_caching=True)
    opened.touch([BlockId(CHUNK_SIZE)])

    assert [1, num_blocks - 1, CHUNK_SIZE - 1, 2] == opened.close().free_blocks()


def test_null_block_is_never_handed_out() -> None:
    """[K-POOL-01] All blocks are taken, and block 0 is not among them."""
    opened = OpenPool(make_pool(5))
    taken, _ = opened.take(4)

    assert [1, 2, 3, 4] == list(taken)
    assert 0 == opened.num_free_blocks
    assert 1.0 == opened.usage


def test_released_blocks_go_to_the_front_or_to_the_back() -> None:
    """[K-POOL-03] Blocks 2 and 4 have a key; with caching off that does not count."""
    orders = []
    for enable_caching in (True, False):
        opened = OpenPool(make_pool(8))
        blocks, _ = opened.take(4)
        opened.cache([blocks[1], blocks[3]], KEYS[:2])
        opened.release(reversed(blocks), enable_caching=enable_caching)
        orders.append(opened.close().free_blocks())

    assert [[3, 1, 5, 6, 7, 4, 2], [4, 3, 2, 1, 5, 6, 7]] == orders


def test_block_cached_first_is_found_until_it_is_taken() -> None:
    """[K-POOL-02, K-POOL-04] Three blocks with one key are found in the order of their caching."""
    opened = OpenPool(make_pool(4))
    opened.take(3)
    opened.cache(list(map(BlockId, (2, 3, 1))), KEYS[:1] * 3)
    opened.release(map(BlockId, (2, 1, 3)), enable_caching=True)
    closed = opened.close()
    opened = OpenPool(closed)
    found = [closed.first_block(KEYS[0])]
    for _ in range(3):
        _, lost = opened.take(1)
        found.append(opened.first_block(KEYS[0]))

        assert KEYS[:1] == lost

    assert [2, 3, 3, None] == found


def test_taken_block_has_no_key() -> None:
    """[K-POOL-02] A cached block that is taken again has no key, in the transient and in the value."""
    opened = OpenPool(make_pool(2))
    (block_id,), _ = opened.take(1)
    opened.cache([block_id], KEYS[:1])
    opened.release([block_id], enable_caching=True)
    opened.take(1)

    assert opened.key_of(block_id) is None
    assert opened.close().keys[block_id] is None


def test_look_up_that_misses() -> None:
    """[K-POOL-04] A key that nothing is cached under gives None, in the transient and in the value."""
    pool = make_pool(3)

    assert OpenPool(pool).first_block(KEYS[0]) is None
    assert pool.first_block(KEYS[0]) is None


def test_index_that_is_cleared_leaves_the_order_alone() -> None:
    """[K-RESET-01] Keys are gone; counts and the free list are what they were."""
    opened = OpenPool(make_pool(5))
    opened.take(3)
    opened.cache(list(map(BlockId, (1, 2))), KEYS[:2])
    opened.release(map(BlockId, (2, 3)), enable_caching=True)
    pool = opened.close()
    expected = read(pool)
    expected.keys, expected.index = {}, {}

    assert expected == read(clear_prefix_index(pool))
    assert 2 == len(pool.cached)


def test_impossible_changes_are_our_bug() -> None:
    """Taking more than there is, releasing what nobody holds and caching twice cannot come from outside."""
    opened = OpenPool(make_pool(3))
    opened.take(1)
    opened.cache([BlockId(1)], KEYS[:1])

    with pytest.raises(OracleBug, match="2 blocks wanted, 1 free"):
        opened.take(2)
    with pytest.raises(OracleBug, match="block 2 was released more often"):
        opened.release([BlockId(2)], enable_caching=True)
    with pytest.raises(OracleBug, match="block 1 is cached already"):
        opened.cache([BlockId(1)], KEYS[1:2])
