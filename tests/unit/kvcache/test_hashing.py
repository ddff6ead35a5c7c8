"""The names of blocks are a chain."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsched_fp import LoRA
from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.hashing import (
    Blake2BlockHasher,
    BlockHasher,
    extend_block_hashes,
    extra_keys_of_block,
    make_block_keys,
    split_block_key,
)

HASHER = Blake2BlockHasher()
TOKENS = st.lists(st.integers(0, 2), max_size=12)
SALTS = st.sampled_from([None, "x", "y"])
SIZES = st.integers(1, 4)


def hashes_of(tokens: list[int], block_size: int, salt: str | None = None) -> tuple[BlockHash, ...]:
    """Hash a whole list of tokens."""
    return tuple(extend_block_hashes(HASHER, (), tokens, 0, block_size, salt))


@given(TOKENS, TOKENS, SIZES, SALTS, SALTS)
def test_equal_hash_means_equal_prefix(
    left: list[int], right: list[int], block_size: int, left_salt: str | None, right_salt: str | None
) -> None:
    """[K-HASH-01, K-HASH-02] Two blocks have one hash just if salt and all tokens up to them agree."""
    pairs = zip(
        hashes_of(left, block_size, left_salt), hashes_of(right, block_size, right_salt), strict=False
    )
    for index, (a, b) in enumerate(pairs):
        end = (index + 1) * block_size

        assert ((left_salt, left[:end]) == (right_salt, right[:end])) == (a == b)


@given(TOKENS, SIZES, SALTS)
def test_hash_tells_where_a_block_stands(tokens: list[int], block_size: int, salt: str | None) -> None:
    """[K-HASH-01] No two blocks of one request have the same hash, even with equal tokens."""
    hashes = hashes_of(tokens, block_size, salt)

    assert len(hashes) == len(set(hashes))


@given(TOKENS, SIZES)
def test_only_full_blocks_have_a_hash(tokens: list[int], block_size: int) -> None:
    """[K-HASH-03] There is one hash per full block."""
    assert len(tokens) // block_size == len(hashes_of(tokens, block_size))


@given(TOKENS, st.integers(0, 12), SIZES, SALTS)
def test_chain_can_be_extended(tokens: list[int], cut: int, block_size: int, salt: str | None) -> None:
    """Hashing in two goes, from the first block without a hash on, gives what one go gives."""
    first = extend_block_hashes(HASHER, (), tokens[:cut], 0, block_size, salt)
    num_hashed = len(first) * block_size
    both = extend_block_hashes(HASHER, first, tokens[num_hashed:], num_hashed, block_size, salt)

    assert hashes_of(tokens, block_size, salt) == tuple(both)


def test_salt_is_a_key_of_the_first_block_only() -> None:
    """[K-HASH-02] The chain carries the salt on, so the later blocks have no extra key; "" is no salt."""
    assert (("cache_salt", "s"),) == extra_keys_of_block(0, "s")
    assert extra_keys_of_block(1, "s") is None
    assert extra_keys_of_block(0, None) is None
    assert extra_keys_of_block(0, "") is None


LORA = LoRA("fine", 7, "/adapters/fine")


def test_adapter_is_a_key_of_every_block() -> None:
    """[K-HASH-02] By name and path, in front of the salt; its number is the engine's business."""
    key = ("lora", "fine", "/adapters/fine")

    assert (key, ("cache_salt", "s")) == extra_keys_of_block(0, "s", LORA)
    assert (key,) == extra_keys_of_block(1, "s", LORA)
    assert extra_keys_of_block(1, None, LORA) == extra_keys_of_block(1, None, LoRA("fine", 8, LORA.path))


@given(TOKENS, SIZES)
def test_blocks_of_different_adapters_are_different(tokens: list[int], block_size: int) -> None:
    """[K-HASH-01, K-HASH-02] Moved adapters included: no block of the one is found for the other."""
    loras = [None, LORA, LoRA("fine", 7, "/elsewhere"), LoRA("coarse", 7, "/adapters/fine")]
    chains = [extend_block_hashes(HASHER, (), tokens, 0, block_size, None, lora) for lora in loras]

    assert sum(map(len, chains)) == len({block_hash for chain in chains for block_hash in chain})


LOOKAHEADS = st.integers(1, 3)


@given(TOKENS, TOKENS, SIZES, LOOKAHEADS)
def test_hash_covers_the_tokens_behind_its_block(
    left: list[int], right: list[int], block_size: int, num_lookahead: int
) -> None:
    """[K-HASH-04] Two blocks have one hash just if all agrees up to the last token that is covered."""
    chains = [
        extend_block_hashes(HASHER, (), tokens, 0, block_size, None, None, num_lookahead)
        for tokens in (left, right)
    ]
    for index, (a, b) in enumerate(zip(*chains, strict=False)):
        end = (index + 1) * block_size + num_lookahead

        assert (left[:end] == right[:end]) == (a == b)


@given(TOKENS, SIZES, LOOKAHEADS)
def test_block_has_no_hash_before_what_it_covers_is_known(
    tokens: list[int], block_size: int, num_lookahead: int
) -> None:
    """[K-HASH-04] The last full block may have to wait for the tokens behind it."""
    chain = extend_block_hashes(HASHER, (), tokens, 0, block_size, None, None, num_lookahead)

    assert max(len(tokens) - num_lookahead, 0) // block_size == len(chain)


@given(TOKENS, st.integers(0, 12), SIZES, LOOKAHEADS)
def test_chain_that_looks_ahead_can_be_extended(
    tokens: list[int], cut: int, block_size: int, num_lookahead: int
) -> None:
    """[K-HASH-04] From the first block without a hash on."""
    first = extend_block_hashes(HASHER, (), tokens[:cut], 0, block_size, None, None, num_lookahead)
    start = len(first) * block_size
    both = extend_block_hashes(HASHER, first, tokens[start:], start, block_size, None, None, num_lookahead)

    assert extend_block_hashes(HASHER, (), tokens, 0, block_size, None, None, num_lookahead) == both


def test_default_hash_is_a_blake2_of_parent_tokens_and_keys() -> None:
    """The hash can be computed by anybody: 16 bytes over the parent (or zeros), the tokens and the keys."""
    tokens = (5).to_bytes(8, "little") + (2**63 - 1).to_bytes(8, "little")
    first = hashlib.blake2b(bytes(16) + tokens + b"(('cache_salt', 's'),)", digest_size=16).digest()
    second = hashlib.blake2b(first + tokens, digest_size=16).digest()

    assert (first, second) == hashes_of([5, 2**63 - 1] * 2, 2, "s")


@given(st.lists(st.binary(min_size=1, max_size=16).map(BlockHash)), st.integers(0, 2**32 - 1))
def test_key_is_hash_and_group(block_hashes: list[BlockHash], group_index: int) -> None:
    """A key can be taken apart again, and ends with the group in 4 bytes."""
    keys = list(make_block_keys(block_hashes, group_index))

    assert [(block_hash, group_index) for block_hash in block_hashes] == list(map(split_block_key, keys))
    assert all(group_index.to_bytes(4, "big") == key[-4:] for key in keys)


@pytest.mark.parametrize(("value", "is_hasher"), [(HASHER, True), (object(), False), (None, False)])
def test_anything_with_the_method_is_a_hasher(value: object, is_hasher: bool) -> None:
    """The configuration can tell a hasher from something else."""
    assert is_hasher == isinstance(value, BlockHasher)


def test_default_hasher_is_a_value() -> None:
    """Two default hashers are equal, so that configurations with them are."""
    assert HASHER == Blake2BlockHasher()
    assert hash(Blake2BlockHasher()) == hash(HASHER)
