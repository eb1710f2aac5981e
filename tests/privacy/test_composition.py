"""Several releases together."""

from __future__ import annotations

import numpy as np
import pytest

from momentree.errors import InputError, NoProofError
from momentree.order import Shape, make
from momentree.privacy.account import Bracket
from momentree.privacy.account_of import account
from momentree.privacy.compose import compose, same_terms
from momentree.privacy.events import Release
from momentree.privacy.gaussian import GaussianAccount, delta_of
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree


class Other:
    """An account that nobody here can compose."""

    mu = None
    method = "something else"
    failure_probability = 0.0

    def epsilon(self, delta):
        return Bracket(0.0, 0.0, 0.0)

    def delta(self, epsilon):
        return Bracket(0.0, 0.0, 0.0)


def test_gaussian_runs_compose_exactly():
    """Two runs in a row are one run of both strategies, block by block: the same μ by another way."""
    shape = Shape(40, 10, 3)
    one = account(Release(Tree(12, 0.9), make("fixed", shape), "zero-out", 2.0))
    both = account(Release(Restarted(Tree(12, 0.9), 2, None), make("fixed", Shape(40, 10, 6)), "zero-out", 2.0))
    assert compose([one, one]).mu == pytest.approx(both.mu, rel=1e-12)
    assert compose([one]) is one
    parts = [account(Release(Identity(4 * e), make("fixed", Shape(40, 10, e)), "zero-out", 3.0)) for e in (1, 2, 5)]
    whole = account(Release(Identity(32), make("fixed", Shape(40, 10, 8)), "zero-out", 3.0))
    assert compose(parts).mu == pytest.approx(whole.mu, rel=1e-12)
    assert compose(parts).epsilon(1e-5).upper == pytest.approx(whole.epsilon(1e-5).upper, rel=1e-9)
    assert compose(parts).epsilon(1e-5).upper < sum(p.epsilon(1e-5 / 3).upper for p in parts)


def test_composition_by_convolution_of_losses():
    mus = (0.5, 0.8, 1.1)
    found = compose([GaussianAccount(m) for m in mus])
    rng = np.random.default_rng(0)
    loss = sum(rng.normal(m * m / 2, m, 500_000) for m in mus)
    assert np.maximum(0, -np.expm1(1.5 - loss)).mean() == pytest.approx(found.delta(1.5).estimate, rel=0.02)
    assert delta_of(max(mus), 1.5) < 0.7 * found.delta(1.5).estimate


def test_what_has_no_loss_distribution_is_refused():
    with pytest.raises(NoProofError, match="something else"):
        compose([GaussianAccount(1.0), Other()])
    with pytest.raises(InputError, match="nothing"):
        compose([])


def test_budgets_add_up_for_one_adjacency_and_one_unit():
    same_terms([("zero-out", 1, None), ("zero-out", 1, None)])
    same_terms([("zero-out", 3, "person"), ("zero-out", 3, "person")])
    for other in (("replace-one", 1, None), ("zero-out", 3, None), ("zero-out", 1, "person")):
        with pytest.raises(InputError, match=r"one (adjacency|unit)"):
            same_terms([("zero-out", 1, None), other])
