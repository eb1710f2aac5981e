"""Algorithm 2's release (`sr-nsgd`): four families of tree nodes under one fixed order, priced together.

At step t of epoch q an example adds, in units of the clip, at most 1 to G (its gradient at the epoch's anchor), ρ to Δ
(the difference of two anchors, from the second epoch on) and ρ to r (iterate against anchor). Each is released as
decayed sums over nodes of a tree: G with one σ where a node ends by step 2n and another later, Δ on nodes that begin
after step n, both on nodes of at most n steps, for no window of Algorithm 4 is longer; r, of which only prefixes are
asked, on the nodes that a prefix uses, one at each step. Every one of these nodes is shown or kept in a checkpoint,
and no other is ever made. Nodes are independent Gaussians and an example keeps its place, so exactly

    μ² = max_j Σ_families Σ_nodes (s_{node,j} / σ_family)²,     s_{node,j} = share · Σ_{t ∈ node, t ≡ j} β^{end−t}.

Guarantee: exact for zero-out under the fixed order, contributions adaptive; replace-one doubles μ. The maximum is over
one place for all families, not a maximum for each. Any other order is refused by whoever makes the plan: the
reconstruction needs that an example keeps its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from momentree.errors import InputError, NoProofError, number, whole
from momentree.privacy.account_of import ROUNDING as QUOTIENT
from momentree.privacy.account_of import factor, noise_for
from momentree.privacy.fixed import ROUNDING, Ends, Flags, tree_squares
from momentree.privacy.gaussian import GaussianAccount
from momentree.privacy.sensitivity import Sensitivity
from momentree.query.base import Adjacency
from momentree.strategy.base import Array
from momentree.strategy.tree_full import TreeFull

NAMES = ("gradient-early", "gradient", "anchor-difference", "iterate-difference")


@dataclass(frozen=True)
class Family:
    """One family: the nodes that end in `first_end … last_end` and begin at `begins` or later, of a full tree.

    Of these the nodes of at most `longest` steps, and with `prefix` only the longest that ends at each step.
    `share`: what an example adds to a term at most, relative to the clip. `noise_multiplier`: σ of each node, in
    units of clip / batch_size. `sensitivity`: of this family alone.
    """

    name: str
    strategy: TreeFull
    share: float
    begins: int
    first_end: int
    last_end: int
    longest: int
    prefix: bool
    sensitivity: Sensitivity
    noise_multiplier: float

    def squares(self, n: int) -> Array:
        """Σ_nodes s_{node,j}² for every place j."""

        def keep(ends: Ends, length: int) -> Flags:
            inside = (ends >= self.first_end) & (ends <= self.last_end) & (ends - length + 1 >= self.begins)
            inside &= length <= self.longest
            return np.asarray(inside & (ends // length % 2 == 1) if self.prefix else inside)

        tree = self.strategy
        return self.share**2 * tree_squares(tree.steps, n, tree.decay, True, keep=keep)


def families(
    strategy: TreeFull,
    steps_per_epoch: int,
    difference_clip: float,
    *,
    weights: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    as_printed: bool = False,
) -> tuple[Family, ...]:
    """The families that exist in a run of these steps, with σ_f = weight_f · sensitivity_f: to be scaled to a target.

    Weights are relative noise: a family that costs nothing (ρ = 0) has noise 0 and is exactly known. `as_printed`:
    every node of the tree in every family, which the paper releases and no run here does.
    """
    if type(strategy) is not TreeFull:
        raise NoProofError(
            f"sr-nsgd with strategy {strategy.name}: its windows use right children too, which only tree-full "
            "releases; take tree-full"
        )
    rho = number("difference_clip", difference_clip, at_least=0, do="the clip of differences relative to the clip")
    steps, n = strategy.steps, steps_per_epoch
    if len(weights) != len(NAMES) or not all(w > 0 for w in weights):
        raise InputError(f"weights {tuple(weights)}: give one above 0 for each of {', '.join(NAMES)}")
    border = 2 * n
    window = steps if as_printed else n
    found = []
    for name, share, begins, first, last, longest, weight in (
        ("gradient-early", 1.0, 1, 1, min(border, steps), window, weights[0]),
        ("gradient", 1.0, 1, border + 1, steps, window, weights[1]),
        ("anchor-difference", rho, n + 1, n + 1, steps, window, weights[2]),
        ("iterate-difference", rho, 1, 1, steps, steps, weights[3]),
    ):
        if first > last:
            continue
        prefix = name == "iterate-difference" and not as_printed
        bare = Family(name, strategy, share, begins, first, last, longest, prefix, Sensitivity(0.0, True, ""), 0.0)
        value = math.sqrt(float(bare.squares(n).max())) * (1 + ROUNDING)
        own = Sensitivity(value, True, "one place, every place in turn")
        found.append(replace(bare, sensitivity=own, noise_multiplier=weight * value))
    return tuple(found)


def joint_mu(
    members: Sequence[Family], steps_per_epoch: int, adjacency: Adjacency = "zero-out", rows: int = 1
) -> float:
    """μ of all families together, under one fixed order, for a person with at most `rows` rows.

    k rows move the release at most k times as far as one (exactly so far where a batch has room for k).
    """
    total = np.zeros(steps_per_epoch)
    for family in members:
        if family.share == 0.0:
            continue  # it holds nothing of the data
        if family.noise_multiplier <= 0:
            raise InputError(f"family {family.name} has noise {family.noise_multiplier:g}: give it noise above 0")
        total += family.squares(steps_per_epoch) / family.noise_multiplier**2
    return whole("rows", rows) * factor(adjacency) * math.sqrt(float(total.max())) * (1 + ROUNDING)


def account_of_families(
    members: Sequence[Family], steps_per_epoch: int, adjacency: Adjacency = "zero-out", rows: int = 1
) -> GaussianAccount:
    """The exact account of the whole release."""
    return GaussianAccount(joint_mu(members, steps_per_epoch, adjacency, rows))


def calibrated_families(
    members: Sequence[Family],
    steps_per_epoch: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = "zero-out",
    rows: int = 1,
) -> tuple[Family, ...]:
    """All noise multipliers times one number, the smallest for which the whole release is (ε, δ)-DP."""
    scale = noise_for(joint_mu(members, steps_per_epoch, adjacency, rows), epsilon, delta) * (1 + 4 * QUOTIENT)
    while True:
        scaled = tuple(replace(f, noise_multiplier=f.noise_multiplier * scale) for f in members)
        if account_of_families(scaled, steps_per_epoch, adjacency, rows).epsilon(delta).upper <= epsilon:
            return scaled
        scale *= 1 + 4 * QUOTIENT
