"""All mutants, by what they are faults in."""

from tests.mutants.mutant import Mutant
from tests.mutants.planted.admission import ADMISSION
from tests.mutants.planted.blocks import BLOCKS
from tests.mutants.planted.outside import OUTSIDE
from tests.mutants.planted.planning import PLANNING
from tests.mutants.planted.requests import REQUESTS
from tests.mutants.planted.results import RESULTS
from tests.mutants.planted.steps import STEPS

MUTANTS: tuple[Mutant, ...] = (*PLANNING, *ADMISSION, *STEPS, *RESULTS, *BLOCKS, *REQUESTS, *OUTSIDE)
"""In the order of the files."""
