"""A study: many trials of learners on one bandit, on several threads."""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, SupportsIndex

from bandana_lab._native import Channel, Instance, Random, Setting, run_study
from bandana_lab.result import StudyResult


class Learner(Protocol):
    """A learner that is written in Python, during a trial.

    It may also have a method ``end_batch(self) -> None``, called when all reports of a batch have
    arrived. An exception of any of its methods ends the study, which raises it.
    """

    def choose(self, rng: Random, /) -> SupportsIndex:
        """Choose an arm, from 0. Randomness comes from ``rng``, which the study's seed fixes."""

    def learn(self, arm: int, signal: float, /) -> None:
        """Hear the signal of a report: of private bits 0 or 1, of levels between them."""


class Bandit(Protocol):
    """A bandit that is written in Python: threads call it in turns."""

    @property
    def means(self) -> Sequence[float]:
        """The mean reward of each arm, from 0 to 1. They are read once."""

    def draw(self, arm: int, rng: Random, /) -> SupportsFloat:
        """Draw a reward of an arm, from 0 to 1."""


class Pool(Protocol):
    """Runs functions elsewhere: a ``dask.distributed.Client``, or an executor of ``concurrent.futures``."""

    def submit(self, function: Callable[..., str], /, *args: Any) -> Any:
        """Begins a call. What it returns has ``result()``, ``done()`` and ``cancel()``."""


# Most parts of a study that runs elsewhere.
PARTS = 64


@dataclass
class Study:
    """Settings of a study.

    A study has one channel. Studies with the same seed have the same rewards, so results of several
    channels can be compared in pairs of trials.
    """

    instance: Instance | Bandit
    """The arms."""
    learners: Sequence[str | tuple[str, Callable[[Setting], Learner]]]
    """Names from :func:`bandana_lab.learners`, or pairs of a name and of what makes a learner for each
    trial, such as a class."""
    channel: Channel
    """A channel of devices. The learners ``nonprivate-*`` and ``ldp-ucb-laplace`` bring their own."""
    horizon: int = 100_000
    """Number of rounds of a trial."""
    trials: int = 50
    """Number of trials of each learner."""
    seed: int = 1
    """The seed of all randomness."""
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Number of threads. Learners and bandits that are written in Python take turns."""
    batch: int = 1
    """Number of reports that arrive together."""
    checkpoints: Sequence[int] | None = None
    """Rounds after which the regret is recorded, ascending to the horizon; without them ten for
    each power of ten from 100 on."""
    shuffle: int | None = None
    """Number of reports of an arm that arrive together, if reports are shuffled; ``batch`` is not used
    then."""
    delta: float = 1e-6
    """The delta that the central loss of shuffled reports is stated with."""
    served: bool = False
    """Whether arms are drawn from policies as a server would serve them."""
    by_batches: bool = False
    """Whether the pulls of a policy and each arm's reports are drawn as counts, which makes horizons of
    10^8 rounds cheap. For the learners that servers have, which then play by their policies; without a
    ``batch``, policies are as far apart as a server's. Learners do not meet the same rewards."""
    dishonest: float = 0.0
    """Share of dishonest people."""
    attack: str = "flip"
    """What they do: ``"flip"`` reports zeros for the best arm and ones for all others, ``"stuff"`` ones
    for the worst arm, without being asked."""

    def run(
        self,
        progress: Callable[[int, int], object] | bool | None = None,
        *,
        client: Pool | None = None,
    ) -> StudyResult:
        """Run the study. Ctrl-C ends it with ``KeyboardInterrupt``.

        With a ``client`` its workers run the trials, on one thread each: other processes or machines that
        have this package. The result is the same, but for the times.

        ``progress`` is called with the numbers of finished and of all trials, and ends the study with
        the trials that are done by returning ``False``; ``True`` writes the numbers to ``stderr``.

        Raises ``ValueError`` for settings that can't be, and whatever a learner or a bandit that is
        written in Python raises.
        """
        if client is None:
            return self._run(progress, None)
        with tempfile.TemporaryDirectory() as folder:
            return self._run_elsewhere(client, progress, Path(folder) / "trials")

    def resume(
        self,
        file: str | os.PathLike[str],
        progress: Callable[[int, int], object] | bool | None = None,
        *,
        client: Pool | None = None,
    ) -> StudyResult:
        """Run the trials that a file does not have yet, and add each to it as it is done.

        After an interruption, of whatever kind, the same call goes on where it was, and the result is as
        if there had been none. More ``trials`` go on with those that are there. The file has a line of
        JSON for each trial; trials of studies that differ in anything else are left aside, so several
        studies may share it. Of what is written in Python only the name of a learner is compared, and
        the class's name and the means of a bandit: give one that does other things another name.

        Raises ``OSError`` when the file can't be read or written, ``ValueError`` when it holds something
        else than trials, and what :meth:`run` raises.
        """
        if client is None:
            return self._run(progress, file)
        return self._run_elsewhere(client, progress, Path(file))

    def _run_elsewhere(
        self,
        client: Pool,
        progress: Callable[[int, int], object] | bool | None,
        file: Path,
    ) -> StudyResult:
        tell = progress if callable(progress) else _tell if progress else None
        kept = file.read_text() if file.exists() else ""
        whole = kept[: kept.rfind("\n") + 1]
        # A line that an interruption has cut off.
        if kept[len(whole) :].startswith('{"learner"'):
            file.write_text(kept := whole)
        size = -(-self.trials // PARTS)
        alone = replace(self, threads=1)
        # dask takes calls with the same arguments for one, also such as are being cancelled.
        this = uuid.uuid4().hex
        parts = [
            client.submit(_part, alone, first, min(first + size, self.trials), kept, this)
            for first in range(0, self.trials, size)
        ]
        done = 0
        try:
            for part in parts:
                made = part.result()
                with file.open("a") as trials:
                    trials.write(made)
                done = min(done + size, self.trials)
                if tell is not None and tell(done, self.trials) is False:
                    # From after the last trial on there is none to run.
                    checkpoints, results, _ = run_study(self, None, file, self.trials)
                    return StudyResult(checkpoints, results, True)
        finally:
            for part in parts:
                if not part.done():
                    part.cancel()
        return self._run(None, file)

    def _run(
        self,
        progress: Callable[[int, int], object] | bool | None,
        file: str | os.PathLike[str] | None,
    ) -> StudyResult:
        tell = progress if callable(progress) else _tell if progress else None
        checkpoints, results, interrupted = run_study(self, tell, file)
        return StudyResult(checkpoints, results, interrupted)


def _part(study: Study, first: int, last: int, kept: str, _run: str) -> str:
    """Runs some trials of a study, and returns what a file of trials has of them then."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trials"
        file.write_text(kept)
        run_study(replace(study, trials=last), None, file, first)
        known = set(kept.splitlines())
        return "".join(f"{line}\n" for line in file.read_text().splitlines() if line not in known)


def _tell(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\r{done} of {total} trials", file=sys.stderr, end=end, flush=True)
