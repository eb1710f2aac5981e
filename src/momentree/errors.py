"""Every failure that a user can cause: one base class, one line, with what was given, what is allowed, what to do.

No message may ever carry a data value, a key, or a gradient: callers pass public facts only.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable


class MomentreeError(Exception):
    """Base of every error that this package raises on purpose. `exit_code` is what the command line returns."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(str(message).split()))


class InputError(MomentreeError):
    """A value from outside cannot be used. The message says what was given, what is allowed, what to do."""


class NoProofError(InputError):
    """A combination that no proof covers. It is refused, never priced by something that looks similar."""


class CheckError(MomentreeError):
    """A check said no: a certificate that does not verify, a replay that differs."""

    exit_code = 1


class PrivacyLeakWarning(UserWarning):
    """Something taken as public was read from the private data, so the guarantee does not cover it."""


def nearest(given: str, options: Iterable[str]) -> str:
    """', did you mean X?' for a name that is close to an option, else the empty string."""
    close = difflib.get_close_matches(str(given).lower(), list(options), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def one_of(name: str, given: object, options: Iterable[str]) -> str:
    """`given`, if it is one of the options; otherwise one line that lists them and suggests the nearest."""
    options = list(options)
    if not isinstance(given, str) or given not in options:
        hint = nearest(str(given), options)
        raise InputError(f"{name} {given!r} is unknown: choose one of {', '.join(options)}{hint}")
    return given


def number(
    name: str,
    given: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    do: str = "",
) -> float:
    """`given` as a finite float within the bounds, or one line that says what is allowed and what to do."""
    bounds = []
    if above is not None:
        bounds.append(f"above {above:g}")
    if at_least is not None:
        bounds.append(f"at least {at_least:g}")
    if below is not None:
        bounds.append(f"below {below:g}")
    if at_most is not None:
        bounds.append(f"at most {at_most:g}")
    allowed = " and ".join(bounds) or "a finite number"
    advice = f"; {do}" if do else ""
    try:
        if isinstance(given, bool):
            raise TypeError
        value = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise InputError(f"{name} {given!r} is not a number: give {allowed}{advice}") from None
    if not math.isfinite(value):
        raise InputError(f"{name} {value} is not finite: give {allowed}{advice}")
    inside = (
        (above is None or value > above)
        and (at_least is None or value >= at_least)
        and (below is None or value < below)
        and (at_most is None or value <= at_most)
    )
    if not inside:
        raise InputError(f"{name} {value:g} is out of range: give {allowed}{advice}")
    return value


def whole(name: str, given: object, *, at_least: int = 1, at_most: int | None = None, do: str = "") -> int:
    """`given` as an integer within the bounds, or one line that says what is allowed and what to do."""
    value = number(name, given, at_least=at_least, at_most=at_most, do=do)
    if value != int(value):
        raise InputError(f"{name} {value:g} is not a whole number: give one of at least {at_least}")
    return int(value)
