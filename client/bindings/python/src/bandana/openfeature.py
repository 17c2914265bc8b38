"""A provider for OpenFeature: a flag is an experiment, its variant the arm, and ``track`` the reward.

    from openfeature import api
    from bandana.openfeature import BandanaProvider

    api.set_provider_and_wait(BandanaProvider(app, rewards={"purchase": ["button-colour"]}))
    client = api.get_client()
    colour = client.get_string_value("button-colour", "blue")
    client.track("purchase")

The evaluation context is not looked at, and never leaves: arms are drawn by the device alone. Needs
``pip install bandana-client[openfeature]``.
"""

from __future__ import annotations

import threading
import time
import weakref
from types import MappingProxyType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar, Union

from openfeature.evaluation_context import EvaluationContext
from openfeature.event import ProviderEventDetails
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagResolutionDetails, Reason
from openfeature.provider import AbstractProvider, Metadata
from openfeature.track import TrackingEventDetails

from ._checks import entries, number, texts
from ._client import Bandana, Choice, Experiment
from ._core import SetupError

Value = TypeVar("Value")

_BOOLEANS = {"true": True, "on": True, "false": False, "off": False}


def _boolean(label: str) -> bool:
    return _BOOLEANS[label.lower()]


def _named(events: object, what: str) -> Dict[str, List[str]]:
    """The experiments of each event."""
    return {event: texts(names, f"{what} of {event}") for event, names in entries(events, what)}


class BandanaProvider(AbstractProvider):
    """Gives the arms of a client as flags.

    A text flag has the arm's label as its value; a number flag the number that the label is; a
    boolean one true for the labels ``true`` and ``on``, false for ``false`` and ``off``. ``rewards``
    says for which experiments an event is a reward: its value, or 1; ``metrics`` for which it is a
    value of the metric that has its name. Only arms that this provider has given are rewarded.

    The provider is ready when each of these experiments has an arm to give.
    ``set_provider_and_wait`` waits for that, at most ``ready_seconds``, and raises with what is in the way.
    An arm that comes later makes the provider ready then; while one is missing again, its status is an
    error. A flag whose arm comes or goes is told as a configuration that has changed.
    """

    def __init__(
        self,
        client: Bandana,
        *,
        rewards: Mapping[str, Sequence[str]],
        metrics: Mapping[str, Sequence[str]] = MappingProxyType({}),
        ready_seconds: float = 10.0,
    ) -> None:
        super().__init__()
        self._ready_seconds = number(ready_seconds, "ready_seconds")
        self._client = client
        self._rewards = _named(rewards, "rewards")
        self._metrics = _named(metrics, "metrics")
        self._shown: Dict[str, Choice] = {}
        self._lock = threading.Lock()
        every = (*self._rewards.values(), *self._metrics.values())
        names = {name: None for names in every for name in names}
        self._experiments = [client.experiment(name) for name in names]
        # What ends the subscription to each experiment.
        self._followed: Dict[str, Callable[[], None]] = {}
        # What the SDK was told last; ``None``: it waits, and is told by ``initialize``.
        self._is_ready: Optional[bool] = None

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        self._is_ready = None
        for experiment in self._experiments:
            self._follow(experiment)
        end = time.monotonic() + self._ready_seconds
        is_ready = False
        try:
            for experiment in self._experiments:
                experiment.wait_until_ready(max(0.0, end - time.monotonic()))
            is_ready = True
        finally:
            self._is_ready = is_ready

    def shutdown(self) -> None:
        while self._followed:
            _, end = self._followed.popitem()
            end()

    def _follow(self, experiment: Experiment) -> None:
        if experiment.name not in self._followed:
            # An app that forgets the provider and the client ends both.
            held, name = weakref.WeakMethod(self._changed), experiment.name

            def changed() -> None:
                tell = held()
                if tell is not None:
                    tell(name)

            end = experiment.on_change(changed)
            # Another thread may have been first.
            if self._followed.setdefault(name, end) is not end:
                end()

    def _changed(self, name: str) -> None:
        changed = ProviderEventDetails(flags_changed=[name])
        self.emit_provider_configuration_changed(changed)
        reasons = ((one.name, one.why_not_ready()) for one in self._experiments)
        missing = [f"{name}: {why}" for name, why in reasons if why is not None]
        if self._is_ready is None or self._is_ready == (not missing):
            return
        self._is_ready = not missing
        if missing:
            self.emit_provider_error(ProviderEventDetails(message="; ".join(missing)))
        else:
            self.emit_provider_ready(ProviderEventDetails())

    def get_metadata(self) -> Metadata:
        return Metadata(name="bandana")

    def _resolve(
        self, flag_key: str, default: Value, convert: Callable[[str], Value]
    ) -> FlagResolutionDetails[Value]:
        try:
            experiment = self._client.experiment(flag_key)
            self._follow(experiment)
            # Before an arm is drawn: its report would be of an arm that is not shown.
            values = {label: convert(label) for label in experiment.labels()}
        except SetupError as error:
            return FlagResolutionDetails(
                default, ErrorCode.FLAG_NOT_FOUND, str(error), Reason.ERROR
            )
        except (ValueError, KeyError):
            return FlagResolutionDetails(
                default,
                ErrorCode.TYPE_MISMATCH,
                f"an arm of {flag_key!r} has a label that is no {type(default).__name__}",
                Reason.ERROR,
            )
        choice = experiment.choose()
        if choice.label is None or choice.label not in values:
            return FlagResolutionDetails(
                default, reason=Reason.DEFAULT, flag_metadata={"why": choice.reason or ""}
            )
        value = values[choice.label]
        with self._lock:
            self._shown[flag_key] = choice
        return FlagResolutionDetails(value, reason=Reason.SPLIT, variant=choice.label)

    def resolve_boolean_details(
        self,
        flag_key: str,
        default_value: bool,
        evaluation_context: Optional[EvaluationContext] = None,
    ) -> FlagResolutionDetails[bool]:
        return self._resolve(flag_key, default_value, _boolean)

    def resolve_string_details(
        self,
        flag_key: str,
        default_value: str,
        evaluation_context: Optional[EvaluationContext] = None,
    ) -> FlagResolutionDetails[str]:
        return self._resolve(flag_key, default_value, str)

    def resolve_integer_details(
        self,
        flag_key: str,
        default_value: int,
        evaluation_context: Optional[EvaluationContext] = None,
    ) -> FlagResolutionDetails[int]:
        return self._resolve(flag_key, default_value, int)

    def resolve_float_details(
        self,
        flag_key: str,
        default_value: float,
        evaluation_context: Optional[EvaluationContext] = None,
    ) -> FlagResolutionDetails[float]:
        return self._resolve(flag_key, default_value, float)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Union[Sequence[Any], Mapping[str, Any]],
        evaluation_context: Optional[EvaluationContext] = None,
    ) -> FlagResolutionDetails[Union[Sequence[Any], Mapping[str, Any]]]:
        return FlagResolutionDetails(
            default_value,
            ErrorCode.TYPE_MISMATCH,
            "an arm has a label: ask for a text, a number or a boolean",
            Reason.ERROR,
        )

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: Optional[EvaluationContext] = None,
        tracking_event_details: Optional[TrackingEventDetails] = None,
    ) -> None:
        told = None if tracking_event_details is None else tracking_event_details.value
        value = 1.0 if told is None else told
        for choice in self._given(self._rewards.get(tracking_event_name, [])):
            choice.reward(value)
        for choice in self._given(self._metrics.get(tracking_event_name, [])):
            choice.measure(tracking_event_name, value)

    def _given(self, names: List[str]) -> List[Choice]:
        """What this provider has given of these experiments."""
        with self._lock:
            return [self._shown[name] for name in names if name in self._shown]
