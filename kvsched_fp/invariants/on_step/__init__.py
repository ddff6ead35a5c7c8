"""The invariants of one step, by what they are about: the table of contents.

| file             | subject                                                            |
|------------------|--------------------------------------------------------------------|
| `bookkeeping.py`| what every event moves: counters, the steps in flight, finished ids |
| `batch.py`      | the rows of a planned step, and the budgets that pay for them      |
| `rows.py`       | what the model runner is told about each row                       |
| `admission.py`  | who may enter the batch from the waiting queues                    |
| `preemption.py` | who loses its place                                                |
| `results.py`    | what a result changes, and what the clients are told               |
| `kv_events.py`  | the events of the prefix index                                     |
| `outside.py`    | requests that come and are ended, pauses, resets                   |
| `untouched.py`  | what an event is not about stays                                   |
"""

from kvsched_fp.invariants.entry import StepInvariant
from kvsched_fp.invariants.on_step.admission import INVARIANTS as ADMISSION
from kvsched_fp.invariants.on_step.batch import INVARIANTS as BATCH
from kvsched_fp.invariants.on_step.bookkeeping import INVARIANTS as BOOKKEEPING
from kvsched_fp.invariants.on_step.kv_events import INVARIANTS as KV_EVENTS
from kvsched_fp.invariants.on_step.outside import INVARIANTS as OUTSIDE
from kvsched_fp.invariants.on_step.preemption import INVARIANTS as PREEMPTION
from kvsched_fp.invariants.on_step.results import INVARIANTS as RESULTS
from kvsched_fp.invariants.on_step.rows import INVARIANTS as ROWS
from kvsched_fp.invariants.on_step.untouched import INVARIANTS as UNTOUCHED

STEP_INVARIANTS: tuple[StepInvariant, ...] = (
    *BOOKKEEPING,
    *BATCH,
    *ROWS,
    *ADMISSION,
    *PREEMPTION,
    *RESULTS,
    *KV_EVENTS,
    *OUTSIDE,
    *UNTOUCHED,
)
"""In the order in which they are checked: later ones lean on earlier ones."""
