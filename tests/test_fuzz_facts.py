"""`record.json`, `plan.toml` and `certificate.json` with random damage: read, or refused by the project's own error.

By default a slice; `--verify` goes on for `MOMENTREE_FUZZ_SECONDS` (300) each, with fresh seeds.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from data.test_fuzz import EDIT, damaged
from momentree.certificate import RunFacts, certificate, run_facts_dict, verify
from momentree.errors import MomentreeError
from momentree.plan import Plan
from momentree.plan_file import plan_text, read_plan_facts
from momentree.report.page import page
from momentree.report.record import checksum, read_record, write_record

SECONDS = float(os.environ.get("MOMENTREE_FUZZ_SECONDS", "300"))
PLAN = Plan(examples=20, batch_size=5, epochs=1, epsilon=1.0, delta=1e-3, strategy="identity")
RUN = RunFacts(steps_done=4, finished=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def attempt(action) -> None:
    """It works, or it says why not by the project's own error (whose message is one line by construction)."""
    with contextlib.suppress(MomentreeError):
        action()


def damaged_plan(folder: Path, edits) -> None:
    path = folder / "plan.toml"
    path.write_bytes(damaged(plan_text(PLAN).encode(), edits))
    attempt(lambda: Plan(**read_plan_facts(path)).to_dict())


def damaged_record(folder: Path, edits) -> None:
    write_record(folder, {"plan": PLAN.request.facts(), "run": run_facts_dict(RUN)})
    path = folder / "record.json"
    path.write_bytes(damaged(path.read_bytes(), edits))
    attempt(lambda: page(read_record(folder)))


SUBJECTS = {"plan": damaged_plan, "record": damaged_record}


def run(check, examples: int, chosen: int = 0) -> None:
    """Both subjects, through hypothesis, with few enough rounds for a default run."""
    settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(seed(chosen)(check))()  # fmt: skip


@pytest.mark.parametrize("name", SUBJECTS)
def test_damaged_bytes(tmp_path: Path, name: str) -> None:
    run(given(st.lists(EDIT, min_size=1, max_size=5))(lambda edits: SUBJECTS[name](tmp_path, edits)), 60)


@pytest.mark.verify
@pytest.mark.parametrize("name", SUBJECTS)
def test_damaged_bytes_for_long(tmp_path: Path, name: str) -> None:
    end, round_, tried = time.monotonic() + SECONDS, int(time.time()), 0

    def check(edits) -> None:
        nonlocal tried
        tried += 1
        SUBJECTS[name](tmp_path, edits)

    while time.monotonic() < end:
        run(given(st.lists(EDIT, min_size=1, max_size=5))(check), 100, round_)
        round_ += 1
    print(f"{name}: {tried} damaged files, {SECONDS:g} s")


def test_facts_of_any_type_are_refused_or_verified() -> None:
    """A record whose checksum was made anew, with values of any kind where facts were."""
    promise = certificate(PLAN, RUN)
    plan_names, run_names = sorted(PLAN.request.facts()), sorted(run_facts_dict(RUN))

    def check(part: str, name: str, value: object) -> None:
        record = {"plan": PLAN.request.facts(), "run": run_facts_dict(RUN)}
        record[part][name] = value
        text = json.dumps(record)
        assert len(checksum(json.loads(text))) == 64
        attempt(lambda: verify(json.loads(text), promise))

    both = st.one_of(
        st.tuples(st.just("plan"), st.sampled_from(plan_names)), st.tuples(st.just("run"), st.sampled_from(run_names))
    )
    run(given(both, VALUES)(lambda where, value: check(*where, value)), 150)
