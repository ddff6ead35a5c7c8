"""The invariants of one step, by what they are about: the table of contents.

| file              | subject                                                              |
|-------------------|----------------------------------------------------------------------|
| `bookkeeping.py`  | what every event moves: counters, the steps in flight, finished ids  |
| `budgets.py`      | what pays for the rows of a planned step                             |
| `batch.py`        | the rows of a planned step                                           |
| `rows.py`         | what the model runner is told about each row                         |
| `drafts.py`       | the drafts of a planned step                                         |
| `overlap.py`      | steps that are planned while others are in flight                    |
| `admission.py`    | who may enter the batch from the waiting queues                      |
| `preemption.py`   | who loses its place                                                  |
| `holders.py`      | those who wait with blocks in hand                                   |
| `results.py`      | what a result changes, and what the clients are told                 |
| `stops.py`        | where an output ends, and why                                        |
| `verification.py` | what came of drafts                                                  |
| `kv_events.py`    | the events of the prefix index                                       |
| `outside.py`      | requests that come and are ended, pauses, resets                     |
| `grammars.py`     | how a request gets its grammar, and what that does not allow         |
| `proposals.py`    | drafts that come from outside                                        |
| `sessions.py`     | what the input of a session changes, and when it goes on or ends     |
| `story.py`        | what happens to requests is noted and told                           |
| `figures.py`      | what is counted about the prefix cache                               |
| `untouched.py`    | what an event is not about stays                                     |

`brought.py` reads the result of a row for those that need it.
"""

from kvsched_fp.invariants.entry import StepInvariant
from kvsched_fp.invariants.on_step.admission import INVARIANTS as ADMISSION
from kvsched_fp.invariants.on_step.batch import INVARIANTS as BATCH
from kvsched_fp.invariants.on_step.bookkeeping import INVARIANTS as BOOKKEEPING
from kvsched_fp.invariants.on_step.budgets import INVARIANTS as BUDGETS
from kvsched_fp.invariants.on_step.drafts import INVARIANTS as DRAFTS
from kvsched_fp.invariants.on_step.figures import INVARIANTS as FIGURES
from kvsched_fp.invariants.on_step.grammars import INVARIANTS as GRAMMARS
from kvsched_fp.invariants.on_step.holders import INVARIANTS as HOLDERS
from kvsched_fp.invariants.on_step.kv_events import INVARIANTS as KV_EVENTS
from kvsched_fp.invariants.on_step.outside import INVARIANTS as OUTSIDE
from kvsched_fp.invariants.on_step.overlap import INVARIANTS as OVERLAP
from kvsched_fp.invariants.on_step.preemption import INVARIANTS as PREEMPTION
from kvsched_fp.invariants.on_step.proposals import INVARIANTS as PROPOSALS
from kvsched_fp.invariants.on_step.results import INVARIANTS as RESULTS
from kvsched_fp.invariants.on_step.rows import INVARIANTS as ROWS
from kvsched_fp.invariants.on_step.sessions import INVARIANTS as SESSIONS
from kvsched_fp.invariants.on_step.stops import INVARIANTS as STOPS
from kvsched_fp.invariants.on_step.story import INVARIANTS as STORY
from kvsched_fp.invariants.on_step.untouched import INVARIANTS as UNTOUCHED
from kvsched_fp.invariants.on_step.verification import INVARIANTS as VERIFICATION

STEP_INVARIANTS: tuple[StepInvariant, ...] = (
    *BOOKKEEPING,
    *BUDGETS,
    *BATCH,
    *ROWS,
    *DRAFTS,
    *OVERLAP,
    *ADMISSION,
    *PREEMPTION,
    *HOLDERS,
    *RESULTS,
    *STOPS,
    *VERIFICATION,
    *KV_EVENTS,
    *OUTSIDE,
    *GRAMMARS,
    *PROPOSALS,
    *SESSIONS,
    *STORY,
    *FIGURES,
    *UNTOUCHED,
)
"""In the order in which they are checked: later ones lean on earlier ones."""
