from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from nccl_tf import rng, xla
from nccl_tf.rng import sample_without_replacement, uniform_below


def seed(number: int) -> tf.Tensor:
    return tf.constant([7, number], tf.int64)


@tf.function(autograph=False)
def draw(number, population, count):
    return sample_without_replacement(
        tf.stack([tf.constant(7, tf.int64), number]), population, count
    )


def draws(population: int, count: int, times: int) -> np.ndarray:
    return np.array(
        [
            draw(tf.constant(i, tf.int64), tf.constant(population, tf.int64), count)
            for i in range(times)
        ]
    )


def test_every_subset_is_equally_likely():
    drawn = draws(5, 3, 1000)
    counts = Counter(tuple(sorted(row)) for row in drawn.tolist())
    assert len(counts) == 10
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_draws_are_distinct_and_in_range_for_every_population():
    for population in (10, 11, 12, 19, 1000):
        drawn = draws(population, 10, 100)
        assert drawn.min() >= 0 and drawn.max() < population
        assert all(len(set(row)) == 10 for row in drawn.tolist())


def test_a_population_of_the_count_is_drawn_whole():
    assert all(sorted(row) == list(range(10)) for row in draws(10, 10, 50).tolist())


def test_uniform_below_reaches_each_value_below_its_own_bound():
    bounds = tf.constant([1, 2, 3, 1000])
    drawn = np.array([uniform_below(seed(i), bounds) for i in range(150)])
    assert (drawn[:, 0] == 0).all()
    assert set(drawn[:, 1]) == {0, 1} and set(drawn[:, 2]) == {0, 1, 2}
    assert 800 < drawn[:, 3].max() < 1000


NUMBERS = np.arange(1, 41)
DRAWS = {
    "uniform_below": lambda seed: rng.uniform_below(seed, tf.constant(NUMBERS**5, tf.int64)),
    "random_order": lambda seed: rng.random_order(seed, tf.constant(NUMBERS % 3, tf.float32)),
    "uniform": lambda seed: rng.uniform(seed, 40),
    "weighted_sample_without_replacement": lambda seed: rng.weighted_sample_without_replacement(
        seed, tf.constant(NUMBERS % 4, tf.float32), tf.constant(25)
    ),
    "sample_without_replacement": lambda seed: sample_without_replacement(
        seed, tf.constant(50, tf.int64), 10
    ),
    "standard_normal": lambda seed: rng.standard_normal(seed, 41, "float64"),
}
SEEDS = {
    "of a memory": lambda number: tf.stack([tf.constant(7, tf.int64), number]),
    "of a learner": lambda number: rng.apart(7, number),
    "of 34 bits": lambda number: tf.stack([tf.constant(2**33 + 7, tf.int64), number]),
    "as an argument": lambda number: tf.stack([number + 2**33, number]),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, "as an argument") for name in DRAWS] + [("uniform_below", kind) for kind in SEEDS],
)
def test_xla_draws_the_same_numbers(name, kind):
    def draw(number):
        return DRAWS[name](SEEDS[kind](number))

    plain = tf.function(draw, autograph=False)
    compiled = tf.function(draw, autograph=False, jit_compile=True)
    for number in (0, 1, 2**31 + 5):
        number = tf.constant(number, tf.int64)
        expected, found = plain(number).numpy(), compiled(number).numpy()
        if name == "standard_normal":  # of which logarithm and cosine are rounded otherwise
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
        else:
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, -3])
def test_a_program_reads_its_seed(seed):
    """It draws the numbers of a constant, one of 32 bits by the one operation that is fast."""
    bounds = tf.constant(NUMBERS**5, tf.int64)

    def draw(number):
        return rng.uniform_below(rng.seeded(seed, number), bounds)

    @tf.function(autograph=False, jit_compile=True)
    def program(number):
        with xla.program():
            return draw(number)

    number = tf.constant(5, tf.int64)
    np.testing.assert_array_equal(program(number), draw(number))
    operations = program.get_concrete_function(number).graph.get_operations()
    fast = [op for op in operations if op.type == "StatelessRandomGetKeyCounter"]
    assert bool(fast) == (0 <= seed < 2**32)
    read = [op for op in operations if op.type == "ReadVariableOp"]
    assert len(read) == 1


def test_every_draw_is_compared():
    own = {n for n, value in vars(rng).items() if getattr(value, "__module__", "") == rng.__name__}
    assert {name for name in own if not name.startswith("_")} == {
        *DRAWS, "apart", "number_of", "seeded", "with_argument",
    }  # fmt: skip
