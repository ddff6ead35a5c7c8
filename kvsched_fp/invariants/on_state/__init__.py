"""The invariants of one state, by what they are about: the table of contents.

| file              | subject                                                           |
|-------------------|-------------------------------------------------------------------|
| `queues.py`       | every live request waits or runs, in its place                    |
| `progress.py`     | the counters of one request, and what is in flight                |
| `ahead.py`        | what is expected of the steps in flight: placeholders, drafts     |
| `sessions.py`     | requests whose input comes in chunks                              |
| `grammars.py`     | requests whose output has to follow a grammar                     |
| `blocks.py`       | reference counts, the free list and the block tables              |
| `prefix_index.py` | which block is cached under which key                             |
| `counters.py`     | the counters of the scheduler, and what a configuration turns off |
"""

from kvsched_fp.invariants.entry import StateInvariant
from kvsched_fp.invariants.on_state.ahead import INVARIANTS as AHEAD
from kvsched_fp.invariants.on_state.blocks import INVARIANTS as BLOCKS
from kvsched_fp.invariants.on_state.counters import INVARIANTS as COUNTERS
from kvsched_fp.invariants.on_state.grammars import INVARIANTS as GRAMMARS
from kvsched_fp.invariants.on_state.prefix_index import INVARIANTS as PREFIX_INDEX
from kvsched_fp.invariants.on_state.progress import INVARIANTS as PROGRESS
from kvsched_fp.invariants.on_state.queues import INVARIANTS as QUEUES
from kvsched_fp.invariants.on_state.sessions import INVARIANTS as SESSIONS

STATE_INVARIANTS: tuple[StateInvariant, ...] = (
    *QUEUES,
    *PROGRESS,
    *AHEAD,
    *SESSIONS,
    *GRAMMARS,
    *BLOCKS,
    *PREFIX_INDEX,
    *COUNTERS,
)
"""In the order in which they are checked: later ones lean on earlier ones."""
