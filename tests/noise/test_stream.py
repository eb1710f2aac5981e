"""The executor: what a program materialises to, bit for bit the same however it is cut, saved, rebuilt or sharded."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from momentree.errors import InputError
from momentree.noise.fast import FastNormals
from momentree.noise.normals import KeyedNormals
from momentree.noise.pieces import chunks_of, starts_of
from momentree.noise.program import live
from momentree.noise.stream import NoiseStream
from momentree.strategy.base import Instruction, materialise
from momentree.strategy.bisr import Bisr
from momentree.strategy.blt import Blt
from momentree.strategy.bsr import Bsr
from momentree.strategy.dense import Dense
from momentree.strategy.identity import Identity
from momentree.strategy.restarted import Restarted
from momentree.strategy.tree import Tree
from momentree.strategy.tree_full import TreeFull
from momentree.strategy.tree_ls import TreeLS

KEY = bytes(range(32))
SOURCE = KeyedNormals(KEY)
SHAPES = [(3, 5), 7, (), (2, 2, 2)]
SIZE = 15 + 7 + 1 + 8


@dataclass(frozen=True)
class Odd:
    """A program that uses all that an instruction may say: several rows, own terms twice, zeros, stores in a row."""

    steps: int = 11
    name: str = "odd"
    noise_vectors: int = 3
    non_negative: bool = False

    def instruction(self, step):
        first = 10 * step
        return Instruction(
            fresh=(first, first + 3, first + 1),
            output=(("fresh", 2, 0.5), ("slot", 0, -1.0), ("fresh", 0, 1.0), ("slot", 2, 0.0), ("fresh", 2, 0.25)),
            store=(
                (0, (("slot", 1, 0.5), ("slot", 0, 0.25), ("output", 0, 1.0), ("slot", 0, 0.25))),
                (1, (("slot", 0, -1.0), ("fresh", 0, 1.0))),
                (2, () if step % 4 == 0 else (("slot", 2, 1.0), ("fresh", 2, -1.0))),
            ),
        )

    def matrix(self):
        raise NotImplementedError

    def decoder(self):
        raise NotImplementedError

    def describe(self):
        return {"name": self.name}


def lower(steps):
    rng = np.random.default_rng(0)
    return np.tril(rng.uniform(0.0, 0.4, (steps, steps)), -1) + np.eye(steps)


STRATEGIES = [
    Odd(),
    Identity(9),
    Tree(37, 0.9),
    Tree(16, 1.0),
    TreeFull(37, 0.9),
    TreeLS(37, 0.9),
    Bsr(23, np.array([1.0, 0.5, 0.375, 0.3])),
    Bisr(23, np.array([1.0, -0.5, -0.2, -0.1])),
    Blt(37, np.array([0.3, 0.2]), np.array([0.95, 0.5])),
    Dense(lower(9)),
    Restarted(Tree(16, 0.9), 3, 5),
    Restarted(Blt(7, np.array([0.3]), np.array([0.9])), 3, None),
]
EVERY = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: f"{s.name}-{s.steps}")


def make(strategy, *, source=SOURCE, shapes=SHAPES, dtype=torch.float64, **rest):
    return NoiseStream(strategy, source, shapes, dtype=dtype, **rest)


def blocks(shapes=SHAPES, dtype=torch.float64):
    return [torch.zeros(shape, dtype=dtype) for shape in shapes]


def flat(parts):
    return torch.cat([part.flatten() for part in parts])


def steps_of(stream, count, **rest):
    out = []
    for _ in range(count):
        parts = blocks(**rest)
        stream.next_(parts)
        out.append(flat(parts))
    return torch.stack(out)


@EVERY
def test_the_stream_is_the_materialised_matrix_times_the_base_rows(strategy):
    rows = sorted({row for t in range(1, strategy.steps + 1) for row in strategy.instruction(t).fresh})
    z = torch.stack([SOURCE.fill_(torch.empty(SIZE, dtype=torch.float64), 3, row, 0) for row in rows])
    drawn = steps_of(make(strategy, stream=3), strategy.steps)
    wanted = materialise(strategy) @ z.numpy()
    assert np.abs(drawn.numpy() - wanted).max() < 1e-10
    assert np.abs(wanted).max() > 1.0


@EVERY
def test_float32_streams_are_near_the_float64_one(strategy):
    two = steps_of(make(strategy), strategy.steps)
    one = steps_of(make(strategy, dtype=torch.float32), strategy.steps, dtype=torch.float32)
    assert float((one.double() - two).abs().max()) < 2e-5


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_stream_resumed_at_any_step_gives_the_same_bits(strategy, dtype):
    """From the saved state and from the key and the step alone; the state itself is equal, bit for bit."""
    stream = make(strategy, dtype=dtype)
    unbroken = steps_of(make(strategy, dtype=dtype), strategy.steps, dtype=dtype)
    for step in range(strategy.steps + 1):
        saved = {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in stream.state().items()}
        loaded, rebuilt = make(strategy, dtype=dtype), make(strategy, dtype=dtype)
        loaded.load_state(saved)
        rebuilt.rebuild(step)
        assert loaded.step == rebuilt.step == stream.step == step
        for name, value in saved.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(rebuilt.state()[name], value), (step, name)
        if step == strategy.steps:
            break
        ahead = min(3, strategy.steps - step)
        for other in (loaded, rebuilt):
            assert torch.equal(steps_of(other, ahead, dtype=dtype), unbroken[step : step + ahead])
        stream.next_(blocks(dtype=dtype))


@EVERY
def test_it_keeps_as_many_vectors_as_the_strategy_says(strategy):
    stream = make(strategy)
    slots = [v for v in stream.state().values() if isinstance(v, torch.Tensor)]
    assert len(slots) == strategy.noise_vectors
    assert all(slot.shape == (SIZE,) for slot in slots)
    before = [slot.data_ptr() for slot in slots]
    stream.next_(blocks())
    assert [v.data_ptr() for v in stream.state().values() if isinstance(v, torch.Tensor)] == before


LARGE = [(70_000,), (300, 500), 1, (33, 3), (400_001,)]


@pytest.mark.parametrize("strategy", [Tree(6, 0.9), Blt(6, np.array([0.3, 0.1]), np.array([0.9, 0.5])), Odd()])
def test_bits_do_not_depend_on_threads_or_chunks(strategy, monkeypatch):
    """1, 2 and 7 threads; chunks of up to 3·2^15, 10,000 and 2,048 coordinates; one block or five."""
    from momentree.noise import pieces as module

    def run(shapes, threads):
        stream = make(strategy, dtype=torch.float32, shapes=shapes, threads=threads)
        if threads > 1:
            assert stream._threads > 1
        return steps_of(stream, 5, shapes=shapes, dtype=torch.float32)

    one = run(LARGE, 1)
    total = one.shape[1]
    assert torch.equal(one, run([total], 1))
    for threads in (2, 7):
        assert torch.equal(one, run(LARGE, threads))
    for chunk in (10_000, 2048):
        monkeypatch.setattr(module, "CHUNK", chunk)
        monkeypatch.setattr(module, "SHARED_CHUNK", chunk)
        for threads in (1, 7):
            assert torch.equal(one, run(LARGE, threads))


class OneByOne:
    """A source that draws single rows only."""

    name = "one by one"

    def fill_(self, out, stream, row, start):
        SOURCE.fill_(out, stream, row, start)


@EVERY
@pytest.mark.parametrize("size", [7, 2048, 5000, 30_000, 33_000])
def test_drawing_ahead_changes_no_bit(strategy, size):
    """Rows of 1, 2, 3 and 15 tiles are drawn ahead, from anywhere within a tile; from 17 tiles on they are not."""
    place = {"shapes": [size], "dtype": torch.float32, "offset": 100}
    ahead, plain = make(strategy, **place), make(strategy, source=OneByOne(), **place)
    assert (ahead._ahead is not None) == (size < 33_000)
    assert plain._ahead is None
    for step in range(1, strategy.steps + 1):
        if step == 5:  # a jump back: what is held ahead belongs to other steps
            ahead.rebuild(2)
            ahead.next_(blocks([size], torch.float32))
            ahead.next_(blocks([size], torch.float32))
        one, two = blocks([size], torch.float32), blocks([size], torch.float32)
        ahead.next_(one)
        plain.next_(two)
        assert torch.equal(one[0], two[0])


@pytest.mark.parametrize("strategy", [Tree(64, 0.9), Blt(40, np.array([0.3] * 4), np.array([0.9] * 4))])
@pytest.mark.parametrize("threads", [1, 2])
def test_beyond_the_slots_memory_does_not_grow_with_the_model(strategy, threads, monkeypatch):
    """What torch and numpy are asked for in 34 steps: the slots, and at most 1.75 MiB, or 4 for two threads."""
    asked = []
    for name in ("empty", "zeros"):
        for library in (torch, np):
            made = getattr(library, name)

            def record(*shape, made=made, **rest):
                result = made(*shape, **rest)
                asked.append(result.nbytes)
                return result

            monkeypatch.setattr(library, name, record)
    for size in (2**13, 2**15, 2**18, 2**21):
        noise = torch.ones(size)
        asked.clear()
        stream = make(strategy, source=KeyedNormals(KEY), shapes=[size], dtype=torch.float32, threads=threads)
        for _ in range(34):
            stream.add_([noise], 0.5)
        beyond = sum(asked) - 4 * size * strategy.noise_vectors
        assert 2**16 < beyond < (1.75 if threads == 1 else 4) * 2**20


def test_shards_draw_what_the_whole_draws():
    strategy, total = Blt(9, np.array([0.3, 0.1]), np.array([0.9, 0.5])), 5000
    whole = steps_of(make(strategy, shapes=[total]), 9, shapes=[total])
    ranges = [(0, 1700), (1700, 1701), (1701, 5000)]
    for low, high in ranges:
        part = make(strategy, shapes=[high - low], offset=low, total=total)
        assert torch.equal(steps_of(part, 9, shapes=[high - low]), whole[:, low:high])
    shapes = [40, 60]
    apart = make(strategy, shapes=shapes, offset=[3000, 100], total=total)
    drawn = steps_of(apart, 9, shapes=shapes)
    assert torch.equal(drawn[:, :40], whole[:, 3000:3040])
    assert torch.equal(drawn[:, 40:], whole[:, 100:160])


@pytest.mark.parametrize(
    "place",
    [
        {"offset": 4999, "total": 5000},
        {"offset": -1},
        {"offset": [0]},
        {"offset": [0, 5]},
        {"offset": 2**35},
        {"total": 2**35 + 1},
    ],
)
def test_blocks_outside_the_whole_or_over_each_other_are_refused(place):
    with pytest.raises(InputError):
        make(Identity(3), shapes=[10, 10], **place)


def test_chunks_cover_every_coordinate_once_and_are_cut_at_multiples():
    sizes, starts = [10, 0, 25, 7, 64], [3, 13, 13, 100, 107]
    assert starts_of(sizes, starts, None) == starts
    chunks = chunks_of(sizes, starts, 16)
    seen = [(b, i) for c in chunks for b, low, high, _ in c.segments for i in range(low, high)]
    assert seen == [(b, i) for b, n in enumerate(sizes) for i in range(n)]
    assert [c.low for c in chunks] == np.cumsum([0, *(c.size for c in chunks)])[:-1].tolist()
    for chunk in chunks:
        assert chunk.start // 16 == (chunk.start + chunk.size - 1) // 16
        for block, low, _, at in chunk.segments:
            assert starts[block] + low == chunk.start + at


def test_noise_is_added_with_its_scale_to_whatever_the_block_is():
    """Parameters that need gradients, transposed memory, channels last, half precision, float64: the same noise."""
    shapes = [(6, 4), (2, 3, 4, 5), (10,), (10,), (10,)]
    plain = blocks(shapes, torch.float32)
    make(Identity(2), shapes=shapes, dtype=torch.float32).next_(plain)
    given = [
        torch.nn.Parameter(torch.ones(4, 6).t()),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(10, dtype=torch.bfloat16),
        torch.ones(10, dtype=torch.float64),
        torch.ones(20)[::2],
    ]
    make(Identity(2), shapes=shapes, dtype=torch.float32).add_(given, 2.5)
    for block, noise, rounding in zip(given, plain, (1e-6, 1e-6, 0.03, 1e-6, 1e-6), strict=True):
        assert float((block.detach().double() - (1 + 2.5 * noise.double())).abs().max()) < rounding


def test_negative_and_unit_scales_are_exact():
    one, two = blocks(), blocks()
    make(Identity(2)).add_(one, 1.0)
    make(Identity(2)).add_(two, -1.0)
    assert torch.equal(flat(one), -flat(two))


def test_two_streams_of_one_key_differ_and_the_same_one_repeats():
    first, again, other = (steps_of(make(Identity(3), stream=s), 3) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not bool((first == other).any())


def test_rebuilding_draws_only_the_rows_that_matter():
    """A hundred thousand steps of a tree, a band or restarts: rows in the dozens."""
    steps = 10**5
    assert sum(len(p.drawn) for _, p in live(Tree(steps, 1.0), steps - 1)) <= 20
    assert sum(len(p.drawn) for _, p in live(Bisr(steps, np.array([1.0, -0.5, -0.2])), steps - 1)) == 2
    blocks_of_seven = Restarted(Blt(7, np.array([0.3]), np.array([0.9])), steps // 7, None)
    assert len(live(blocks_of_seven, 7 * 1000 + 3)) == 3
    assert live(Identity(steps), steps) == []


class Failing:
    """A source that breaks down at its second chunk of a row; `drawing` counts the chunks that are under way."""

    name = "failing"

    def __init__(self, threads):
        self.broken, self.drawing, self.lock = False, 0, threading.Lock()
        self.another = threading.Event()
        if threads == 1:
            self.another.set()

    def fill_(self, out, stream, row, start):
        if self.broken and start == out.numel():
            self.another.wait(60)  # another thread has begun a chunk of its own
            raise KeyboardInterrupt
        with self.lock:
            self.drawing += 1
        if self.broken:
            self.another.set()
        SOURCE.fill_(out, stream, row, start)
        with self.lock:
            self.drawing -= 1


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupted_step_is_not_continued_but_rebuilt(threads):
    source, size = Failing(threads), 2**20
    strategy = Blt(9, np.array([0.3]), np.array([0.9]))
    stream = make(strategy, source=source, shapes=[size], threads=threads)
    wanted = steps_of(make(strategy, shapes=[size]), 4, shapes=[size])
    stream.next_(blocks([size]))
    stream.next_(blocks([size]))
    source.broken = True
    with pytest.raises(KeyboardInterrupt):
        stream.next_(blocks([size]))
    assert source.drawing == 0  # no thread is left that may write to a slot
    source.broken = False
    with pytest.raises(InputError, match=r"rebuild\(2\)"):
        stream.next_(blocks([size]))
    stream.rebuild(2)
    assert torch.equal(steps_of(stream, 2, shapes=[size]), wanted[2:])


def test_bad_input_is_one_line():
    stream = make(Tree(2, 0.9))
    for wrong in (blocks()[:-1], blocks([15, 7, 1, 9]), [*blocks()[:-1], torch.zeros(8, dtype=torch.int64)]):
        with pytest.raises(InputError):
            stream.next_(wrong)
    for scale in (float("nan"), float("inf"), "much"):
        with pytest.raises(InputError):
            stream.add_(blocks(), scale)
    assert stream.step == 0
    steps_of(stream, 2)
    with pytest.raises(InputError, match="2 steps and all are drawn"):
        stream.next_(blocks())
    with pytest.raises(InputError, match=r"type torch\.float16"):
        make(Tree(2, 0.9), dtype=torch.float16)
    for step in (-1, 3, 1.5):
        with pytest.raises(InputError):
            stream.rebuild(step)


def test_a_state_of_another_stream_is_refused():
    stream = make(Tree(9, 0.9))
    state = stream.state()
    for wrong in (
        {"step": 1},
        {**state, "slot_9": torch.zeros(SIZE)},
        {**state, "step": 10},
        {**state, "slot_0": torch.zeros(SIZE)},
        {**state, "slot_0": torch.zeros(SIZE + 1, dtype=torch.float64)},
        {**state, "slot_0": 3},
    ):
        with pytest.raises(InputError):
            stream.load_state(wrong)
    assert stream.step == 0


def test_the_fast_source_has_the_same_interface_and_can_be_drawn_again():
    source = FastNormals(7)
    assert source.name == "fast"
    assert SOURCE.name == "chacha20"
    whole = source.fill_(torch.empty(50_000), 1, 2, 30)
    for at, count in ((0, 5), (16_000, 1000), (49_999, 1)):
        assert torch.equal(FastNormals(7).fill_(torch.empty(count), 1, 2, 30 + at), whole[at : at + count])
    for other in ((8, 1, 2), (7, 2, 2), (7, 1, 3)):
        assert not bool((FastNormals(other[0]).fill_(torch.empty(50_000), *other[1:], 30) == whole).all())
    drawn = steps_of(make(Tree(5, 0.9), source=source), 5)
    assert float(drawn.std()) > 0.5
    with pytest.raises(InputError):
        FastNormals(-1)


def test_no_blocks_and_empty_blocks_are_fine():
    stream = make(Tree(3, 0.9), shapes=[])
    stream.next_([])
    assert stream.step == 1
    stream = make(Tree(3, 0.9), shapes=[0, 4])
    parts = blocks([0, 4])
    stream.next_(parts)
    assert float(parts[1].abs().min()) > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@EVERY
def test_a_stream_on_a_device_gives_the_bits_of_the_cpu(strategy):
    cpu = make(strategy, dtype=torch.float32)
    there = make(strategy, dtype=torch.float32, device="cuda")
    for _ in range(strategy.steps):
        here, away = blocks(dtype=torch.float32), [block.cuda() for block in blocks(dtype=torch.float32)]
        cpu.add_(here, 1.5)
        there.add_(away, 1.5)
        assert torch.equal(flat(here), flat(away).cpu())
