"""An engine's own code, asked: what does this release make of these sizes?

Only the functions that decide on sizes run, pulled out of an unpacked wheel; neither the engine nor torch is
installed or imported, and what stands for the hardware is in `stand_ins`.
"""

from moe_align.verify.stand_ins import Machine, Unlinked
from moe_align.verify.tables import MACHINES, MORE_MACHINES, PAIRS, Row, answers
from moe_align.verify.wheels import releases, unpack

__all__ = [
    "MACHINES",
    "MORE_MACHINES",
    "PAIRS",
    "Machine",
    "Row",
    "Unlinked",
    "answers",
    "releases",
    "unpack",
]
