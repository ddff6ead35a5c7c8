"""A model checker: every history of a small world, breadth first, every invariant checked.

    world < situation < moves               what may happen
    canonical < standstill, goals < shard   forms, and what is looked for
    crew < search                           the search, in one process or several
    presets                                 worlds that come with it
    story                                   a counterexample to read

`specs/explorer.md` says what is searched, and why two situations of one form behave alike.
"""

from kvsched_fp.explore.findings import (
    Counterexample,
    Ending,
    Exploration,
    Fault,
    Limits,
    SearchProgress,
)
from kvsched_fp.explore.search import explore
from kvsched_fp.explore.world import RequestKind, World

__all__ = [
    "Counterexample",
    "Ending",
    "Exploration",
    "Fault",
    "Limits",
    "RequestKind",
    "SearchProgress",
    "World",
    "explore",
]
