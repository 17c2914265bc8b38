"""The result of a study: arrays, columns for a data frame, and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bandana_lab._native import LearnerResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class StudyResult(Mapping[str, LearnerResult]):
    """The results of a study's learners, by their names in the study's order."""

    def __init__(
        self,
        checkpoints: list[int],
        results: list[LearnerResult],
        interrupted: bool = False,
    ) -> None:
        self.checkpoints: npt.NDArray[np.uint64] = np.array(checkpoints, dtype=np.uint64)
        """Rounds after which the regret was recorded."""
        self.interrupted = interrupted
        """Whether the study was ended before all trials were done."""
        self._results = {one.learner: one for one in results}

    def __getitem__(self, learner: str) -> LearnerResult:
        return self._results[learner]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def __repr__(self) -> str:
        last = [f"{one.learner} {one.mean[-1]:.1f} +- {one.ci95[-1]:.1f}" for one in self.values()]
        return f"<StudyResult, regret after {self.checkpoints[-1]} rounds: {', '.join(last)}>"

    @property
    def regret(self) -> dict[str, npt.NDArray[np.float64]]:
        """The regret of each trial (rows) at each checkpoint (columns), by learner."""
        return {name: one.regret for name, one in self.items()}

    def columns(self) -> dict[str, list[Any]]:
        """One row for each learner and checkpoint, as columns: ``pandas.DataFrame(result.columns())``."""
        rows = self.rows()
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}

    def rows(self) -> list[dict[str, Any]]:
        """One row for each learner and checkpoint. What there is not is ``None``."""
        return [
            {
                "learner": one.learner,
                "mechanism": one.mechanism,
                "epsilon": one.epsilon,
                "central_epsilon": one.central_epsilon,
                "horizon": int(horizon),
                "trials": len(one.trials),
                "mean_regret": float(one.mean[at]),
                "ci95": float(one.ci95[at]),
                "median": float(one.median[at]),
                "p95": float(one.p95[at]),
                "p99": float(one.p99[at]),
                "lower_bound": None if one.lower_bound is None else float(one.lower_bound[at]),
                "upper_bound": None if one.upper_bound is None else float(one.upper_bound[at]),
                "rounds_per_second": one.rounds_per_second,
            }
            for one in self.values()
            for at, horizon in enumerate(self.checkpoints)
        ]

    def plot(self, ax: Axes | None = None, *, bounds: bool = True) -> Axes:
        """Plot the mean regrets with their 95% intervals, and the lower bounds dashed.

        Needs matplotlib. Without ``ax`` it draws on matplotlib's current axes.
        """
        import matplotlib.pyplot as plt

        axes = plt.gca() if ax is None else ax
        for name, one in self.items():
            (line,) = axes.plot(self.checkpoints, one.mean, label=name)
            low, high = one.mean - one.ci95, one.mean + one.ci95
            axes.fill_between(self.checkpoints, low, high, alpha=0.2, color=line.get_color())
        drawn: list[npt.NDArray[np.float64]] = []
        for one in self.values() if bounds else ():
            bound = one.lower_bound
            if bound is not None and not any(np.array_equal(bound, other) for other in drawn):
                label = f"lower bound, {one.mechanism}"
                axes.plot(self.checkpoints, bound, linestyle="--", color="gray", label=label)
                drawn.append(bound)
        axes.set_xscale("log")
        axes.set_xlabel("round")
        axes.set_ylabel("regret")
        axes.legend()
        return axes
