"""What blocks are called in a trace.

Only key-value events show the hash of a block. A scheduler that names blocks as `Blake2BlockHasher` does
is compared as it is. Any other hash function makes its traces with the hasher `opaque`: then names mean
nothing but themselves, and a trace is right if renaming makes it so, one name for one block throughout.
"""

from collections.abc import Sequence
from typing import Any

import attrs

from kvsched_fp.ids import BlockHash
from kvsched_fp.kvcache.hashing import Blake2BlockHasher, ExtraKeys

_BLAKE2 = Blake2BlockHasher()


@attrs.frozen
class OpaqueBlockHasher:
    """A hash function that this package does not know; it names blocks by its own instead."""

    def hash_block(
        self, parent: BlockHash | None, token_ids: Sequence[int], extra_keys: ExtraKeys | None
    ) -> BlockHash:
        """Name a full block."""
        return _BLAKE2.hash_block(parent, token_ids, extra_keys)


class BlockNames:
    """Which recorded name stands for which of ours, as far as a trace has told.

    A block keeps its entry when it is removed: the same content gets the same name again.
    """

    def __init__(self) -> None:
        self._recorded_of_ours: dict[str, str] = {}
        self._ours_of_recorded: dict[str, str] = {}

    def translate(self, ours: dict[str, Any], recorded: dict[str, Any]) -> None:
        """Write the recorded names over ours in `ours`, which is an encoded `Emitted` like `recorded`.

        A pair of names that stand at the same place for the first time belongs together from then on.
        """
        for our_event, their_event in zip(ours["kv_events"], recorded["kv_events"], strict=False):
            if our_event["kind"] != their_event["kind"] or "block_hashes" not in our_event:
                continue
            names = zip(our_event["block_hashes"], their_event["block_hashes"], strict=False)
            for our_name, their_name in names:
                self._learn(our_name, their_name)
            our_event["block_hashes"] = [self._rename(name) for name in our_event["block_hashes"]]
            if our_event.get("parent_block_hash") is not None:
                our_event["parent_block_hash"] = self._rename(our_event["parent_block_hash"])

    def _learn(self, our_name: str, their_name: str) -> None:
        if our_name not in self._recorded_of_ours and their_name not in self._ours_of_recorded:
            self._recorded_of_ours[our_name] = their_name
            self._ours_of_recorded[their_name] = our_name

    def _rename(self, our_name: str) -> str:
        return self._recorded_of_ours.get(our_name, our_name)
