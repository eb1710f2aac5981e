"""`Plan.noise_stream` against A C⁺ z written out: the same draws, the materialised matrices."""

import numpy as np
import pytest
import torch

import momentree as mt
from momentree.noise.keys import derive_subkey
from momentree.noise.normals import KeyedNormals
from momentree.strategy.base import materialise

KEY = bytes(range(32))


def base_rows(plan: mt.Plan, rows: int, dimension: int) -> np.ndarray:
    source = KeyedNormals(derive_subkey(KEY, plan_digest=plan.digest(), purpose="noise stream"))
    z = torch.empty(rows, dimension, dtype=torch.float64)
    for row in range(rows):
        source.fill_(z[row], 0, row, 0)
    return z.numpy()


@pytest.mark.parametrize("strategy", ["identity", "tree", "tree-full", "tree-ls", "bsr", "bisr", "blt", "dense"])
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_the_noise_on_the_momentum_is_the_matrix_product(strategy: str, beta: float) -> None:
    plan = mt.Plan(
        examples=37, batch_size=4, epochs=2, noise_multiplier=1.7, strategy=strategy, momentum=beta, delta=1e-4
    )
    T, d = plan.steps, 5
    noise = np.stack(list(plan.noise_stream(dimension=d, key=KEY)))
    decoder = plan.strategy.decoder()
    z = base_rows(plan, decoder.shape[1], d)
    lags = np.subtract.outer(np.arange(T), np.arange(T))
    A = np.where(lags >= 0, (1 - beta) * float(beta) ** np.maximum(lags, 0), 0.0)
    np.testing.assert_allclose(noise, 1.7 * A @ decoder @ z, atol=1e-10)


@pytest.mark.parametrize("name", ["tree", "tree-full"])
@pytest.mark.parametrize("T", [1, 2, 3, 7, 8, 37, 100])
@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9, 0.999, 1 - 1e-9])
def test_the_streamed_tree_has_the_papers_covariance(name: str, T: int, beta: float) -> None:
    """Unit draws through the program; against COMPOSE(1, t), Σ over its nodes of β^(t−z) ζ_z."""
    from momentree.paper.compose import compose
    from momentree.strategy.tree import Tree
    from momentree.strategy.tree_full import TreeFull

    stream = materialise({"tree": Tree, "tree-full": TreeFull}[name](T, beta))
    lags = np.subtract.outer(np.arange(T), np.arange(T))
    alpha = 1 - beta
    ours = np.where(lags >= 0, alpha * beta ** np.maximum(lags, 0.0), 0.0) @ stream
    nodes = sorted({node for t in range(1, T + 1) for node in compose(1, t)})
    printed = np.zeros((T, len(nodes)))
    for t in range(1, T + 1):
        for y, z in compose(1, t):
            printed[t - 1, nodes.index((y, z))] = alpha * beta ** (t - z)
    np.testing.assert_allclose(ours @ ours.T, printed @ printed.T, atol=1e-12)


def test_another_key_or_plan_gives_other_noise() -> None:
    plan = mt.Plan(examples=20, batch_size=5, epochs=1, noise_multiplier=1.0, strategy="tree", delta=1e-3)
    other = mt.Plan(examples=20, batch_size=5, epochs=1, noise_multiplier=1.5, strategy="tree", delta=1e-3)
    first = next(plan.noise_stream(dimension=100, key=KEY))
    assert np.array_equal(first, next(plan.noise_stream(dimension=100, key=KEY)))
    for again in (
        next(plan.noise_stream(dimension=100, key=bytes(32))),
        next(other.noise_stream(dimension=100, key=KEY)),
    ):
        assert abs(np.corrcoef(first, again)[0, 1]) < 0.5
    with pytest.raises(mt.InputError, match="32"):
        next(plan.noise_stream(dimension=3, key=b"short"))


@pytest.mark.parametrize("algorithm", ["epoch-lag", "sr-nsgd", "dp-srm", "dp-spider"])
def test_rebuilt_gradients_carry_the_noise_that_the_plan_states(algorithm: str) -> None:
    """By simulation over 20,000 coordinates: a stream that forgot the recursion misses by a quarter at least."""
    plan = mt.Plan(
        examples=20, batch_size=5, epochs=4, algorithm=algorithm, order="fixed", noise_multiplier=1.3, delta=1e-3
    )
    noise = np.stack(list(plan.noise_stream(dimension=20_000, key=KEY)))
    facts = plan.to_dict()
    assert np.sqrt(np.mean(noise**2)) == pytest.approx(facts["momentum_rmse"], rel=0.02)
    assert np.sqrt(np.mean(np.cumsum(noise, axis=0) ** 2)) == pytest.approx(facts["iterate_rmse"], rel=0.03)


@pytest.mark.parametrize("dimension", [0, -1, 2.5, "x", None])
def test_a_dimension_is_a_whole_number(dimension: object) -> None:
    plan = mt.Plan(examples=20, batch_size=5, epochs=1, noise_multiplier=1.0, strategy="tree", delta=1e-3)
    with pytest.raises(mt.InputError, match="dimension"):
        plan.noise_stream(dimension=dimension, key=KEY)  # type: ignore[arg-type]
