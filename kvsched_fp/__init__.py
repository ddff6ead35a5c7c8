"""An executable specification of vLLM's V1 scheduler: a pure state machine over immutable values.

    state = initial_state(SchedulerConfig(...))
    state = add_request(state, Request(...))
    state, output = schedule(state)
    state = update(state, StepResult(step_id=output.step_id, sampled_token_ids={...}))
    state.emitted  # what the update tells the clients

`step(state, event)` is the same as one function over the closed event alphabet. Start reading at
`specs/README.md`.
"""

from kvsched_fp.bitmask import GrammarRows, grammar_rows
from kvsched_fp.config import (
    DEFAULT,
    MINIMAL,
    Quirk,
    RunnerType,
    SchedulerConfig,
    SchedulingPolicy,
    SpecDecodeMetricsLevel,
)
from kvsched_fp.drafting import update_drafts, update_drafts_in_flight
from kvsched_fp.errors import (
    InvalidConfig,
    InvalidEvent,
    InvariantViolation,
    KvschedError,
    OracleBug,
    TraceError,
    WorkloadError,
)
from kvsched_fp.events import (
    AddRequest,
    Event,
    FinishRequests,
    GrammarFailed,
    GrammarReady,
    PauseState,
    ResetPrefixCache,
    Schedule,
    SetPauseState,
    StepResult,
    Update,
    UpdateDrafts,
    UpdateDraftsInFlight,
)
from kvsched_fp.explain import explain
from kvsched_fp.grammar import AutomatonGrammar, Grammar
from kvsched_fp.lifecycle import (
    add_request,
    fail_grammar,
    finish_requests,
    reset_prefix_cache,
    set_grammar,
    set_pause_state,
)
from kvsched_fp.machine import step
from kvsched_fp.outputs import Emitted, EngineOutput, Reason, SchedulerOutput
from kvsched_fp.progress import Progress
from kvsched_fp.request import (
    FinishReason,
    LoRA,
    RepetitionDetection,
    Request,
    RequestStatus,
    SamplingParams,
)
from kvsched_fp.schedule import schedule
from kvsched_fp.state import SchedulerState, initial_state
from kvsched_fp.update import update

__all__ = [
    "DEFAULT",
    "MINIMAL",
    "AddRequest",
    "AutomatonGrammar",
    "Emitted",
    "EngineOutput",
    "Event",
    "FinishReason",
    "FinishRequests",
    "Grammar",
    "GrammarFailed",
    "GrammarReady",
    "GrammarRows",
    "InvalidConfig",
    "InvalidEvent",
    "InvariantViolation",
    "KvschedError",
    "LoRA",
    "OracleBug",
    "PauseState",
    "Progress",
    "Quirk",
    "Reason",
    "RepetitionDetection",
    "Request",
    "RequestStatus",
    "ResetPrefixCache",
    "RunnerType",
    "SamplingParams",
    "Schedule",
    "SchedulerConfig",
    "SchedulerOutput",
    "SchedulerState",
    "SchedulingPolicy",
    "SetPauseState",
    "SpecDecodeMetricsLevel",
    "StepResult",
    "TraceError",
    "Update",
    "UpdateDrafts",
    "UpdateDraftsInFlight",
    "WorkloadError",
    "add_request",
    "explain",
    "fail_grammar",
    "finish_requests",
    "grammar_rows",
    "initial_state",
    "reset_prefix_cache",
    "schedule",
    "set_grammar",
    "set_pause_state",
    "step",
    "update",
    "update_drafts",
    "update_drafts_in_flight",
]
