"""The provider, under the SDK of OpenFeature, with answers of a real server's form."""

import queue
import time

import bandana
import pytest
from openfeature import api
from openfeature.event import ProviderEvent
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from openfeature.provider import ProviderStatus
from openfeature.track import TrackingEventDetails


@pytest.fixture(name="client")
def _client():
    def nobody(_path, _headers, _body):
        return None

    from bandana.openfeature import BandanaProvider

    with bandana.Bandana(nobody, consent=True, directory=None) as app:
        provider = BandanaProvider(
            app, rewards={"purchase": ["button-colour"]}, ready_seconds=0.05
        )
        with pytest.raises(Exception, match="button-colour: no server has told"):
            api.set_provider_and_wait(provider)
        yield api.get_client(), provider
    api.clear_providers()


def test_without_a_policy_each_flag_has_the_default_of_the_app(client):
    client, _ = client
    details = client.get_string_details("button-colour", "blue")
    assert (details.value, details.reason) == ("blue", Reason.DEFAULT)
    assert "no server has told" in details.flag_metadata["why"]
    assert client.get_boolean_value("new-checkout", True) is True
    assert client.get_integer_value("items", 7) == 7


def test_a_name_that_no_experiment_can_have_is_an_error(client):
    client, _ = client
    details = client.get_string_details("Button Colour", "blue")
    assert (details.value, details.error_code) == ("blue", ErrorCode.FLAG_NOT_FOUND)


def test_an_object_is_refused(client):
    client, _ = client
    details = client.get_object_details("button-colour", {"a": 1})
    assert (details.value, details.error_code) == ({"a": 1}, ErrorCode.TYPE_MISMATCH)


class Shown:
    """A choice whose rewards are looked at."""

    def __init__(self, label):
        self.label, self.reason, self.rewards, self.metrics = label, None, [], []

    def reward(self, reward):
        self.rewards.append(reward)
        return True

    def measure(self, metric, value):
        self.metrics.append((metric, value))
        return True


class App:
    """A client that has these arms to show."""

    def __init__(self, **labels):
        self.shown = {name: Shown(label) for name, label in labels.items()}
        self.name = None
        self.drawn = []

    def experiment(self, name):
        self.name = name
        return self

    def wait_until_ready(self, patience):
        assert patience > 9

    def on_change(self, _listener):
        return lambda: None

    def labels(self):
        return [self.shown[self.name].label]

    def choose(self):
        self.drawn.append(self.name)
        return self.shown[self.name]


def test_an_arm_is_a_variant_and_an_event_its_reward():
    from bandana.openfeature import BandanaProvider

    app = App(colour="green", checkout="on", items="12", price="0.5", other="red")
    rewards = {"purchase": ["colour", "checkout", "other"]}
    metrics = {"purchase": ["items"], "returned": ["colour", "other"]}
    api.set_provider_and_wait(BandanaProvider(app, rewards=rewards, metrics=metrics))
    client = api.get_client()
    details = client.get_string_details("colour", "blue")
    assert (details.value, details.variant, details.reason) == ("green", "green", Reason.SPLIT)
    assert client.get_boolean_value("checkout", False) is True
    assert client.get_integer_value("items", 7) == 12
    assert client.get_float_value("price", 1.0) == 0.5
    details = client.get_integer_details("colour", 3)
    assert (details.value, details.error_code) == (3, ErrorCode.TYPE_MISMATCH)
    assert app.drawn == ["colour", "checkout", "items", "price"], "nobody would see its arm"
    client.track("purchase")
    client.track("purchase", tracking_event_details=TrackingEventDetails(value=0.25))
    client.track("page-view")
    client.track("purchase", tracking_event_details=TrackingEventDetails(value="x"))
    assert app.shown["colour"].rewards == [1.0, 0.25, "x"], "the client refuses it"
    assert app.shown["checkout"].rewards == [1.0, 0.25, "x"]
    assert app.shown["items"].rewards == []
    assert app.shown["items"].metrics == [("purchase", value) for value in (1.0, 0.25, "x")]
    client.track("returned", tracking_event_details=TrackingEventDetails(value=0))
    assert app.shown["colour"].metrics == [("returned", 0)]
    other = app.shown["other"]
    assert other.rewards == other.metrics == [], "nobody has seen it"
    api.clear_providers()


@pytest.mark.parametrize(
    "wrong",
    [
        {"rewards": {"purchase": "colour"}},
        {"rewards": {"purchase": None}},
        {"rewards": [("purchase", ["colour"])]},
        {"metrics": {"purchase": "colour"}},
        {"ready_seconds": "10"},
    ],
)
def test_a_setting_of_another_type_is_refused(wrong):
    from bandana.openfeature import BandanaProvider

    with pytest.raises(ValueError, match=next(iter(wrong))):
        BandanaProvider(App(), **{"rewards": {}, **wrong})


class Arms:
    """A client whose experiments begin to give arms, and cease to."""

    def __init__(self, *missing):
        self.missing = set(missing)
        self.listeners = {}

    def experiment(self, name):
        return Arm(self, name)

    def change(self, name, *, is_missing):
        (self.missing.add if is_missing else self.missing.discard)(name)
        self.listeners[name]()


class Arm:
    def __init__(self, arms, name):
        self.arms, self.name, self.label = arms, name, "green"

    def why_not_ready(self):
        return "no policy yet" if self.name in self.arms.missing else None

    def wait_until_ready(self, _patience):
        if self.why_not_ready() is not None:
            raise bandana.NotReady(self.name)

    def labels(self):
        return ["green"]

    def choose(self):
        return self

    def on_change(self, listener):
        assert self.name not in self.arms.listeners, "each is followed once"
        self.arms.listeners[self.name] = listener
        return lambda: self.arms.listeners.pop(self.name)


def test_an_application_hears_when_flags_get_their_arms_and_lose_them():
    from bandana.openfeature import BandanaProvider

    arms = Arms("colour", "size")
    provider = BandanaProvider(arms, rewards={"buy": ["colour", "size"]})
    with pytest.raises(bandana.NotReady):
        api.set_provider_and_wait(provider)
    client = api.get_client()
    heard = queue.Queue()
    for event in ("CONFIGURATION_CHANGED", "READY"):
        client.add_handler(
            ProviderEvent[f"PROVIDER_{event}"], lambda details: heard.put(details.flags_changed)
        )
    client.add_handler(ProviderEvent.PROVIDER_ERROR, lambda details: heard.put(details.message))
    heard.get(timeout=10)  # The SDK tells a new handler of an error that stands.
    assert client.get_string_value("font", "serif") == "green"

    def told(*expected):
        said = [heard.get(timeout=10) for _ in expected]
        assert sorted(map(str, said)) == sorted(map(str, expected)), "handlers run side by side"
        assert heard.empty()

    arms.change("colour", is_missing=False)
    told(["colour"])
    assert client.get_provider_status() is ProviderStatus.ERROR, "the other one has no arm"
    arms.change("size", is_missing=False)
    told(["size"], None)
    assert client.get_provider_status() is ProviderStatus.READY
    arms.change("colour", is_missing=True)
    told(["colour"], "colour: no policy yet")
    assert client.get_provider_status() is ProviderStatus.ERROR
    arms.change("colour", is_missing=False)
    told(["colour"], None)
    arms.change("font", is_missing=True)
    told(["font"])
    assert client.get_provider_status() is ProviderStatus.READY, "nobody has named it"
    api.clear_providers()
    assert arms.listeners == {}


def test_a_fetch_follows_an_evaluation(client):
    client, provider = client
    client.get_string_value("font-size", "12")
    end = time.monotonic() + 10
    while provider._client.status().fetches_failed == 0:
        assert time.monotonic() < end
        time.sleep(0.005)
