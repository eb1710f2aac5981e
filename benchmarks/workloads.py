"""The models and made-up data that steps are timed on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.one(x))
        return x + self.down(F.gelu(self.up(self.two(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary: int = 64, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.blocks(self.tokens(x))))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    )  # fmt: skip


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for out in (64, 64, 128, 128, 256, 256):
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU()]
        if channels == out:
            layers.append(nn.MaxPool2d(2))
        channels = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4096, 10))


def token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def labelled(*shape: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    return lambda b: (torch.randn(b, *shape), torch.randint(0, 10, (b,)))


def tokens(b: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 64, (b, 64)), torch.randint(0, 64, (b, 64))


WORKLOADS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tuple[Tensor, Tensor]], Any]] = {
    "logistic 784-10": (lambda: nn.Linear(784, 10), labelled(784), F.cross_entropy),
    "mlp 784-256-128-10": (mlp, labelled(784), F.cross_entropy),
    "mnist cnn": (cnn, labelled(1, 28, 28), F.cross_entropy),
    "transformer 2x128, T=64": (Transformer, tokens, token_loss),
    "regression 100,000": (
        lambda: nn.Linear(100_000, 1), lambda b: (torch.randn(b, 100_000), torch.randn(b, 1)), F.mse_loss,
    ),
}  # fmt: skip
EXTRA = {"vgg-6 32x32": (vgg, labelled(3, 32, 32), F.cross_entropy)}
