"""Full attention keeps every block, and finds a prefix from its front."""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import InvalidConfig
from kvsched_fp.ids import BlockHash, BlockId, BlockKey
from kvsched_fp.kvcache.groups.full import FullAttentionSpec
from kvsched_fp.kvcache.hashing import make_block_keys
from tests.unit.refusal import refused

HASHES = tuple(BlockHash(bytes([number])) for number in range(5))


@attrs.frozen
class Index:
    """A prefix index that holds the blocks `held[group]`; block i of group g has the id 10 * g + i."""

    held: Sequence[set[int]]

    def first_block(self, key: BlockKey) -> BlockId | None:
        """Look a key up."""
        for group, indices in enumerate(self.held):
            keys = list(make_block_keys(HASHES, group))
            if key in keys and keys.index(key) in indices:
                return BlockId(10 * group + keys.index(key))
        return None


@given(st.lists(st.sets(st.integers(0, 4)), min_size=1, max_size=3), st.integers(0, 24))
def test_hit_is_the_longest_run_that_all_groups_hold(held: list[set[int]], max_length: int) -> None:
    """[K-HIT-01] It ends before the first block that is missing somewhere, and keeps to its limit."""
    common = set.intersection(*held) & set(range(max_length // 4))
    length = next(index for index in range(6) if index not in common)
    hit = FullAttentionSpec(block_size=4).find_longest_cache_hit(
        Index(held), HASHES, max_length, range(len(held))
    )

    assert tuple(tuple(10 * group + index for index in range(length)) for group in range(len(held))) == hit


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (64, 16)])
def test_every_begun_block_is_kept(num_tokens: int, num_blocks: int) -> None:
    """[K-TAB-01] The number of blocks is that of the tokens, rounded up."""
    assert num_blocks == FullAttentionSpec(block_size=4).num_blocks_for(num_tokens)


def test_block_may_hold_one_token() -> None:
    """Then there are as many blocks as tokens."""
    assert 3 == FullAttentionSpec(block_size=1).num_blocks_for(3)


@pytest.mark.parametrize("block_size", [0, -1, 1.0, True, None])
def test_bad_block_size_is_refused(block_size: int) -> None:
    """A block holds at least one token."""
    with refused(InvalidConfig, "block_size", block_size, ">= 1"):
        FullAttentionSpec(block_size=block_size)
