"""Comparison with SMPyBandits and mabwiser: regret on the same private bits, and rounds per second.

All play Bernoulli arms through the same channel. The others get each arm's private bits drawn in advance,
by this package's channel, so that their time is that of their learners and of the loop alone; that of
bandana-lab includes rewards, noise and regret. "the same, called" are its learners in the loop of the
others. Time is processor time of one thread.

    pip install ./aggregator/lab/python mabwiser SMPyBandits numba
    python aggregator/lab/python/compare.py
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import random
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

import bandana_lab as lab

MEANS = {
    5: [0.9, 0.8, 0.7, 0.6, 0.5],
    20: [0.9] + 5 * [0.8] + 5 * [0.7] + 5 * [0.6] + 4 * [0.5],
}
GOALS = {"SMPyBandits": 50, "mabwiser": 100}
LEARNERS = {
    "ldp-ts": "Thompson sampling",
    "ldp-ucb": "UCB1",
    "moss-anytime": "MOSS-anytime",
    "kl-ucb": "kl-UCB",
}

Choose = Callable[[], int]
Learn = Callable[[int, int], object]


@dataclass
class Measured:
    """Regrets of one learner of a library, one for each trial, and its speed."""

    library: str
    learner: str
    regrets: npt.NDArray[np.float64]
    rounds_per_second: float

    @property
    def mean(self) -> float:
        return float(self.regrets.mean())

    @property
    def half(self) -> float:
        """Half the width of the 95% interval of the mean."""
        return float(1.96 * self.regrets.std(ddof=1) / len(self.regrets) ** 0.5)


def smpybandits() -> dict[str, Callable[[int], Any]]:
    """Its policies with the settings of the laboratory's learners."""
    import scipy.special

    # Version 0.9.7 imports a function that SciPy has renamed since.
    if not hasattr(scipy.special, "btdtri"):
        scipy.special.btdtri = scipy.special.betaincinv
    # It tells at length what it could not import.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from SMPyBandits.Policies import UCB, MOSSAnytime, Thompson, klUCBloglog
    return {
        "ldp-ts": Thompson,
        "ldp-ucb": UCB,
        "moss-anytime": lambda arms: MOSSAnytime(arms, alpha=1.35),
        "kl-ucb": lambda arms: klUCBloglog(arms, c=3, tolerance=1e-6),
    }


def mabwiser() -> dict[str, Any]:
    """Its policies with the settings of the laboratory's learners. It has no other of them."""
    from mabwiser.mab import LearningPolicy

    return {
        "ldp-ts": LearningPolicy.ThompsonSampling(),
        "ldp-ucb": LearningPolicy.UCB1(alpha=1),
    }


class Bits:
    """The private bits of a trial: those of each arm's first pull, of its second, and so on."""

    def __init__(self, instance: lab.Instance, channel: lab.Channel, horizon: int, seed: int) -> None:
        rewards = np.stack([instance.draw(arm, horizon, seed) for arm in range(len(instance))])
        self.ones: list[list[int]] = channel.send(rewards, seed).astype(int).tolist()
        self.pulls = [0] * len(instance)

    def play(self, choose: Choose, learn: Learn, rounds: int) -> None:
        ones, pulls = self.ones, self.pulls
        for _ in range(rounds):
            arm = choose()
            learn(arm, ones[arm][pulls[arm]])
            pulls[arm] += 1


def play_smpybandits(make: Callable[[int], Any], bits: Bits, rounds: int, seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    policy = make(len(bits.pulls))
    policy.startGame()
    bits.play(policy.choice, policy.getReward, rounds)


def play_mabwiser(policy: Any, bits: Bits, rounds: int, seed: int) -> None:
    from mabwiser.mab import MAB

    arms = list(range(len(bits.pulls)))
    mab = MAB(arms=arms, learning_policy=policy, seed=seed)
    # It begins with data: a first round of each arm for UCB1, and of any for Thompson sampling.
    first = arms if "UCB1" in str(policy) else [seed % len(arms)]
    mab.fit(first, [bits.ones[arm][0] for arm in first])
    for arm in first:
        bits.pulls[arm] = 1
    bits.play(mab.predict, lambda arm, bit: mab.partial_fit([arm], [bit]), rounds - len(first))


def play_called(name: str, channel: lab.Channel, bits: Bits, rounds: int, seed: int) -> None:
    learner = lab.StandardLearner(name, lab.Setting(len(bits.pulls), channel), seed)
    bits.play(learner.choose, learner.learn, rounds)


def measure(
    library: str,
    learner: str,
    play: Callable[[Bits, int, int], None],
    study: lab.Study,
) -> Measured:
    instance, horizon = study.instance, study.horizon
    assert isinstance(instance, lab.Instance)
    gaps = instance.means.max() - instance.means
    regrets, seconds = [], 0.0
    # What a library compiles at its first calls is not counted.
    play(Bits(instance, study.channel, 100, 0), 100, 0)
    for trial in range(study.trials):
        seed = study.seed * 100_003 + trial
        bits = Bits(instance, study.channel, horizon, seed)
        start = time.process_time()
        play(bits, horizon, seed)
        seconds += time.process_time() - start
        regrets.append(float(gaps @ np.array(bits.pulls)))
    return Measured(library, learner, np.array(regrets), horizon * study.trials / seconds)


def compare(study: lab.Study) -> list[Measured]:
    result = study.run()
    found = [
        Measured("bandana-lab", name, one.regret[:, -1], one.rounds_per_second)
        for name, one in result.items()
    ]
    for name in LEARNERS:
        called = partial(play_called, name, study.channel)
        found.append(measure("the same, called", name, called, study))
    for name, make in smpybandits().items():
        found.append(measure("SMPyBandits", name, partial(play_smpybandits, make), study))
    for name, policy in mabwiser().items():
        found.append(measure("mabwiser", name, partial(play_mabwiser, policy), study))
    return found


def rows(found: list[Measured]) -> list[dict[str, Any]]:
    """A row for each learner of each library, beside that of bandana-lab."""
    ours = {one.learner: one for one in found if one.library == "bandana-lab"}
    table = []
    for one in sorted(found, key=lambda one: list(LEARNERS).index(one.learner)):
        base = ours[one.learner]
        is_other = one is not base
        difference = one.mean - base.mean
        half = (one.half**2 + base.half**2) ** 0.5
        table.append(
            {
                "learner": LEARNERS[one.learner],
                "library": one.library,
                "regret": one.mean,
                "ci95": one.half,
                "difference": difference if is_other else None,
                "difference_ci95": half if is_other else None,
                "agrees": abs(difference) <= half if is_other else None,
                "rounds_per_second": one.rounds_per_second,
                "ratio": base.rounds_per_second / one.rounds_per_second if is_other else None,
                "goal": GOALS.get(one.library),
            }
        )
    return table


def written(table: list[dict[str, Any]]) -> str:
    lines = [
        f"{'learner':<19}{'library':<18}{'regret':>17}{'difference':>19}{'agrees':>8}"
        f"{'rounds/s':>12}{'times':>8}{'goal':>6}"
    ]
    for row in table:
        line = f"{row['learner']:<19}{row['library']:<18}"
        line += f"{row['regret']:>9.1f} +- {row['ci95']:<5.1f}"
        if row["ratio"] is None:
            line += f"{'':>26}{row['rounds_per_second']:>12,.0f}"
        else:
            line += f"{row['difference']:>10.1f} +- {row['difference_ci95']:<5.1f}"
            line += f"{'yes' if row['agrees'] else 'NO':>8}{row['rounds_per_second']:>12,.0f}"
            line += f"{row['ratio']:>8.0f}{row['goal'] or '':>6}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--arms", type=int, choices=sorted(MEANS), default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the rows to this file")
    chosen = parser.parse_args()
    study = lab.Study(
        lab.Instance.bernoulli(MEANS[chosen.arms]),
        list(LEARNERS),
        lab.Channel("linear", epsilon=chosen.epsilon),
        horizon=chosen.horizon,
        trials=chosen.trials,
        seed=chosen.seed,
        threads=1,
    )
    table = rows(compare(study))
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("bandana-lab", *GOALS)]
    print(f"{chosen.arms} Bernoulli arms, epsilon {chosen.epsilon}, {chosen.horizon:,} rounds,", end=" ")
    print(f"{chosen.trials} trials; {', '.join(versions)}")
    print(written(table))
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
