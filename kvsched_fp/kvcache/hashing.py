"""How a block of tokens is named.

Rules
-----
[K-HASH-01] A block's hash covers its tokens, its parent's hash and its extra keys, so that equal
    hashes mean an equal prefix from the first token on.
[K-HASH-02] The cache salt is an extra key of the first block only; the chain carries it on. An adapter,
    by name and path, is an extra key of every block.
[K-HASH-03] Only full blocks of known tokens have a hash.
[K-HASH-04] With `num_hash_lookahead_tokens`, a hash also covers so many tokens behind its block, which a
    drafter's part of the block depends on; there is none before those are known.

The hash function is a value in the configuration. The default is a BLAKE2 chain; an adapter hands in
one that gives the reference's own hashes.

Upstream: `v1/core/kv_cache_utils.py::hash_block_tokens`, `generate_block_hash_extra_keys`,
`get_request_block_hasher`.
"""

import functools
import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, cast, runtime_checkable

import attrs

from kvsched_fp.ids import BlockHash, BlockKey
from kvsched_fp.request import LoRA

ExtraKey: TypeAlias = tuple[str, ...]
"""One thing that tells blocks of equal tokens apart: where it comes from, and its values."""
ExtraKeys: TypeAlias = tuple[object, ...]
"""Everything that tells blocks of equal tokens apart: extra keys; with look-ahead, those (or None) as the
first item, and the tokens behind the block [K-HASH-04]."""


@runtime_checkable
class BlockHasher(Protocol):
    """A pure function from a block to its hash, as a value."""

    def hash_block(
        self,
        parent: BlockHash | None,
        token_ids: Sequence[int],
        extra_keys: ExtraKeys | None,
    ) -> BlockHash:
        """Name a full block [K-HASH-01]; `parent` is None for the first block of a request."""
        ...


@attrs.frozen
class Blake2BlockHasher:
    """The default hasher: 16 bytes of BLAKE2b over parent, token ids and extra keys."""

    def hash_block(
        self,
        parent: BlockHash | None,
        token_ids: Sequence[int],
        extra_keys: ExtraKeys | None,
    ) -> BlockHash:
        """Name a full block. Token ids are packed as little-endian signed 64-bit integers."""
        packed = struct.pack(f"<{len(token_ids)}q", *token_ids)
        digest = hashlib.blake2b(parent or _NO_PARENT, digest_size=16)
        digest.update(packed)
        if extra_keys is not None:
            digest.update(repr(extra_keys).encode())
        return BlockHash(digest.digest())


_NO_PARENT = bytes(16)


def extra_keys_of_block(
    block_index: int, cache_salt: str | None, lora: LoRA | None = None
) -> tuple[ExtraKey, ...] | None:
    """Give the extra keys of the block at `block_index`, or None [K-HASH-02]."""
    keys: list[ExtraKey] = [] if lora is None else [("lora", lora.name, lora.path)]
    if block_index == 0 and cache_salt:
        keys.append(("cache_salt", cache_salt))
    return tuple(keys) or None


def extend_block_hashes(
    hasher: BlockHasher,
    block_hashes: tuple[BlockHash, ...],
    token_ids: Sequence[int],
    first_position: int,
    block_size: int,
    cache_salt: str | None,
    lora: LoRA | None = None,
    num_lookahead_tokens: int = 0,
) -> tuple[BlockHash, ...]:
    """Append the hashes of the blocks that `token_ids` fill [K-HASH-03, K-HASH-04].

    `token_ids` are the known tokens from `first_position` on, which must be where the block after
    the last hashed one begins.
    """
    parent = block_hashes[-1] if block_hashes else None
    block_index = first_position // block_size
    new_hashes = []
    for start in range(0, len(token_ids) - num_lookahead_tokens - block_size + 1, block_size):
        end = start + block_size
        extra_keys: ExtraKeys | None = extra_keys_of_block(block_index, cache_salt, lora)
        if num_lookahead_tokens:
            extra_keys = (extra_keys, *token_ids[end : end + num_lookahead_tokens])
        parent = hasher.hash_block(parent, token_ids[start:end], extra_keys)
        new_hashes.append(parent)
        block_index += 1
    return (*block_hashes, *new_hashes)


def make_block_keys(block_hashes: Iterable[BlockHash], group_index: int) -> Iterator[BlockKey]:
    """Put the group index behind each hash, as the reference's prefix map does."""
    suffix = key_suffix(group_index)
    return cast("Iterator[BlockKey]", (block_hash + suffix for block_hash in block_hashes))


@functools.cache
def key_suffix(group_index: int) -> bytes:
    """Give what stands behind the hash in the keys of a group."""
    return group_index.to_bytes(4, "big")


def split_block_key(key: BlockKey) -> tuple[BlockHash, int]:
    """Take a key apart into the hash and the group index."""
    return BlockHash(key[:-4]), int.from_bytes(key[-4:], "big")
