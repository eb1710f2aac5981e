"""Algorithm 3 and the shape of the tree."""

from __future__ import annotations

import pytest

from momentree.errors import InputError
from momentree.paper import compose as tree
from momentree.paper.lemmas import compose_bound


def test_compose_covers_every_interval_with_disjoint_dyadic_nodes() -> None:
    for a in range(1, 201):
        for b in range(a, 201):
            nodes = tree.compose(a, b)
            assert [t for y, z in nodes for t in range(y, z + 1)] == list(range(a, b + 1))
            for y, z in nodes:
                length = z - y + 1
                assert length & (length - 1) == 0
                assert (y - 1) % length == 0


def test_compose_of_a_prefix_is_the_binary_expansion() -> None:
    for t in range(1, 1001):
        lengths = [z - y + 1 for y, z in tree.compose(1, t)]
        assert lengths == [2**k for k in reversed(range(t.bit_length())) if t >> k & 1]


def test_composebound() -> None:
    for a in range(1, 150):
        for b in range(a, 150):
            assert compose_bound(a, b).holds
    assert max(len(tree.compose(a, b)) / (1 + (b - a + 1).bit_length() - 1) for a in (2, 4, 6) for b in (14, 62)) > 1


def test_the_set_of_nodes_is_the_print_s() -> None:
    for T in (1, 2, 3, 7, 8, 37, 100):
        by_definition = {(a * 2**b + 1, (a + 1) * 2**b) for b in range(8) for a in range(T) if (a + 1) * 2**b <= T}
        assert set(tree.tree_nodes(T)) == by_definition
        assert {node for t in range(1, T + 1) for node in tree.nodes_ending_at(t)} == by_definition
        assert len(by_definition) == len(list(tree.tree_nodes(T))) <= 2 * T


def test_only_left_children_are_used() -> None:
    """E13: of the nodes that end at z, COMPOSE(1, t) uses one, the one of level v₂(z)."""
    for T in (1, 2, 3, 8, 37, 200):
        used = {node for t in range(1, T + 1) for node in tree.compose(1, t)}
        assert used == set(tree.left_nodes(T))
        assert sorted(z for _, z in used) == list(range(1, T + 1))
        for y, z in used:
            length = z - y + 1
            assert z % length == 0
            assert z // length % 2 == 1


def test_few_nodes_are_alive() -> None:
    """E11: going from t to t+1 needs nodes alive at t and the one that ends at t+1; never one dropped before."""
    alive = set(tree.compose(1, 1))
    for t in range(1, 1024):
        after = set(tree.compose(1, t + 1))
        new = after - alive
        assert len(new) == 1
        assert {z for _, z in new} == {t + 1}
        assert len(after) <= (t + 1).bit_length()
        alive = after
    stored = len(list(tree.tree_nodes(1024)))
    assert stored == 2 * 1024 - 1  # what Algorithm 1 keeps instead


def test_an_empty_interval_is_refused() -> None:
    with pytest.raises(InputError, match="1 ≤ a ≤ b"):
        tree.compose(1, 0)
