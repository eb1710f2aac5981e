"""Small models of every kind that the query has to be right for, each with how to make a batch for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Tied(nn.Module):
    """A transformer whose output layer is its token table."""

    def __init__(self, vocabulary: int = 23, width: int = 16, places: int = 6, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(0.1 * torch.randn(1, places, width))
        self.blocks = nn.ModuleList(Block(width, 2) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, vocabulary, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.one, self.two = nn.LayerNorm(width), nn.RMSNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.one(x)).chunk(3, dim=-1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.mix(a)
        return x + self.down(F.gelu(self.up(self.two(x))))


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm_one, self.norm_two = nn.GroupNorm(2, out), nn.GroupNorm(2, out)
        self.two = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.skip = nn.Conv2d(channels, out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm_one(self.one(x)), inplace=True)
        return F.relu(self.norm_two(self.two(h)) + self.skip(x))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 6, padding_idx=0)
        self.cells = kind(6, 5, batch_first=True)
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.cells(self.tokens(x))
        return self.out(h[:, -1])


class Deep(nn.Module):
    """Recurrent layers with every option: both directions, several layers, projections, no biases, time first."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.LSTM(4, 5, num_layers=2, bidirectional=True, proj_size=3, bias=False)
        self.two = nn.GRU(6, 4, num_layers=2, bias=False)
        self.three = nn.RNN(4, 4, nonlinearity="relu")
        self.four = nn.RNN(4, 3, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        h, (state, cell) = self.one(x.transpose(0, 1))
        h, _ = self.two(h)
        h, last = self.three(h, 0.1 + h[:1])
        h, _ = self.four(h)
        return h[-1] + torch.cat([last[0], state[-1][:, :2]], 1) + cell.sum((0, 2))[:, None]


class Adapted(nn.Module):
    """A frozen linear map with a low-rank adapter that is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(12, 9).requires_grad_(False)
        self.down, self.up = nn.Linear(12, 2, bias=False), nn.Linear(2, 9, bias=False)
        self.out = nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.base(x) + self.up(self.down(x))))


class Reused(nn.Module):
    """One linear map, one convolution and one normalisation, each used several times; and a part that never is."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(4, 4, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.line = nn.Linear(8, 8)
        self.never = nn.Linear(3, 3)
        self.out = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + torch.tanh(self.line(self.norm(self.conv(x))))
        return self.out(self.line(x[:, 0]))


class Table(nn.Module):
    """Tied by hand: the token table in a functional call, twice, and looked up twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(9, 5, padding_idx=2)
        self.scale = nn.Parameter(torch.ones(5))
        self.weight = nn.Parameter(0.3 * torch.randn(5, 5))

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) * self.scale + self.tokens(x.flip(1))
        h = torch.tanh(h @ self.weight)
        return F.linear(h, self.tokens.weight) + F.linear(h * h, self.tokens.weight)


class Soft(nn.Module):
    """A token table looked up, multiplied with from either side, and looked up again by a mixture of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x)
        mixture = F.linear(h, self.table.weight).softmax(-1) @ self.table.weight
        return F.linear(h * torch.tanh(mixture), self.table.weight)


class Views(nn.Module):
    """Parameters through views: a class token, a slice of a position table, chunks of a packed weight, a transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(0.5 * torch.randn(1, 1, 6))
        self.places = nn.Parameter(0.5 * torch.randn(9, 6))
        self.packed, self.packed_bias = nn.Parameter(0.4 * torch.randn(18, 6)), nn.Parameter(torch.randn(18))
        self.table = nn.Embedding(7, 6)
        self.flat = nn.Parameter(0.3 * torch.randn(36))
        self.convolved = nn.Conv1d(6, 6, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token.expand(len(x), -1, -1), self.table(x)], 1) + self.places[: x.shape[1] + 1]
        q, k, v = (F.linear(h, w, b) for w, b in zip(self.packed.chunk(3), self.packed_bias.split(6), strict=True))
        h = F.linear(torch.sigmoid(q) * torch.tanh(k) + v, self.flat.view(6, 6).t())
        h = h + F.linear(h, self.packed[3:9]) + F.linear(h, self.convolved.weight.squeeze(2))
        return h @ self.table.weight.T


class Misused(nn.Module):
    """Uses that no closed form here knows, and one that it does: overlapping slices; sums of parameters, selections."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.4 * torch.randn(6, 6)), nn.Parameter(torch.randn(6))
        self.shared = nn.Parameter(0.4 * torch.randn(8, 6))
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(F.linear(x, self.shared[:6]) + F.linear(x, self.shared[2:]))
        h = F.linear(h, self.weight + self.weight.t(), self.bias * 2)
        return self.out(torch.where(h > 0, h, self.bias))


class TorchEncoder(nn.Module):
    """Torch's own encoder layer, dropout and all."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x).mean(1))


class TimeFirst(nn.Module):
    """Works with the examples in the second dimension: nothing can be book-kept that is used there."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 5)
        self.out = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.line(x.transpose(0, 1))).mean(0))


class Parametrised(nn.Module):
    """A weight that is computed from parameters, and a convolution that is not supported by closed forms."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
        self.up = nn.ConvTranspose1d(1, 2, 3)
        self.out = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.up(torch.tanh(self.line(x)).unsqueeze(1))).flatten(1))


@dataclass(frozen=True)
class Entry:
    model: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    targets: Callable[[int], Tensor]
    loss: Any = F.cross_entropy
    functions: bool = False
    """Whether some parameters have to go through torch.func."""


def sequence_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def labels(below: int, *shape: int) -> Callable[[int], Tensor]:
    return lambda examples: torch.randint(0, below, (examples, *shape))


def normals(*shape: int) -> Callable[[int], Tensor]:
    return lambda examples: torch.randn(examples, *shape)


def mnist_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for out in (8, 16, 32):
        layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        channels = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 4, 16), nn.ReLU(), nn.Linear(16, 10))


def frozen_part() -> nn.Module:
    model = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    return model


def grouped() -> nn.Module:
    """Convolutions with groups, dilation, strides, and every padding mode."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2, padding_mode="circular"),
        nn.Tanh(),
        nn.Conv2d(8, 8, (2, 3), stride=(2, 1), padding="valid", groups=8, padding_mode="reflect"),
        nn.Tanh(),
        nn.Conv2d(8, 6, (5, 3), padding="same", padding_mode="replicate"),
        nn.Tanh(),
        nn.Conv2d(6, 6, (2, 3), padding="same", dilation=(2, 1)),
        nn.GroupNorm(3, 6),
        nn.Flatten(),
        nn.LazyLinear(4),
    )


def made(model: nn.Module, inputs: Tensor) -> nn.Module:
    model(inputs)
    return model


ZOO: dict[str, Entry] = {
    "logistic": Entry(lambda: nn.Linear(20, 5), normals(20), labels(5)),
    "mlp": Entry(
        lambda: nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)),
        normals(20),
        labels(3),
    ),
    "regression": Entry(lambda: nn.Linear(300, 1), normals(300), normals(1), F.mse_loss),
    "mnist-cnn": Entry(mnist_cnn, normals(1, 28, 28), labels(10)),
    "vgg": Entry(vgg, normals(3, 16, 16), labels(10)),
    "resnet": Entry(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            Residual(4, 8, 2),
            Residual(8, 8, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        ),
        normals(3, 8, 8),
        labels(5),
    ),
    "transformer-tied": Entry(Tied, labels(23, 6), labels(23, 6), sequence_loss),
    "lstm": Entry(lambda: Recurrent(nn.LSTM), labels(11, 5), labels(3)),
    "gru": Entry(lambda: Recurrent(nn.GRU), labels(11, 5), labels(3)),
    "recurrent": Entry(Deep, normals(5, 4), labels(6)),
    "lora": Entry(Adapted, normals(12), labels(4)),
    "frozen-part": Entry(frozen_part, normals(10), labels(3)),
    "reused": Entry(Reused, normals(4, 8), labels(4)),
    "table": Entry(Table, labels(9, 4), labels(9, 4), sequence_loss),
    "soft": Entry(Soft, labels(9, 4), labels(9, 4), sequence_loss),
    "views": Entry(Views, labels(7, 4), labels(7, 5), sequence_loss),
    "misused": Entry(Misused, normals(6), labels(3), functions=True),
    "encoder": Entry(TorchEncoder, normals(5, 8), labels(3)),
    "encoder-dropout": Entry(lambda: TorchEncoder(0.3), normals(5, 8), labels(3)),
    "dropout": Entry(
        lambda: nn.Sequential(nn.Linear(10, 30), nn.Dropout(0.5), nn.ReLU(), nn.Dropout1d(0.2), nn.Linear(30, 3)),
        normals(10),
        labels(3),
    ),
    "conv1d": Entry(
        lambda: nn.Sequential(nn.Conv1d(3, 6, 5, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)),
        normals(3, 14),
        labels(3),
    ),
    "conv3d": Entry(
        lambda: nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 3)),
        normals(2, 4, 4, 4),
        labels(3),
    ),
    "conv-options": Entry(lambda: made(grouped(), torch.randn(2, 4, 9, 8)), normals(4, 9, 8), labels(4)),
    "time-first": Entry(TimeFirst, normals(6, 4), labels(3), functions=True),
    "parametrised": Entry(Parametrised, normals(6), labels(3), functions=True),
}
