"""Channels, instances and accounting on arrays and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bandana_lab as lab
from bandana_lab import accounting


@pytest.mark.parametrize(
    ("channel", "curve"),
    [
        (lab.Channel("linear", 1.0), lambda r: r),
        (lab.Channel("rr", 1.0), lambda r: r),
        (lab.Channel("quadratic", 1.0, curvature=0.5), lambda r: 0.5 * r * r + 0.5 * r),
        (lab.Channel("exponential", 1.0), lambda r: np.expm1(r) / np.expm1(1.0)),
        (lab.Channel("k-level", 1.0, levels=4), lambda r: r),
        (lab.Channel("laplace", 1.0), lambda r: r),
        (lab.Channel("none"), lambda r: r),
    ],
)
def test_signals_debias_to_the_curved_mean(channel: lab.Channel, curve: Any) -> None:
    rewards = np.linspace(0, 1, 5)
    signals = channel.send(np.tile(rewards, (100_000, 1)), seed=7)
    assert signals.shape == (100_000, 5)
    means = signals.mean(axis=0)
    # Five standard errors.
    error = 5 * signals.std(axis=0) / math.sqrt(100_000) + 1e-12
    assert (np.abs(means - channel.mean_signal(rewards)) < error).all()
    estimates = channel.debias(means)
    assert (np.abs(estimates - curve(rewards)) < error / channel.contrast).all()


def test_bits_are_those_of_randomized_response() -> None:
    channel = lab.Channel("linear", epsilon=math.log(3))
    np.testing.assert_allclose(channel.mean_signal([0, 1, 0.5]), [0.25, 0.75, 0.5], rtol=1e-12)
    assert channel.contrast == pytest.approx(0.5)
    # The likelihood ratio, from the integers.
    assert channel.floor is not None and channel.certified_epsilon is not None
    assert (2**64 - channel.floor) / channel.floor <= 3
    assert channel.certified_epsilon <= math.log(3) < channel.certified_epsilon + 1e-9
    assert set(channel.send(np.full(100, 0.5))) == {0.0, 1.0}
    assert repr(lab.Channel("k-level", 2.0, levels=6)) == 'Channel("k-level", epsilon=2, levels=6)'


def test_a_seed_fixes_the_signals_whatever_the_layout() -> None:
    channel = lab.Channel("linear", 1.0)
    rewards = np.random.default_rng(1).random((30, 40))
    signals = channel.send(rewards, seed=5)
    np.testing.assert_array_equal(signals, channel.send(np.asfortranarray(rewards), seed=5))
    np.testing.assert_array_equal(signals.ravel(), channel.send(rewards.ravel().tolist(), seed=5))
    assert not np.array_equal(signals, channel.send(rewards, seed=6))
    assert channel.send(1).shape == ()


@pytest.mark.parametrize("mechanism", ["linear", "laplace"])
def test_noise_is_independent_of_rewards_with_the_same_seed(mechanism: str) -> None:
    instance = lab.Instance.bernoulli([0.5] * 3)
    channel = lab.Channel(mechanism, 1.0)
    low, high = channel.mean_signal([0, 1])
    for arm in range(3):
        rewards = instance.draw(arm, 100_000, seed=9)
        signals = channel.send(rewards, seed=9)
        # Five standard errors of 50,000 signals with Laplace noise.
        assert signals[rewards == 0].mean() == pytest.approx(low, abs=0.032)
        assert signals[rewards == 1].mean() == pytest.approx(high, abs=0.032)


@pytest.mark.parametrize(
    ("arguments", "settings", "complaint"),
    [
        (("cubic", 1.0), {}, "no mechanism \"cubic\": linear, "),
        (("linear",), {}, "needs an epsilon"),
        (("none", 1.0), {}, "needs an epsilon"),
        (("linear", 0.0), {}, "epsilon is 0; it must be"),
        (("linear", math.nan), {}, "epsilon is NaN"),
        (("quadratic", 1.0), {}, "a curvature is for"),
        (("linear", 1.0), {"curvature": 1.0}, "a curvature is for"),
        (("quadratic", 1.0), {"curvature": 2.0}, "from -1 to 1"),
        (("k-level", 1.0), {}, "levels are for"),
        (("k-level", 1.0), {"levels": 17}, "17"),
    ],
)
def test_wrong_channels_say_what_is_right(
    arguments: tuple[Any, ...], settings: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        lab.Channel(*arguments, **settings)


@pytest.mark.parametrize("reward", [-0.1, 1.1, math.nan])
def test_a_reward_out_of_range_is_refused_and_not_repeated(reward: float) -> None:
    for channel in (lab.Channel("linear", 1.0), lab.Channel("none")):
        with pytest.raises(ValueError, match="not a number from 0 to 1; scale") as refused:
            channel.send([0.5, reward])
        assert "1.1" not in str(refused.value)


def test_instances(tmp_path: Path) -> None:
    paper = lab.Instance.named("paper-20")
    assert len(paper) == 20 and paper.means[0] == 0.9 and paper.labels[0] == "Bernoulli(.9) #1"
    assert {lab.Instance.named(name).name for name in lab.Instance.names()} == set(
        lab.Instance.names()
    )
    own = lab.Instance.bernoulli(np.array([0.2, 0.4]), labels=["a", "b"])
    assert own.means.tolist() == [0.2, 0.4] and own.labels == ["a", "b"]
    assert own.draw(1, 100_000).mean() == pytest.approx(0.4, abs=0.01)
    file = tmp_path / "arms.csv"
    file.write_text("arm,label,reward,count\n0,a,1,3\n0,a,0,1\n1,b,0.5,2\n")
    read = lab.Instance.from_csv(file)
    assert read.means.tolist() == [0.75, 0.5] and read.labels == ["a", "b"]

    file.write_text("arm,label,reward,count\n0,a,2,1\n")
    with pytest.raises(ValueError, match="line 2: reward 2 is not from 0 to 1"):
        lab.Instance.from_csv(file)
    with pytest.raises(ValueError, match="can't read the arms file"):
        lab.Instance.from_csv(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="no instance \"paper\": paper-20, "):
        lab.Instance.named("paper")
    with pytest.raises(ValueError, match="0 arms"):
        lab.Instance.bernoulli([])
    with pytest.raises(ValueError, match="a mean of 1.5"):
        lab.Instance.bernoulli([1.5])
    with pytest.raises(ValueError, match="1 labels for 2 arms"):
        lab.Instance.bernoulli([0.1, 0.2], labels=["a"])
    with pytest.raises(IndexError, match="no arm 2: 2, from 0"):
        own.draw(2, 1)


def test_accounting_agrees_with_calculations_by_hand() -> None:
    assert accounting.basic(0.5, 20) == pytest.approx(10)
    # sqrt(2 k ln(1/delta)) eps + k eps tanh(eps/2), with delta = e^-8.
    assert accounting.advanced(0.1, 100, math.exp(-8)) == pytest.approx(4 + 10 * math.tanh(0.05))
    # With e^eps = 3, two rounds tell the truth twice with 9/16: 9/16 (1 - 3/9) beyond ln 3.
    assert accounting.optimal_delta(math.log(3), 2, math.log(3)) == pytest.approx(0.375)
    assert accounting.optimal(math.log(3), 2, 0.375) == pytest.approx(math.log(3))
    assert accounting.heterogeneous([0.1, 0.2], 0.0) == pytest.approx(0.3)
    assert accounting.rho_of_pure(1.0) == pytest.approx(math.tanh(0.5))
    assert accounting.gaussian_rho(2.0, 4.0) == pytest.approx(0.125)
    simple = 0.1 + 2 * math.sqrt(0.1 * math.log(1e6))
    assert 0 < accounting.zcdp(0.1, 1e-6) < simple
    assert accounting.zcdp_delta(0.1, accounting.zcdp(0.1, 1e-6)) == pytest.approx(1e-6, rel=1e-6)


def test_shuffling_and_plans_invert_each_other() -> None:
    local = accounting.largest_local_epsilon(0.2, 1_000, 1e-6)
    assert local is not None and local > 1
    assert accounting.shuffled(local, 1_000, 1e-6) == pytest.approx(0.2, rel=1e-6)
    assert accounting.report_number(0.0625, 4.0, accountant="basic") == 64
    reports = accounting.report_number(0.0625, 4.0, 1e-6)
    assert reports > 64
    epsilon = accounting.report_epsilon(reports, 4.0, 1e-6)
    assert epsilon is not None and 0.0625 <= epsilon
    assert accounting.optimal(epsilon, reports, 1e-6) <= 4.0
    assert accounting.report_epsilon(1_000_000, 1e-6, accountant="basic") is None
    wrongs: list[tuple[Callable[[], float], str]] = [
        (lambda: accounting.basic(-1.0, 1), "the privacy loss is -1"),
        (lambda: accounting.optimal(1.0, 5, 1.5), "delta is 1.5"),
        (lambda: accounting.zcdp(-1.0, 0.1), "rho is -1"),
        (lambda: accounting.report_number(1.0, 1.0, accountant="vague"), "\"vague\": basic, "),
        (lambda: accounting.shuffled(1.0, 0, 1e-6), "the batch has 0 honest reports"),
    ]
    for wrong, complaint in wrongs:
        with pytest.raises(ValueError, match=complaint):
            wrong()
