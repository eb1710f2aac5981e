"""momentree: private training over ordinary epochs, with correlated noise in the momentum."""

from typing import TYPE_CHECKING, Any

from momentree._version import __version__
from momentree.errors import CheckError, InputError, MomentreeError, NoProofError, PrivacyLeakWarning
from momentree.plan import Plan

if TYPE_CHECKING:
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
    """`momentree.Run`, imported when it is first asked for: a run needs the plan, which is imported here."""
    if name == "Run":
        from momentree.training.loop import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
