"""The client as an app holds it, and the thread that carries out its steps."""

from __future__ import annotations

import asyncio
import builtins
import functools
import logging
import math
import operator
import os
import ssl
import time
import weakref
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Type, Union

from . import _core, _threads
from ._checks import entries, flag, given, number, path, real, text, texts, whole
from ._core import SetupError, Standing, Status
from ._transport import Answer, Posts, Transport
from ._watch import Watch

__all__ = [
    "Answer",
    "Bandana",
    "Binary",
    "Bounded",
    "Budget",
    "Categorical",
    "Choice",
    "Experiment",
    "NotReady",
    "SetupError",
    "Transport",
]

# On the client's own thread, which not even an exit that a handler asks for may end.
_log = functools.partial(_threads.log, held=BaseException)

# The longest wait of the thread.
_WAIT_MAX_MS = 86_400_000

# How often a waiting app looks, in seconds.
_GLANCE = 0.01


# The generated enums have no types.
_untyped: Any = _core


@dataclass(frozen=True)
class Binary:
    """Rewards of 0 or 1; without a reward, 0."""


@dataclass(frozen=True)
class Bounded:
    """Rewards from ``low`` to ``high``; beyond that the nearest of both counts. Without a reward it is
    what the experiment says, ``low`` as a rule."""

    low: float
    high: float


@dataclass(frozen=True)
class Categorical:
    """Rewards 0, 1, ... up to ``categories`` - 1; without a reward, 0."""

    categories: int


Rewards = Union[Binary, Bounded, Categorical]


def _terms(rewards: Rewards, what: str = "rewards") -> Any:
    if isinstance(rewards, Binary):
        return _untyped.RewardTerms.BINARY()
    if isinstance(rewards, Bounded):
        low, high = number(rewards.low, f"{what}: low"), number(rewards.high, f"{what}: high")
        return _untyped.RewardTerms.BOUNDED(low=low, high=high)
    if isinstance(rewards, Categorical):
        categories = whole(rewards.categories, f"{what}: categories")
        return _untyped.RewardTerms.CATEGORICAL(categories=categories)
    raise ValueError(f"{what} are {rewards!r}; give Binary(), Bounded(...) or Categorical(...)")


def _segments(segments: object) -> List[_core.Segment]:
    return [
        _core.Segment(name=name, value=text(value, f"segments: {name}"))
        for name, value in entries(segments, "segments")
    ]


def _metrics(metrics: object) -> List[_core.Metric]:
    return [
        _core.Metric(name=name, values=_terms(values, f"metrics: values of {name}"))
        for name, values in entries(metrics, "metrics")
    ]


@dataclass(frozen=True)
class Budget:
    """The most that reports may cost an installation, in nats: in any ``days`` days, and in all."""

    window: float = 5.0
    days: int = 7
    lifetime: float = 20.0


@dataclass(frozen=True)
class Log:
    """A server's public log, which must say what the server tells.

    ``key`` is the log's key and ``witnesses`` those of its witnesses, as ``bandana log-key`` printed
    them. ``quorum`` of them must have seen what the log says; ``None``: more than half.
    """

    key: str
    witnesses: Sequence[str]
    quorum: Optional[int] = None


def _log_terms(log: object, what: str) -> Any:
    if not isinstance(log, Log):
        raise ValueError(f"{what} is {log!r}; give a bandana.Log")
    return _core.LogTerms(
        key=text(log.key, f"{what}: key"),
        witnesses=texts(log.witnesses, f"{what}: witnesses"),
        quorum=given(whole, log.quorum, f"{what}: quorum"),
    )


class NotReady(Exception):
    """An experiment gives no arms yet; the text says why."""


def _refuse_copy(held: object, *_: object) -> Any:
    raise TypeError(
        f"a {type(held).__name__} can't be copied or pickled: it belongs to the client of this "
        "process; keep its label and its assignment"
    )


# What is generated would copy the number of an object that is freed once for each copy.
_untyped.Core.__reduce_ex__ = _refuse_copy


class Choice:
    """What to show: an arm, or the app's own default. It can't be copied or pickled."""

    __reduce_ex__ = _refuse_copy

    def __init__(self, core: _core.Core, process: int, choice: _core.Choice) -> None:
        self._core = core
        self._process = process
        self._choice = choice

    @property
    def label(self) -> Optional[str]:
        """The label of the arm; ``None``: show the default."""
        return self._choice.label

    @property
    def arm(self) -> Optional[int]:
        """The index of the arm; ``None``: show the default."""
        return self._choice.arm

    @property
    def assignment(self) -> Optional[int]:
        """The number for :meth:`Bandana.reward`, also after a restart; ``None``: the default."""
        return self._choice.assignment

    @property
    def is_reported(self) -> bool:
        """Whether there will be a report, whatever the user does."""
        return self._choice.is_reported

    @property
    def reason(self) -> Optional[str]:
        """Why it is the default, or why there will be no report."""
        return self._choice.reason

    def label_or(self, default: str) -> str:
        """The label of the arm, or ``default``."""
        return default if self._choice.label is None else self._choice.label

    def reward(self, reward: float) -> bool:
        """Adds a reward, while the window lasts. Returns whether it was taken; of the default, and in a
        copy of the process, it is not. All rewards of an assignment make one report."""
        return _add(self._core, self._process, self._choice.assignment, None, reward)

    def measure(self, metric: str, value: float) -> bool:
        """Adds a value of a metric, as :meth:`reward`. An assignment reports its rewards or one
        metric, which was drawn with its arm; so tell of all of them. A metric that the experiment
        does not have is ignored."""
        return _add(self._core, self._process, self._choice.assignment, metric, value)

    def __repr__(self) -> str:
        return f"Choice(label={self.label!r}, reason={self.reason!r})"


class Experiment:
    """One experiment of an app."""

    def __init__(self, client: Bandana, name: str) -> None:
        self._client = client
        self._core = client._core
        self.name = name

    def is_ready(self) -> bool:
        """Whether there is a policy, so that :meth:`choose` gives arms."""
        return self._core.is_ready(self.name)

    def why_not_ready(self) -> Optional[str]:
        """Why :meth:`choose` gives no arms, in words; ``None``: it does."""
        return self._core.why_not_ready(self.name)

    def labels(self) -> List[str]:
        """The labels of the arms in play; none before there is a policy."""
        return list(self._core.labels(self.name))

    def wait_until_ready(self, patience: float) -> None:
        """Waits until :meth:`is_ready`, for so many seconds: for the first start of a program that
        has nothing else to do. An app shows its default meanwhile.

        Raises :class:`NotReady` after that time, with what is in the way; at once when the client was
        closed, or the process is a copy of the one that has it.
        """
        for _ in self._glances(patience):
            time.sleep(_GLANCE)

    async def ready(self, patience: float) -> None:
        """:meth:`wait_until_ready` for ``asyncio``: other tasks go on meanwhile."""
        for _ in self._glances(patience):
            await asyncio.sleep(_GLANCE)

    def _glances(self, patience: float) -> Iterator[None]:
        end = time.monotonic() + patience
        while (why := self.why_not_ready()) is not None:
            # Nobody asks the server any more.
            is_over = self._client._tell_of_copy() or self._core.status().standing is Standing.CLOSED
            if is_over or time.monotonic() >= end:
                raise NotReady(f"{self.name}: {why}")
            yield

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls ``listener`` whenever :meth:`choose` begins to give arms, or ceases to, and never because
        of a reward. Returns what ends that.

        It is called on the client's own thread, or on that which closes the client: in ``asyncio``, give
        one that calls ``loop.call_soon_threadsafe``. With eventlet, only the latter calls it."""
        if not callable(listener):
            raise ValueError(f"the listener is {listener!r}; give a function without parameters")
        return self._client._watch.add(self._core, self.name, listener)

    def choose(self) -> Choice:
        """The arm to show: that of the assignment whose attribution window lasts, also after a
        restart, or else a new one. Never waits, never fails."""
        self._client._tell_of_copy()
        return Choice(self._core, self._client._process, self._core.choose(self.name))

    def draw(self) -> Choice:
        """A new assignment, also while the attribution window of another lasts. In an experiment with
        `redraw`, each draws an arm again and is paid for. In others the arm stays, and one is reported."""
        self._client._tell_of_copy()
        return Choice(self._core, self._client._process, self._core.draw(self.name))


class Bandana:
    """The client of an app, and a thread that talks to the aggregator at ``url``.

    ``consent`` says whether the user consents; without, nothing is fetched or sent, and nothing about
    the user is kept.
    ``directory`` keeps the ledger, open assignments and unsent reports: it must be the app's own,
    used by one client at a time, and left out of backups. With ``directory=None`` everything is in
    memory: the budget begins anew with each start, and what is open or waits at the end is lost.
    ``keep_pending_rewards`` says whether the rewards of assignments whose windows last are kept in the
    directory, so that the end of the process does not lose them; with ``False`` no raw reward rests
    on a disk, and an assignment that was open at the end counts as one without those rewards.

    ``epsilon_max`` is the largest privacy loss of a report that the app accepts, ``rewards`` what
    its rewards are, and ``signers`` the public keys that must have signed each experiment: none,
    the operator's, or the operator's and a countersigner's. ``log`` is the server's public log, which must
    say what the server tells: :class:`Log`. ``segments`` are the public properties that
    experiments may divide installations by, each with this one's value, which comes with its
    reports; ``metrics`` what they may measure beside the rewards, :class:`Binary` or
    :class:`Bounded`. Whatever a server asks beyond that is refused. ``refusals`` names the
    experiment to which the installation tells, by randomized response, whether and why it refuses
    others, at most ``refusals_epsilon_max`` for a report; ``None``: it tells nobody. ``forced`` gives
    experiments an arm, by its label, for developers and tests: the arm is shown, and nothing about the
    experiment is fetched or reported.

    Raises :class:`SetupError` or :class:`ValueError` for settings that can't be used.
    """

    def __init__(
        self,
        url: Union[str, Transport],
        *,
        consent: bool,
        directory: Union[str, "os.PathLike[str]", None],
        epsilon_max: float = 1.0,
        rewards: Rewards = Binary(),
        signers: Sequence[str] = (),
        log: Optional[Log] = None,
        budget: Budget = Budget(),
        app_key: Optional[str] = None,
        keep_pending_rewards: bool = True,
        least_release_delay: Optional[int] = None,
        report_once_days: Optional[int] = None,
        segments: Mapping[str, str] = MappingProxyType({}),
        metrics: Mapping[str, Union[Binary, Bounded]] = MappingProxyType({}),
        refusals: Optional[str] = None,
        refusals_epsilon_max: float = 0.5,
        forced: Mapping[str, str] = MappingProxyType({}),
        ssl_context: Optional[ssl.SSLContext] = None,
        in_the_clear: bool = False,
    ) -> None:
        transport: Transport
        is_clear = flag(in_the_clear, "in_the_clear")
        if isinstance(url, str):
            transport = Posts(url, context=ssl_context, in_the_clear=is_clear)
        elif callable(url):
            transport = url
        else:
            raise ValueError(f"{url!r} is neither an address nor a transport")
        if not isinstance(consent, bool):
            raise ValueError(f"consent is {consent!r}; give True if the user consents, or False")
        if not isinstance(budget, Budget):
            raise ValueError(f"budget is {budget!r}; give a bandana.Budget")
        kept = given(path, directory, "directory")
        configuration = _core.Configuration(
            store=(
                _untyped.Store.MEMORY() if kept is None else _untyped.Store.DIRECTORY(path=kept)
            ),
            rewards=_terms(rewards),
            epsilon_max=number(epsilon_max, "epsilon_max"),
            signers=texts(signers, "signers"),
            log=given(_log_terms, log, "log"),
            window_budget=number(budget.window, "budget: window"),
            window_days=whole(budget.days, "budget: days"),
            lifetime_budget=number(budget.lifetime, "budget: lifetime"),
            consent=consent,
            app_key=given(text, app_key, "app_key"),
            keep_pending_rewards=flag(keep_pending_rewards, "keep_pending_rewards"),
            least_release_delay_seconds=given(whole, least_release_delay, "least_release_delay"),
            report_once_days=given(whole, report_once_days, "report_once_days"),
            segments=_segments(segments),
            metrics=_metrics(metrics),
            refusals=(
                None
                if refusals is None
                else _core.RefusalTerms(
                    experiment=text(refusals, "refusals"),
                    epsilon_max=number(refusals_epsilon_max, "refusals_epsilon_max"),
                )
            ),
            forced=[
                _core.ForcedArm(experiment=name, arm=text(arm, f"forced: {name}"))
                for name, arm in entries(forced, "forced")
            ],
        )
        place = None if kept is None else os.path.realpath(kept)
        _take_over(place)
        self._core = _core.Core.start(configuration)
        self._process = os.getpid()
        self._is_copy_told = False
        if place is not None:
            _open[place] = self
        self._watch = Watch()
        self._thread = _threads.start(_carry_out, self._core, transport, self._watch)
        # An app that forgets to close ends its thread all the same.
        self._end = weakref.finalize(self, _close, self._core, self._process)

    def experiment(self, name: str) -> Experiment:
        """The experiment of this name, which is fetched if it is not yet known.

        Raises :class:`SetupError` when no experiment can have this name.
        """
        if not isinstance(name, str):
            raise _untyped.SetupError.Experiment(f"{name!r} is no name of an experiment; give a text")
        self._core.join(name)
        return Experiment(self, name)

    def reward(self, assignment: Union[int, str, None], reward: float) -> bool:
        """Adds a reward to an assignment (:attr:`Choice.assignment`, or the text of it), also after a
        restart. Returns whether it was taken. What is no number, such as the text "1", counts as a
        reward that is refused."""
        return _add(self._core, self._process, assignment, None, reward)

    def measure(self, assignment: Union[int, str, None], metric: str, value: float) -> bool:
        """Adds a value of a metric to an assignment, as :meth:`Choice.measure`."""
        return _add(self._core, self._process, assignment, metric, value)

    def status(self) -> Status:
        """How the client stands; once it is closed, as it stood then."""
        return self._core.status()

    def opt_out(self) -> bool:
        """Opts the user out: nothing is fetched, kept or sent, and what waited is erased, except
        what was spent. Returns whether that is stored."""
        return self._core.opt_out()

    def opt_in(self) -> bool:
        """Opts the user in again. Returns whether that is stored."""
        return self._core.opt_in()

    def wake(self) -> None:
        """Ends waits for the server: call it when the network has changed or the app came to the
        foreground, never because the user reacted."""
        self._core.wake()

    def _tell_of_copy(self) -> bool:
        """Returns whether the process is a copy of the one that has the client. Warns of it once, since
        no thread of the client does."""
        is_copy = self._process != os.getpid()
        if is_copy and not self._is_copy_told:
            self._is_copy_told = True
            _threads.log(
                logging.WARNING,
                "this process is a copy of the one that started the client, so its arms make no "
                "reports; start a client in each worker, with a directory of its own",
            )
        return is_copy

    def close(self) -> None:
        """Ends everything: what is pending is written, rewards too, the directory is free, and a call
        under way is left to itself. It waits for no window: the next start goes on with what is open,
        and reports that wait leave after it."""
        self._end()
        # In a copy of the process, who held a lock of the client may not be there.
        if self._process == os.getpid():
            self._watch.look()

    def __enter__(self) -> Bandana:
        return self

    def __exit__(
        self,
        _kind: Optional[Type[BaseException]],
        _error: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        self.close()

    async def __aenter__(self) -> Bandana:
        return self

    async def __aexit__(
        self,
        _kind: Optional[Type[BaseException]],
        _error: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        # It waits for a disk: other tasks go on.
        await asyncio.get_running_loop().run_in_executor(None, self.close)


def _add(
    core: _core.Core, process: int, assignment: Any, metric: Optional[str], value: object
) -> bool:
    """Adds a value of a metric; ``None``: a reward."""
    # A copy of the process makes no reports. Who held a lock of the client may not be there.
    if os.getpid() != process:
        return False
    if assignment is None:
        # Of the default.
        return False
    try:
        # A session or a form gives the number back as text.
        is_text = isinstance(assignment, str) and assignment.isdecimal()
        chosen = int(assignment) if is_text else operator.index(assignment)
    except Exception:  # Whatever the app's own object raises: no reward ends an app.
        chosen = -1
    if not 0 <= chosen < 1 << 64:
        # As of an assignment that nobody has, so that it counts as refused.
        core.reward((1 << 64) - 1, 0.0)
        return False
    try:
        amount = real(value)
    except Exception:
        # The client counts it as refused.
        amount = math.nan
    if metric is None:
        return core.reward(chosen, amount)
    # What is no text, or has halves of characters, names no metric.
    name = metric.encode("utf-8", "replace").decode() if isinstance(metric, str) else ""
    return core.measure(chosen, name, amount)


def _close(core: _core.Core, process: int) -> None:
    # In a copy of the process there is no thread, and nothing to end.
    if os.getpid() == process:
        core.end()


# The clients of this process that have a directory, by its path.
_open: "weakref.WeakValueDictionary[str, Bandana]" = weakref.WeakValueDictionary()


def _take_over(place: Optional[str]) -> None:
    """Closes the client of an earlier run of a notebook's cell: what the notebook showed of it keeps it
    alive, and the directory would stay in use."""
    earlier = None if place is None else _open.get(place)
    if earlier is not None and earlier._end.alive and hasattr(builtins, "__IPYTHON__"):
        said = "the client that a cell started before is closed, since this one has its directory"
        _threads.log(logging.INFO, said)
        earlier.close()


def _carry_out(core: _core.Core, transport: Transport, watch: Watch) -> None:
    """Takes the steps of a client until it is closed, or its process only watches the app's files."""
    reloader = _threads.Reloader()
    while True:
        step = core.next_step()
        if reloader.is_here():
            _log(logging.INFO, "this process only watches the app's files: the client is that of its child")
            core.end()
            return
        if isinstance(step, _core.Step.CLOSED):
            # Nothing more is told: at the end of a program its log may be gone.
            return
        _tell(core)
        watch.look_on_own_thread()
        if isinstance(step, _core.Step.CALL):
            _call(core, step[0], transport)
        elif isinstance(step, _core.Step.WAIT):
            core.wait_for_work(min(step.milliseconds, reloader.glance_ms(_WAIT_MAX_MS)))
        else:
            core.wait_for_work(reloader.glance_ms(_WAIT_MAX_MS))


def _tell(core: _core.Core) -> None:
    """Logs what is new, once. Nothing here depends on what users are shown or how they react."""
    while (line := core.log_line()) is not None:
        _log(logging.WARNING if line.is_warning else logging.INFO, "%s", line.text)


def _call(core: _core.Core, call: _core.Call, transport: Transport) -> None:
    headers = {header.name: header.value for header in call.headers}
    try:
        answer = transport(call.path, headers, call.body)
        if answer is not None:
            _log(logging.DEBUG, "%s was answered with status %d", call.path, answer.status)
            content_type, retry_after = answer.content_type, answer.retry_after
            core.answered(call.id, answer.status, content_type, retry_after, answer.body)
            return
    except BaseException as error:  # A transport of the app's; its failure is no answer.
        _log(logging.WARNING, "a call had no answer: %s", type(error).__name__)
    core.unanswered(call.id)
