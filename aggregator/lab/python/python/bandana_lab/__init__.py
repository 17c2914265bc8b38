"""Simulations of private bandits: learners, channels, instances, accounting, and a runner in Rust.

A :class:`Study` has learners play an :class:`Instance` whose rewards reach them through a
:class:`Channel` only, in many trials on several threads. A seed fixes its result, whatever the
threads. All learners of a trial meet the same rewards, and those with the same channel the same
noise, so differences between learners are not by luck.

>>> import bandana_lab as lab
>>> study = lab.Study(
...     lab.Instance.named("five-arms"),
...     ["ldp-ts", "ldp-ucb"],
...     lab.Channel("linear", epsilon=1.0),
...     horizon=1_000,
...     trials=4,
... )
>>> result = study.run()
>>> result.regret["ldp-ts"].shape == (4, len(result.checkpoints))
True
"""

from bandana_lab import accounting
from bandana_lab._native import (
    Channel,
    Instance,
    LearnerResult,
    Random,
    Setting,
    StandardLearner,
    learners,
)
from bandana_lab.result import StudyResult
from bandana_lab.study import Bandit, Learner, Study

__all__ = [
    "Bandit",
    "Channel",
    "Instance",
    "Learner",
    "LearnerResult",
    "Random",
    "Setting",
    "StandardLearner",
    "Study",
    "StudyResult",
    "accounting",
    "learners",
]
