"""The step clock counts what people call a step, in every way to write a training."""

from __future__ import annotations

import random

import pytest

from tests.builders.driver import Driver
from trainprobe.derive.steps.clock import StepClock
from trainprobe.model.cells import Region, RowKind
from trainprobe.model.event import MarkRow


def counted(driver: Driver) -> int:
    clock = StepClock()
    for event in driver.events:
        if isinstance(event, MarkRow):
            list(clock.add_row(event))
    list(clock.flush())
    return clock.count


@pytest.mark.parametrize("steps", [1, 3, 7, 8, 9, 500])
def test_plain_loop(steps: int) -> None:
    driver = Driver()
    driver.train(steps)
    assert counted(driver) == steps


@pytest.mark.parametrize("accumulate", [2, 4, 16])
def test_accumulation_counts_optimiser_steps(accumulate: int) -> None:
    driver = Driver()
    for _ in range(60):
        for _ in range(accumulate):
            driver.fetch()
            driver.backward()
        driver.optimizer()
    assert counted(driver) == 60


@pytest.mark.parametrize("steps", [4, 12, 500])
def test_gan_with_the_same_optimiser_twice_and_a_loader(steps: int) -> None:
    driver = Driver()
    for _ in range(steps):
        driver.fetch()
        driver.backward()
        driver.backward()
        driver.optimizer()
        driver.backward()
        driver.optimizer()
    assert counted(driver) == steps


def test_gan_with_two_kinds_of_optimiser_and_no_loader() -> None:
    driver = Driver()
    for _ in range(100):
        driver.backward()
        driver.optimizer("Optimizer.step#SGD.step")
        driver.backward()
        driver.optimizer("Optimizer.step#Adam.step")
    assert counted(driver) == 100


def test_gan_without_a_loader_is_told_by_its_backwards() -> None:
    driver = Driver()
    for _ in range(100):
        driver.backward()
        driver.backward()
        driver.optimizer()
        driver.backward()
        driver.optimizer()
    assert counted(driver) == 100


def test_two_optimisers_after_one_backward_are_one_step() -> None:
    driver = Driver()
    for _ in range(50):
        driver.fetch()
        driver.backward()
        driver.optimizer("Optimizer.step#SparseAdam.step")
        driver.optimizer("Optimizer.step#Adam.step")
    assert counted(driver) == 50


def test_the_same_optimiser_twice_after_one_backward_is_one_step() -> None:
    driver = Driver()
    for _ in range(50):
        driver.fetch()
        driver.backward()
        driver.optimizer()
        driver.optimizer()
    assert counted(driver) == 50


def test_lbfgs_has_its_backwards_inside_the_step() -> None:
    driver = Driver()
    for i in range(40):
        driver.fetch()
        driver.optimizer("Optimizer.step#LBFGS.step")
        driver.region = Region.OPTIMIZER
        for _ in range(1 + i % 20):
            driver.backward()
        driver.region = Region.STEP
    assert counted(driver) == 40


@pytest.mark.parametrize("steps", [2, 5, 40])
def test_lbfgs_without_a_loader_counts_its_first_step(steps: int) -> None:
    """No mark came before the first step, whose backwards are not yet known to be inside of it."""
    driver = Driver()
    for i in range(steps):
        driver.optimizer("Optimizer.step#LBFGS.step")
        driver.region = Region.OPTIMIZER if i else Region.STEP
        for _ in range(5):
            driver.backward()
        driver.region = Region.STEP
    assert counted(driver) == steps


def test_a_step_before_all_backwards_is_none() -> None:
    """Of a scheduler that wants one."""
    driver = Driver()
    driver.optimizer()
    driver.train(40)
    assert counted(driver) == 40


def test_amp_skips_take_no_optimiser_step() -> None:
    driver = Driver()
    for i in range(100):
        driver.fetch()
        driver.backward()
        if i % 10 != 3:
            driver.optimizer()
    assert counted(driver) == 90


def test_evaluation_fetches_do_not_count() -> None:
    driver = Driver()
    for i in range(100):
        driver.step()
        if i % 25 == 24:
            for _ in range(30):
                driver.fetch()
    assert counted(driver) == 100


def test_no_optimiser_mark_counts_backwards() -> None:
    driver = Driver()
    for _ in range(200):
        driver.fetch()
        driver.backward()
    assert counted(driver) == 200


def test_few_backwards_without_an_optimiser_count_at_the_end() -> None:
    driver = Driver()
    for _ in range(5):
        driver.backward()
    assert counted(driver) == 5


def gpu_loop(driver: Driver, steps: int, before: int, kind: RowKind = RowKind.GPU) -> None:
    """Steps by a call of CUDA; ``before``: such calls that came before it was known for one."""
    driver.steps = before
    for _ in range(steps):
        driver.spend(0.05)
        driver.row(kind)
        driver.steps += 1


@pytest.mark.parametrize("kind", [RowKind.GPU, RowKind.RHYTHM])
def test_calls_are_steps_with_those_before_the_first_row(kind: RowKind) -> None:
    driver, before = Driver(), random.randrange(200)
    gpu_loop(driver, 60, before, kind)
    assert counted(driver) == before + 60


def test_pytorchs_marks_outrank_calls_of_cuda() -> None:
    """A libtorch that was loaded late."""
    driver = Driver()
    gpu_loop(driver, 30, 5)
    driver.steps = 0
    driver.train(40)
    gpu_loop(driver, 10, 0)
    assert counted(driver) == 40


@pytest.mark.parametrize("first", [0, 4])
def test_a_critic_that_is_trained_more_often_by_the_same_kind_of_optimiser(first: int) -> None:
    """A WGAN: each batch trains the critic, each fifth the generator, too."""
    driver = Driver()
    for number in range(200):
        driver.fetch()
        driver.backward()
        driver.optimizer()
        if number % 5 == first:
            driver.backward()
            driver.optimizer()
    assert counted(driver) == 200


@pytest.mark.parametrize("steps", [4, 12, 300])
def test_a_gan_with_the_same_optimiser_twice_and_no_loader_by_the_lengths_of_its_backwards(steps: int) -> None:
    driver = Driver()
    for _ in range(steps):
        for seconds in (0.02, 0.03):
            driver.backward(seconds * random.uniform(0.95, 1.05))
            driver.optimizer()
    assert counted(driver) == steps


ORDERS = {
    "each three in turn": "qat",
    "the actor with each second critic": "qqa",
    "twice, but with each second critic": "qqatat",
    "one first": "aqq",
}
LENGTHS = {"q": (0.042, 0.0014), "a": (0.070, 0.0010), "t": (0.0008, 0.0002)}  # seconds of the backward, the optimiser


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("rounds", [20, 200])
def test_an_actor_and_its_critic_without_a_loader_are_a_step_for_each_of_the_first(order: str, rounds: int) -> None:
    """By how long their backwards last: the first ones longer, and all of them as the machine is busy or not."""
    driver = Driver()
    driver.spend(1.0)
    for number in range(rounds):
        busy = 1.4 if 12 < number < 12 + rounds // 10 else 1.0
        for at, kind in enumerate(order):
            backward, optimizer = LENGTHS[kind]
            first = 1.9 if number == 0 and at < 3 else 1.0
            driver.backward(first * busy * backward * random.uniform(0.95, 1.05))
            driver.optimizer(seconds=optimizer * random.uniform(0.97, 1.03))
    assert counted(driver) == rounds * order.count(order[0])


def test_long_and_short_batches_in_one_order_are_steps_of_their_one_optimiser_each() -> None:
    driver = Driver()
    for _ in range(60):
        for seconds in (0.02, 0.05, 0.02):
            driver.backward(seconds * random.uniform(0.95, 1.05))
            driver.optimizer(seconds=0.0014 * random.uniform(0.97, 1.03))
    assert counted(driver) == 180


@pytest.mark.parametrize("spread", [0.02, 0.5])
def test_uneven_backwards_are_steps_each(spread: float) -> None:
    for _ in range(50):
        driver = Driver()
        for _ in range(40):
            driver.backward(0.02 * random.uniform(1 - spread, 1 + spread))
            driver.optimizer()
        assert counted(driver) == 40
