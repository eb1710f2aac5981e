"""momentree: private training over ordinary epochs, with correlated noise in the momentum."""

from momentree._version import __version__
from momentree.errors import CheckError, InputError, MomentreeError, NoProofError, PrivacyLeakWarning
from momentree.plan import Plan

__all__ = [
    "CheckError",
    "InputError",
    "MomentreeError",
    "NoProofError",
    "Plan",
    "PrivacyLeakWarning",
    "__version__",
]
