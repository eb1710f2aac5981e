"""The public numbers of a plan, under the names of the command line; what is silent takes its algorithm's default."""

from __future__ import annotations

from momentree.order.base import Shape
from momentree.presets import ALGORITHMS, DIFFERENCE_CLIP, LEAK, Algorithm
from momentree.query.base import Adjacency
from momentree.request import Request


class PublicNumbers:
    """Read off the request, never worked out. `Plan` adds what follows from them."""

    request: Request
    algorithm: str
    shape: Shape

    @property
    def examples(self) -> int:
        return self.request.examples

    @property
    def batch_size(self) -> int:
        return self.shape.batch_size

    @property
    def epochs(self) -> int:
        return self.shape.epochs

    @property
    def steps_per_epoch(self) -> int:
        return self.shape.steps_per_epoch

    @property
    def steps(self) -> int:
        return self.shape.steps

    @property
    def clip(self) -> float:
        return self.request.clip

    @property
    def delta(self) -> float:
        return self.request.checked_delta

    @property
    def adjacency(self) -> Adjacency:
        return self.request.adjacency

    @property
    def dimension(self) -> int | None:
        return self.request.dimension

    @property
    def seed(self) -> int:
        return self.request.seed

    @property
    def physical_batch_size(self) -> int | None:
        return self.request.physical_batch_size

    @property
    def learning_rate(self) -> float | None:
        return self.request.learning_rate

    @property
    def preset(self) -> Algorithm:
        return ALGORITHMS[self.algorithm]

    @property
    def momentum(self) -> float:
        """β of the momentum that the noise is made for, m = βm + (1−β)g."""
        given = self.request.momentum
        return self.preset.momentum if given is None else given

    @property
    def leak(self) -> float:
        """γ: how much of a full gradient every difference query mixes in."""
        return LEAK if self.request.leak is None else self.request.leak

    @property
    def difference_clip(self) -> float:
        """ρ: what the difference of one example's two gradients is clipped to, relative to the clip."""
        return DIFFERENCE_CLIP if self.request.difference_clip is None else self.request.difference_clip
