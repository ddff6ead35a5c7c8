"""The invariants of a whole run, by what they are about: the table of contents.

| file            | subject                                                                |
|-----------------|------------------------------------------------------------------------|
| `lives.py`      | every request ends once, and everybody is told so once                 |
| `deliveries.py` | what a client was told, from the first token on                        |
| `accounts.py`   | what became of the tokens that were scheduled                          |
| `hands.py`      | which blocks the model runner was told to use for whom                 |
| `mirror.py`     | the prefix index as somebody outside knows it                          |
| `turns.py`      | who got in before whom                                                 |

`endings.py` reads for them who came, who was thrown out and who ended in a step.
"""

from kvsched_fp.invariants.entry import RunInvariant
from kvsched_fp.invariants.on_run.accounts import INVARIANTS as ACCOUNTS
from kvsched_fp.invariants.on_run.deliveries import INVARIANTS as DELIVERIES
from kvsched_fp.invariants.on_run.hands import INVARIANTS as HANDS
from kvsched_fp.invariants.on_run.lives import INVARIANTS as LIVES
from kvsched_fp.invariants.on_run.mirror import INVARIANTS as MIRROR
from kvsched_fp.invariants.on_run.turns import INVARIANTS as TURNS

RUN_INVARIANTS: tuple[RunInvariant, ...] = (
    *LIVES,
    *DELIVERIES,
    *ACCOUNTS,
    *HANDS,
    *MIRROR,
    *TURNS,
)
"""In the order in which they are checked."""
