"""The kinds of identifier, kept apart by name so that a type checker can tell them from each other."""

from typing import NewType

RequestId = NewType("RequestId", str)
"""A client's name for a request, unique among the live ones."""

BlockId = NewType("BlockId", int)
"""An index into the block pool; 0 is the null block."""

BlockHash = NewType("BlockHash", bytes)
"""The hash of one full block of tokens and of everything before it."""

BlockKey = NewType("BlockKey", bytes)
"""A `BlockHash` with its group index behind it (4 bytes, big endian): a key of the prefix index."""

StepId = NewType("StepId", int)
"""The number of a call of `schedule()`, from 1."""
