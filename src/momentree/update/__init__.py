"""What is done with the released stream: all of it post-processing."""

from momentree.update.base import State, Update
from momentree.update.filtered import Filtered
from momentree.update.iterate import Drawn, Exponential, Keeping, Uniform
from momentree.update.normalised import NormalisedMomentum
from momentree.update.optimizers import TorchOptimizer, adam, momentum
from momentree.update.schedule import Schedule

__all__ = [
    "Drawn",
    "Exponential",
    "Filtered",
    "Keeping",
    "NormalisedMomentum",
    "Schedule",
    "State",
    "TorchOptimizer",
    "Uniform",
    "Update",
    "adam",
    "momentum",
]
