"""Supervision: boxes in which commands run, and out of which nothing gets.

    with Zygote() as zygote:
        box = zygote.box()
        tree = box.spawn(["make", "-j8"], stdout=PIPE)
        tree.wait()
        receipt = box.stop()

It knows nothing of agents and imports the standard library only.
"""

from .box import GRACE, Box
from .contain import RUNGS
from .environment import allow
from .ledger import Ledger, state_dir
from .receipt import Ended, Receipt
from .tree import NULL, PIPE, PTY, Tree
from .zygote import Zygote

__all__ = [
    "GRACE",
    "NULL",
    "PIPE",
    "PTY",
    "RUNGS",
    "Box",
    "Ended",
    "Ledger",
    "Receipt",
    "Tree",
    "Zygote",
    "allow",
    "state_dir",
]
