"""Studies: what a seed fixes, learners and bandits in Python, errors and interruption."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import bandana_lab as lab


class Greedy:
    """Plays a random arm in a tenth of the rounds, and otherwise the best one so far."""

    def __init__(self, setting: lab.Setting) -> None:
        self.sums = np.zeros(setting.arms)
        self.counts = np.zeros(setting.arms)

    def choose(self, rng: lab.Random) -> int:
        if rng.random() < 0.1:
            return rng.integers(len(self.sums))
        return int(np.argmax((self.sums + 1) / (self.counts + 1)))

    def learn(self, arm: int, signal: float) -> None:
        self.sums[arm] += signal
        self.counts[arm] += 1


class First:
    """Plays the first arm, whatever it hears."""

    def __init__(self, setting: lab.Setting) -> None:
        self.setting = setting

    def choose(self, rng: lab.Random) -> int:
        return 0

    def learn(self, arm: int, signal: float) -> None:
        pass


def study(*learners: Any, **settings: Any) -> lab.Study:
    chosen: dict[str, Any] = {"horizon": 2_000, "trials": 4, "threads": 2, **settings}
    arms = chosen.pop("instance", lab.Instance.named("five-arms"))
    channel = chosen.pop("channel", lab.Channel("linear", epsilon=2.0))
    return lab.Study(arms, list(learners), channel, **chosen)


def test_a_seed_fixes_the_result_whatever_the_threads() -> None:
    learners = ["ldp-ts", "ldp-ucb", ("greedy", Greedy)]
    one = study(*learners, threads=1).run()
    two = study(*learners, threads=2).run()
    other = study(*learners, seed=2).run()
    for name in one:
        np.testing.assert_array_equal(one.regret[name], two.regret[name])
        assert not np.array_equal(one.regret[name], other.regret[name]), name


def test_a_result_has_a_row_for_each_trial_and_its_statistics() -> None:
    result = study("ldp-ts", ("first", First), trials=7, checkpoints=[10, 500, 2_000]).run()
    assert list(result) == ["ldp-ts", "first"]
    assert result.checkpoints.tolist() == [10, 500, 2_000]
    one = result["ldp-ts"]
    assert one.regret.shape == (7, 3) and one.trials.tolist() == list(range(7))
    assert (np.diff(one.regret, axis=1) >= 0).all()
    np.testing.assert_allclose(one.mean, one.regret.mean(axis=0))
    deviation = one.regret.std(axis=0, ddof=1)
    np.testing.assert_allclose(one.ci95, 1.959964 * deviation / np.sqrt(7), rtol=1e-6)
    np.testing.assert_allclose(one.median, np.median(one.regret, axis=0))
    # The first arm is the best of the five.
    assert not result.regret["first"].any()
    rows = result.rows()
    assert [(row["learner"], row["horizon"]) for row in rows[2:4]] == [
        ("ldp-ts", 2_000),
        ("first", 10),
    ]
    assert result.columns()["mean_regret"] == [row["mean_regret"] for row in rows]
    json.dumps(rows)


def test_a_plot_has_a_line_for_each_learner_and_one_for_each_bound() -> None:
    matplotlib.use("agg")
    result = study("ldp-ts", "ldp-ucb", "nonprivate-ts", trials=2).run()
    axes = result.plot(Figure().subplots())
    # The first two have one channel, and so one bound.
    bounds = ["lower bound, linear", "lower bound, none"]
    lines = {str(line.get_label()): line for line in axes.lines}
    assert list(lines) == ["ldp-ts", "ldp-ucb", "nonprivate-ts", *bounds]
    np.testing.assert_array_equal(lines["ldp-ucb"].get_ydata(), result["ldp-ucb"].mean)
    assert axes.get_xscale() == "log" and len(axes.collections) == 3
    assert len(result.plot(Figure().subplots(), bounds=False).lines) == 3
    # Without axes it draws on the current ones.
    assert result.plot() is plt.gca()
    plt.close("all")


def test_bounds_are_those_of_the_private_means() -> None:
    instance = lab.Instance.bernoulli([0.9, 0.5])
    channel = lab.Channel("linear", epsilon=1.0)
    one = study("ldp-ts", instance=instance, channel=channel, trials=1).run()["ldp-ts"]
    best, worse = channel.mean_signal([0.9, 0.5])
    divergence = worse * np.log(worse / best) + (1 - worse) * np.log((1 - worse) / (1 - best))
    assert one.lower_bound is not None and one.upper_bound is not None
    assert one.lower_bound[-1] == pytest.approx(0.4 / divergence * np.log(2_000), rel=1e-6)
    # Levels have no bound.
    levels = lab.Channel("k-level", 1.0, levels=4)
    assert study("ldp-ts", channel=levels, trials=1).run()["ldp-ts"].lower_bound is None


def test_all_learners_learn_and_thompson_sampling_in_python_as_fast() -> None:
    class Thompson:
        def __init__(self, setting: lab.Setting) -> None:
            self.ones = [[1.0, 1.0] for _ in range(setting.arms)]

        def choose(self, rng: lab.Random) -> int:
            samples = [rng.beta(a, b) for a, b in self.ones]
            return samples.index(max(samples))

        def learn(self, arm: int, signal: float) -> None:
            self.ones[arm][int(signal < 0.5)] += 1

    instance = lab.Instance.bernoulli([0.9] + 4 * [0.5])
    learners = ["ldp-ts", ("python", Thompson), ("greedy", Greedy)]
    result = study(*learners, instance=instance, trials=20, seed=3).run()
    last = {name: (one.mean[-1], one.ci95[-1]) for name, one in result.items()}
    # Uniform play loses 640.
    assert all(mean < 400 for mean, _ in last.values()), last
    # The same learner: equal within the intervals of both.
    (rust, half), (python, other) = last["ldp-ts"], last["python"]
    assert abs(rust - python) < half + other, last


@pytest.mark.parametrize("name", ["ldp-ts", "ldp-ucb", "rand-ada-kl", "top-two"])
def test_a_learner_around_one_of_the_laboratory_makes_its_choices(name: str) -> None:
    class Around:
        def __init__(self, setting: lab.Setting) -> None:
            self.inner = lab.StandardLearner(name, setting)

        def choose(self, rng: lab.Random) -> int:
            return self.inner.choose(rng)

        def learn(self, arm: int, signal: float) -> None:
            self.inner.learn(arm, signal)

        def end_batch(self) -> None:
            self.inner.end_batch()

    for settings in ({"batch": 10}, {"shuffle": 10}):
        result = study(name, ("around", Around), **settings).run()
        np.testing.assert_array_equal(result.regret[name], result.regret["around"])


def test_every_learner_learns_in_a_loop_of_ones_own() -> None:
    draws = np.random.default_rng(1)
    for name in lab.learners():
        own = {"ldp-ucb-laplace": lab.Channel("laplace", 8.0)}
        default = lab.Channel("none") if name.startswith("nonprivate") else lab.Channel("linear", 8.0)
        channel = own.get(name, default)
        learner = lab.StandardLearner(name, lab.Setting(3, channel), seed=2)
        pulls = [0, 0, 0]
        for _ in range(1_000):
            arm = learner.choose()
            pulls[arm] += 1
            reward = float(draws.random() < (0.1, 0.9, 0.2)[arm])
            learner.learn(arm, float(channel.send(reward, seed=int(draws.integers(2**32)))))
        # Uniform play gives a third of the rounds to the best arm, a learner for verdicts half.
        assert name == "uniform" or pulls[1] > 400, (name, pulls)


def test_a_learner_says_what_it_can_hear() -> None:
    setting = lab.Setting(2, lab.Channel("linear", 1.0))
    learner = lab.StandardLearner("ldp-ts", setting)
    assert learner.name == "ldp-ts" and repr(learner) == '<StandardLearner "ldp-ts" of 2 arms>'
    for arm, signal in [(2, 1.0), (0, float("nan"))]:
        with pytest.raises(ValueError, match=f"for arm {arm}; there are 2 arms"):
            learner.learn(arm, signal)
    for name, channel in [("ldp-ts", "none"), ("nonprivate-ts", "linear"), ("ldp-ucb-laplace", "rr")]:
        unheard = lab.Channel(channel, None if channel == "none" else 1.0)
        with pytest.raises(ValueError, match=f"\"{name}\" does not hear the channel \"{channel}\""):
            lab.StandardLearner(name, lab.Setting(2, unheard))
    with pytest.raises(ValueError, match="no learner \"nobody\": ldp-ts, "):
        lab.StandardLearner("nobody", setting)
    for arms, batch in [(0, 1), (1025, 1), (2, 0)]:
        with pytest.raises(ValueError, match=f"{arms} arms and a batch of {batch}"):
            lab.Setting(arms, lab.Channel("linear", 1.0), batch)


def test_learners_meet_the_same_rewards_and_noise() -> None:
    heard: dict[str, list[float]] = {"a": [], "b": []}

    def listens_as(name: str) -> Callable[[lab.Setting], lab.Learner]:
        class Listener(First):
            def choose(self, rng: lab.Random) -> int:
                return 1 if name == "b" and rng.random() < 0.5 else 0

            def learn(self, arm: int, signal: float) -> None:
                if arm == 0:
                    heard[name].append(signal)

        return Listener

    study(("a", listens_as("a")), ("b", listens_as("b")), trials=1, threads=1).run()
    # The n-th pull of an arm gives the same, whatever was chosen between.
    count = len(heard["b"])
    assert 800 < count < 1_200 and len(heard["a"]) == 2_000
    assert heard["b"] == heard["a"][:count]


def test_batches_end_and_settings_are_told() -> None:
    seen: list[Any] = []

    class Batched(First):
        def learn(self, arm: int, signal: float) -> None:
            seen.append(signal)

        def end_batch(self) -> None:
            seen.append("end")

    def make(setting: lab.Setting) -> Batched:
        seen.append((setting.arms, setting.batch, setting.fills_batches, setting.channel.floor))
        return Batched(setting)

    channel = lab.Channel("linear", epsilon=2.0)
    study(("batched", make), batch=500, trials=1, threads=1).run()
    assert seen[0] == (5, 500, False, channel.floor)
    assert [place for place, entry in enumerate(seen[1:]) if entry == "end"] == [500, 1001, 1502, 2003]


def test_shuffled_and_served_studies() -> None:
    shuffled = study("ldp-ts", shuffle=100, delta=1e-6).run()["ldp-ts"]
    assert shuffled.central_epsilon == lab.accounting.shuffled(2.0, 100, 1e-6)
    served = study("ldp-ts", served=True, batch=100).run()["ldp-ts"]
    assert served.central_epsilon is None and served.mean[-1] > 0
    with pytest.raises(ValueError, match="a server has no learner imed"):
        study("imed", served=True).run()


@pytest.mark.parametrize("method", ["__init__", "choose", "learn", "end_batch"])
def test_an_exception_of_a_learner_is_raised_with_its_traceback(method: str) -> None:
    def fail(*_: object) -> None:
        raise LookupError("lost my notes")

    broken = type("Broken", (First,), {method: fail})
    with pytest.raises(LookupError, match="lost my notes") as raised:
        study("ldp-ts", ("broken", broken)).run()
    assert any(frame.name == "fail" for frame in traceback.extract_tb(raised.value.__traceback__))


def test_an_exception_before_a_batch_is_full_is_raised_too() -> None:
    class Late(First):
        rounds = 0

        def choose(self, rng: lab.Random) -> int:
            self.rounds += 1
            return 1 // (1_900 - self.rounds)

    with pytest.raises(ZeroDivisionError):
        study(("late", Late), batch=2_000, threads=1, trials=1).run()


@pytest.mark.parametrize("arm", [5, -1, 2**40])
def test_an_arm_that_is_not_there_is_an_error(arm: int) -> None:
    class Astray(First):
        def choose(self, rng: lab.Random) -> int:
            return arm

    with pytest.raises(ValueError, match=f"\"astray\" chose arm {arm}; there are 5, from 0"):
        study(("astray", Astray)).run()


def test_random_numbers_end_with_their_call() -> None:
    kept: list[lab.Random] = []

    class Keeper(First):
        def choose(self, rng: lab.Random) -> int:
            kept.append(rng)
            assert 0 <= rng.random() < 1 and rng.integers(3) in (0, 1, 2)
            assert 0 <= rng.beta(0.5, 2.0) <= 1 and abs(rng.normal(5.0, 0.1) - 5) < 1
            return 0

    study(("keeper", Keeper), trials=1).run()
    with pytest.raises(RuntimeError, match="lent for a call that is over"):
        kept[0].random()


def test_a_bandit_in_python_gives_the_rewards_of_its_draws() -> None:
    class Coins:
        means = (0.9, 0.5, 0.5, 0.5, 0.5)

        def draw(self, arm: int, rng: lab.Random) -> float:
            return float(rng.random() >= 1 - self.means[arm])

    same = study("ldp-ts", instance=Coins()).run()
    rust = study("ldp-ts", instance=lab.Instance.bernoulli(list(Coins.means))).run()
    np.testing.assert_array_equal(same.regret["ldp-ts"], rust.regret["ldp-ts"])
    assert same["ldp-ts"].lower_bound is None

    class Generous(Coins):
        def draw(self, arm: int, rng: lab.Random) -> float:
            return 2.0

    with pytest.raises(ValueError, match="a reward of 2 for arm"):
        study("ldp-ts", instance=Generous()).run()
    Generous.means = (1.5,) * 5
    with pytest.raises(ValueError, match="means"):
        study("ldp-ts", instance=Generous()).run()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"horizon": 0}, "a horizon of 0"),
        ({"batch": 0}, "a batch of 0"),
        ({"batch": 2_001}, "2000 rounds never fill"),
        ({"shuffle": 2_001}, "2000 rounds never fill"),
        ({"trials": 0}, "no trials"),
        ({"threads": 0}, "no threads"),
        ({"checkpoints": [5, 3, 2_000]}, "must ascend"),
        ({"checkpoints": [5]}, "to the horizon, 2000"),
        ({"checkpoints": []}, "to the horizon, 2000"),
        ({"dishonest": 1.5}, "dishonest share of 1.5"),
        ({"attack": "lie"}, "no attack \"lie\": flip or stuff"),
        ({"delta": 2.0}, "delta is 2"),
        ({"by_batches": True, "served": True}, "both served and by_batches"),
        ({"by_batches": True, "shuffle": 10}, "no shuffled reports and no dishonest people"),
        ({"channel": lab.Channel("none")}, "a channel of devices"),
    ],
)
def test_wrong_settings_say_what_is_right(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        study("ldp-ts", **settings).run()


def test_wrong_learners_say_what_is_right() -> None:
    with pytest.raises(ValueError, match="no learner \"nobody\": ldp-ts, "):
        study("nobody").run()
    with pytest.raises(ValueError, match="two learners of the study are named \"ldp-ts\""):
        study("ldp-ts", ("ldp-ts", First)).run()
    with pytest.raises(ValueError, match="no learners"):
        study().run()
    with pytest.raises(ValueError, match="first chooses arm by arm; by batches"):
        study(("first", First), by_batches=True).run()
    with pytest.raises(AttributeError, match="choose"):
        study(("object", lambda setting: object())).run()


def test_progress_counts_trials_and_can_end_a_study(capfd: pytest.CaptureFixture[str]) -> None:
    counts: list[tuple[int, int]] = []
    study("ldp-ts", ("first", First)).run(lambda *count: counts.append(count))
    assert counts == sorted(set(counts)) and counts[-1] == (8, 8)
    study("ldp-ts").run(True)
    assert capfd.readouterr().err.endswith("4 of 4 trials\n")

    # It would take weeks.
    long = study("ldp-ts", trials=1_000_000_000, threads=1)
    ended = long.run(lambda done, total: done < 1)
    assert ended.interrupted and 1 <= len(ended["ldp-ts"].trials) < 1_000_000_000

    def fail(done: int, total: int) -> None:
        raise LookupError("no bar")

    with pytest.raises(LookupError, match="no bar"):
        long.run(fail)


def test_a_study_that_was_interrupted_goes_on_with_what_was_kept(tmp_path: Path) -> None:
    file = tmp_path / "trials.jsonl"
    ended = threading.Event()
    made: list[lab.Setting] = []

    class Waiting(Greedy):
        """Has its second trial wait until the study is to end."""

        def __init__(self, setting: lab.Setting) -> None:
            super().__init__(setting)
            made.append(setting)
            if len(made) > 1:
                ended.wait(60)

    def both() -> lab.Study:
        return study("ldp-ts", ("greedy", Waiting), threads=1, trials=50)

    def end(done: int, total: int) -> bool:
        ended.set()
        return False

    part = both().resume(file, end)
    done = sum(len(one.trials) for one in part.values())
    assert part.interrupted and 1 <= done < 100
    # As a kill in the middle of a write leaves it.
    with file.open("a") as torn:
        torn.write('{"learner":"ldp-ts')
    counts: list[int] = []
    whole = both().resume(str(file), lambda done, total: counts.append(done))
    assert not whole.interrupted and counts[-1] == 100 and len(file.read_text().splitlines()) == 100
    at_once = both().run()
    for name in at_once:
        np.testing.assert_array_equal(whole.regret[name], at_once.regret[name])
        np.testing.assert_array_equal(whole[name].mean, at_once[name].mean)
        np.testing.assert_array_equal(whole[name].trials, at_once[name].trials)
    # All trials are there now; those of another study are left aside.
    before = file.read_text()
    np.testing.assert_array_equal(both().resume(file).regret["greedy"], at_once.regret["greedy"])
    assert file.read_text() == before
    other = study("ldp-ts", seed=2).resume(file)
    np.testing.assert_array_equal(other.regret["ldp-ts"], study("ldp-ts", seed=2).run().regret["ldp-ts"])
    assert len(file.read_text().splitlines()) == 104


def test_what_a_study_is_made_of_can_be_pickled(tmp_path: Path) -> None:
    file = tmp_path / "arms.csv"
    file.write_text("arm,label,reward,count\n0,a,0,3\n0,a,1,1\n1,b,0.3333333333333333,7\n")
    instances = [lab.Instance.named(name) for name in lab.Instance.names()]
    for one in [*instances, lab.Instance.from_csv(file), lab.Instance.bernoulli([0.1, 1 / 3], ["x", "y"])]:
        again = pickle.loads(pickle.dumps(one))
        assert (again.name, again.labels) == (one.name, one.labels)
        np.testing.assert_array_equal(again.means, one.means)
        np.testing.assert_array_equal(again.draw(0, 50), one.draw(0, 50))
    for channel in [
        lab.Channel("linear", 1 / 3),
        lab.Channel("quadratic", 1.0, curvature=-0.1),
        lab.Channel("k-level", 2.0, levels=5),
        lab.Channel("laplace", 0.7),
        lab.Channel("none"),
    ]:
        other = pickle.loads(pickle.dumps(channel))
        assert (other.mechanism, other.epsilon, other.floor) == (channel.mechanism, channel.epsilon, channel.floor)
        rewards = np.linspace(0, 1, 20)
        np.testing.assert_array_equal(other.send(rewards), channel.send(rewards))


def test_a_study_runs_on_workers_and_goes_on_after_an_interruption(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    wanted = study("ldp-ts", "ldp-ucb", trials=70).run()

    def check(found: lab.StudyResult) -> None:
        assert not found.interrupted
        for name in wanted:
            np.testing.assert_array_equal(found.regret[name], wanted.regret[name])
            np.testing.assert_array_equal(found[name].trials, wanted[name].trials)

    cluster = LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    )
    with cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
        told: list[tuple[int, int]] = []
        check(study("ldp-ts", "ldp-ucb", trials=70).run(lambda *done: told.append(done), client=client))
        assert told[0] == (2, 70) and told[-1] == (70, 70)
        file = tmp_path / "trials.jsonl"
        part = study("ldp-ts", "ldp-ucb", trials=70).resume(file, lambda done, _: done < 20, client=client)
        assert part.interrupted
        with file.open("a") as torn:
            torn.write('{"learner":"ldp-ts')
        kept = len(file.read_text().splitlines()) - 1
        assert 40 <= kept < 140
        check(study("ldp-ts", "ldp-ucb", trials=70).resume(file, client=client))
        assert len(file.read_text().splitlines()) == 140
        with pytest.raises(ValueError, match="horizon of 0"):
            study("ldp-ts", horizon=0).run(client=client)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        check(study("ldp-ts", "ldp-ucb", trials=70).run(client=pool))


def test_trials_in_python_are_known_again_in_another_process(tmp_path: Path) -> None:
    program = """
import sys, bandana_lab as lab

class Coins:
    means = (0.9, 0.5)
    def draw(self, arm, rng): return float(rng.random() < self.means[arm])

class Last:
    def __init__(self, setting): pass
    def choose(self, rng): return 1
    def learn(self, arm, signal): pass

study = lab.Study(Coins(), [("last", Last)], lab.Channel("linear", 1.0), horizon=100, trials=3)
told = []
study.resume(sys.argv[1], lambda done, total: told.append(done))
print(told[-1:])
"""
    run = [sys.executable, "-c", program, str(tmp_path / "trials.jsonl")]
    for told in ("[3]\n", "[]\n"):
        done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
        assert (done.stdout, done.returncode) == (told, 0), done.stderr


def test_a_file_that_is_something_else_is_an_error_and_left_as_it_is(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("no trial\n")
    with pytest.raises(ValueError, match="line 1: this is not a trial"):
        study("ldp-ts").resume(notes)
    assert notes.read_text() == "no trial\n"
    with pytest.raises(OSError, match="the trials in"):
        study("ldp-ts").resume(tmp_path / "missing" / "trials.jsonl")


def test_by_batches_regret_is_that_of_single_rounds_and_long_horizons_are_cheap() -> None:
    # A server's policies cost LDP-TS less than 40 trials tell. Five standard errors.
    settings: dict[str, Any] = {"horizon": 20_000, "trials": 40, "checkpoints": [20_000]}
    single = study("ldp-ts", **settings).run()["ldp-ts"]
    batches = study("ldp-ts", by_batches=True, **settings).run()["ldp-ts"]
    error = float(np.hypot(single.ci95[0], batches.ci95[0])) / 1.96
    assert abs(single.mean[0] - batches.mean[0]) < 5 * error
    # Learners that choose arm by arm, a million times, would take minutes.
    long = study("ldp-ts", "uniform", by_batches=True, horizon=10_000_000, trials=1).run()
    assert 0 < long["ldp-ts"].mean[-1] < 0.01 * long["uniform"].mean[-1]


INTERRUPTED = """
import signal, bandana_lab as lab

class Killer:
    "Sends Ctrl-C from a thread of the study, and would go on for weeks."
    def __init__(self, setting): self.rounds = 0
    def choose(self, rng):
        self.rounds += 1
        if self.rounds == 1_000:
            signal.raise_signal(signal.SIGINT)
        return 0
    def learn(self, arm, signal): pass

study = lab.Study(lab.Instance.named("two-arms"), [("killer", Killer), "ldp-ts"],
    lab.Channel("linear", 1.0), horizon=10**12, trials=2, threads=2, checkpoints=[10**12])
try:
    study.run()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_a_study() -> None:
    run = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr
