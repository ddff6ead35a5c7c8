"""The kit for testing somebody's scheduler against this package; needs the extra `testing`.

    class TestMine(scheduler_machine(MyAdapter()).TestCase): ...

    features < adapter < pure, subprocess_adapter      what a scheduler under test is
    strategies                                         worlds, requests and the events that make sense
    duel < parting < story, live_judge                 both side by side, and where they part
    machine < checking < plugin                        Hypothesis, a test case, and pytest

`specs/testing.md` is the manual.
"""

from kvsched_fp.testing.adapter import Adapter, AdapterError, CallAdapter
from kvsched_fp.testing.checking import check_scheduler, scheduler_machine
from kvsched_fp.testing.features import EVERYTHING, Feature
from kvsched_fp.testing.machine import SchedulerMachine
from kvsched_fp.testing.parting import Parting, SchedulersDiffer
from kvsched_fp.testing.profiles import PROFILES, Profile
from kvsched_fp.testing.pure import PureAdapter
from kvsched_fp.testing.subprocess_adapter import SubprocessAdapter

__all__ = [
    "EVERYTHING",
    "PROFILES",
    "Adapter",
    "AdapterError",
    "CallAdapter",
    "Feature",
    "Parting",
    "Profile",
    "PureAdapter",
    "SchedulerMachine",
    "SchedulersDiffer",
    "SubprocessAdapter",
    "check_scheduler",
    "scheduler_machine",
]
