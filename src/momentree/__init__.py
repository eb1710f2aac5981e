"""momentree: private training over ordinary epochs, with correlated noise in the momentum."""

from typing import TYPE_CHECKING, Any

from momentree._version import __version__
from momentree.errors import CheckError, InputError, MomentreeError, NoProofError, PrivacyLeakWarning

if TYPE_CHECKING:
    from momentree.plan import Plan
    from momentree.training.loop import Run

__all__ = [
    "CheckError",
    "InputError",
    "MomentreeError",
    "NoProofError",
    "Plan",
    "PrivacyLeakWarning",
    "Run",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """`Plan` and `Run`, imported when they are first asked for: torch takes seconds, and `--help` needs none."""
    if name == "Plan":
        from momentree.plan import Plan

        return Plan
    if name == "Run":
        from momentree.training.loop import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
