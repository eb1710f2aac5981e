"""Normals from torch's own generator, for experiments: nobody's privacy rests on them."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from momentree.errors import whole
from momentree.noise.normals import check_place, flat_of

BLOCK, DEVICE_BLOCK = 2**14, 2**22
"""Coordinates that share a seed; more on a device, where a seed costs as much as a million normals."""


class FastNormals:
    """The interface of `KeyedNormals` over a `torch.Generator`, seeded anew for every block of coordinates of a row.

    No guarantee: the generator is not cryptographic and float32 normals have 24-bit uniforms, so a certificate names
    this source and claims nothing against somebody who attacks the generator. It can be drawn again like the other, on
    the same kind of device and the same version of torch.
    """

    name = "fast"

    def __init__(self, seed: int) -> None:
        self.seed = whole("seed", seed, at_least=0, at_most=2**64 - 1)

    def fill_(self, out: Tensor, stream: int, row: int, start: int) -> Tensor:
        """Coordinates start, start + 1, … of a row, into `out` (float32 or float64, contiguous); `out` again."""
        flat = flat_of(out)
        stream, row, start = check_place(stream, row, start, flat.numel())
        generator = torch.Generator(device=flat.device)
        length = BLOCK if flat.device.type == "cpu" else DEVICE_BLOCK
        whole_block = torch.empty(length, dtype=flat.dtype, device=flat.device)
        end = start + flat.numel()
        for block in range(start // length, -(-end // length)):
            name = b"".join(n.to_bytes(8, "little") for n in (self.seed, stream, row, block))
            generator.manual_seed(int.from_bytes(hashlib.sha256(name).digest()[:8], "little", signed=True))
            low, high = block * length - start, (block + 1) * length - start
            if low >= 0 and high <= flat.numel():
                flat[low:high].normal_(generator=generator)
            else:  # torch's normals depend on the length asked for: always the whole block
                whole_block.normal_(generator=generator)
                flat[max(low, 0) : high] = whole_block[max(-low, 0) : flat.numel() - low]
        return out
