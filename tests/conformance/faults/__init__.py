"""Faults planted into the reference, by area: each must be found, or the suite proves little.

They are slips that somebody could make while re-implementing the scheduler; that they sit in the reference
and not in ours makes no difference to the comparison, and leaves our code alone. None makes the reference
crash at once: what a crash says is not told apart.

Importing this package imports vLLM.
"""

from collections.abc import Mapping

from .admission import ADMISSION
from .allocation import ALLOCATION
from .budgets import BUDGETS
from .client_outputs import CLIENT_OUTPUTS
from .holding import HOLDING
from .lifecycle import LIFECYCLE
from .planting import Fault
from .pool import POOL
from .preemption import PREEMPTION
from .prefix_index import PREFIX_INDEX
from .queues import QUEUES
from .results import RESULTS
from .step_outputs import STEP_OUTPUTS
from .stopping import STOPPING

AREAS: Mapping[str, tuple[Fault, ...]] = {
    "budgets and the running phase": BUDGETS,
    "preemption": PREEMPTION,
    "admission": ADMISSION,
    "holding and pausing": HOLDING,
    "queues": QUEUES,
    "allocation and watermark": ALLOCATION,
    "block pool and free order": POOL,
    "prefix index and hashes": PREFIX_INDEX,
    "taking in results": RESULTS,
    "stopping": STOPPING,
    "lifecycle and resets": LIFECYCLE,
    "output of a step": STEP_OUTPUTS,
    "what clients are told": CLIENT_OUTPUTS,
}
"""All faults, by the part of the machine that they are about."""

FAULTS: Mapping[str, Fault] = {fault.name: fault for faults in AREAS.values() for fault in faults}
"""All faults, by their names."""
