"""How noise is correlated: one strategy a file."""

from momentree.strategy.base import Instruction, Strategy, materialise
from momentree.strategy.build import STRATEGIES, make, rebuild
from momentree.strategy.choose import DEFAULT_BUDGET, Candidate, auto, compare
from momentree.strategy.error import iterate_rmse, momentum_rmse, rms_error
from momentree.strategy.setting import Setting

__all__ = [
    "DEFAULT_BUDGET",
    "STRATEGIES",
    "Candidate",
    "Instruction",
    "Setting",
    "Strategy",
    "auto",
    "compare",
    "iterate_rmse",
    "make",
    "materialise",
    "momentum_rmse",
    "rebuild",
    "rms_error",
]
