"""Algorithm 2's joint account against brute force over places and nodes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from momentree.errors import InputError, NoProofError
from momentree.paper.compose import compose
from momentree.paper.reconstruction import reconstruction_weights
from momentree.paper.tree_sensitivity import joint_square
from momentree.privacy.families import account_of_families, calibrated_families, families, joint_mu
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS


@pytest.mark.parametrize("as_printed", [False, True])
def test_the_joint_mu_is_that_of_brute_force(as_printed):
    rng = np.random.default_rng(0)
    for _ in range(40):
        n, decay, rho = int(rng.integers(1, 7)), float(rng.choice([0.5, 0.9, 1.0])), float(rng.random())
        steps = int(rng.integers(1, 5 * n))
        members = families(TreeFull(steps, decay), n, rho, weights=tuple(rng.random(4) + 0.1), as_printed=as_printed)
        noise = {f.name: f.noise_multiplier for f in members}

        def scale(family, y, z, noise=noise, n=n):
            if not as_printed and (compose(1, z)[-1] != (y, z) if family == "r" else z - y >= n):
                return math.inf  # a node that is never made
            if family == "G":
                return noise["gradient-early"] if z <= 2 * n else noise["gradient"]
            return noise["anchor-difference" if family == "Delta" else "iterate-difference"]

        def term(family, t, rho=rho):
            return 1.0 if family == "G" else rho

        truth = math.sqrt(joint_square(n, steps, 1 - decay, term=term, scale=scale))
        assert joint_mu(members, n) == pytest.approx(truth, rel=1e-9)
        assert joint_mu(members, n) >= truth * (1 - 1e-12)
        assert joint_mu(members, n, "replace-one") == pytest.approx(2 * truth, rel=1e-9)
        assert joint_mu(members, n, rows=3) == pytest.approx(3 * truth, rel=1e-9)
        for family in members:  # each alone, and all at once no more than each at its own worst place
            alone = replace(family, noise_multiplier=1.0)
            assert joint_mu([alone], n) == pytest.approx(family.sensitivity.value, rel=1e-11)
        apart = math.hypot(*(joint_mu([f], n) for f in members if f.share))
        assert joint_mu(members, n) <= apart * (1 + 1e-12)


def test_the_papers_constants_leave_the_slack_that_was_measured():
    """E7: with δ_Δ corrected, the joint coefficient of z/2σ² is 0.73 at N = 4 and 0.46 at N = 128, 20 epochs."""
    for n, coefficient in ((4, 0.734), (128, 0.462)):
        members = families(TreeFull(20 * n, 1 - 1 / n), n, 1.0, as_printed=True)
        early, late = 3 * math.log2(n), 4 * 20 * math.log2(n)
        printed = [  # terms 2G against 4G√V, differences 2ηNL against 4ηNL√V: half a unit each
            replace(f, noise_multiplier=2 * math.sqrt(early if f.name == "gradient-early" else late)) for f in members
        ]
        assert joint_mu(printed, n) ** 2 == pytest.approx(coefficient, abs=5e-3)


def test_the_papers_reconstruction_reads_no_other_nodes():
    """Windows of G and Δ over the last n steps, prefixes of r: what Algorithm 4 never reads is not released."""
    for n in range(1, 14):
        for t in range(1, 5 * n + 1):
            for family, y, z in reconstruction_weights(alpha=0.1, gamma=0.3, t=t, steps_per_epoch=n):
                if family == "r":
                    assert compose(1, z)[-1] == (y, z)
                else:
                    assert z - y < n
                    assert family == "G" or y > n


def test_calibration_is_on_the_private_side():
    rng = np.random.default_rng(1)
    for _ in range(30):
        n = int(rng.integers(2, 20))
        members = families(TreeFull(5 * n, 0.9), n, float(rng.random()), weights=tuple(rng.random(4) + 0.1))
        epsilon, delta = float(10 ** rng.uniform(-1, 1.5)), float(10 ** rng.uniform(-10, -2))
        scaled = calibrated_families(members, n, epsilon, delta, "replace-one")
        assert account_of_families(scaled, n, "replace-one").epsilon(delta).upper <= epsilon
        less = [replace(f, noise_multiplier=0.99 * f.noise_multiplier) for f in scaled]
        assert account_of_families(less, n, "replace-one").epsilon(delta).lower > epsilon


def test_families_that_do_not_exist_or_cost_nothing():
    assert [f.name for f in families(TreeFull(8, 0.9), 5, 0.1)] == [
        "gradient-early",
        "anchor-difference",
        "iterate-difference",
    ]
    assert [f.name for f in families(TreeFull(4, 0.9), 5, 0.1)] == ["gradient-early", "iterate-difference"]
    free = families(TreeFull(20, 0.9), 5, 0.0)
    assert joint_mu(free, 5) == pytest.approx(joint_mu([f for f in free if f.share], 5))
    with pytest.raises(NoProofError, match="tree-full"):
        families(Tree(20, 0.9), 5, 0.1)
    with pytest.raises(NoProofError, match="tree-full"):
        families(TreeLS(20, 0.9), 5, 0.1)
    with pytest.raises(InputError, match="weights"):
        families(TreeFull(20, 0.9), 5, 0.1, weights=(1.0, 0.0, 1.0, 1.0))
    with pytest.raises(InputError, match="noise"):
        joint_mu([replace(f, noise_multiplier=0.0) for f in families(TreeFull(20, 0.9), 5, 0.1)], 5)
