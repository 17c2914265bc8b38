"""What the package adds to the client: its thread, its transport, its errors.

What the client itself does is tested by `../conformance`, against a real server.
"""

import asyncio
import contextlib
import copy
import gc
import http.server
import logging
import math
import os
import pickle
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import threading
import time

import bandana
import pytest
from bandana._transport import Posts

PATIENCE = 10.0


def until(is_so):
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def nobody(_path, _headers, _body):
    """There is no network."""
    return None


def start(transport=nobody, **settings):
    settings = {"consent": True, "directory": None, **settings}
    return bandana.Bandana(transport, **settings)


#: A log and a witness of nobody.
LOG = "bandana.example/log+2707c076+AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea"
WITNESS = "witness.example/w1+04d2d833+BD1AF8PoQ4lakrcKp00bfrycmCzPLsSWjMDNVfEq9GYM"


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"epsilon_max": -1.0}, "epsilon_max"),
        ({"epsilon_max": float("nan")}, "epsilon_max"),
        ({"budget": bandana.Budget(days=0)}, "budget"),
        ({"budget": bandana.Budget(window=-1.0)}, "budget"),
        ({"signers": ["abc"]}, "signers"),
        ({"signers": ["00" * 32] * 3}, "signers"),
        ({"log": bandana.Log("abc", [])}, "log"),
        ({"log": bandana.Log(LOG, [LOG])}, "log"),
        ({"log": bandana.Log(LOG, [WITNESS], quorum=2)}, "log"),
        ({"app_key": "two words"}, "app_key"),
        ({"rewards": bandana.Bounded(1.0, 0.0)}, "rewards"),
        ({"rewards": bandana.Categorical(1)}, "rewards"),
        ({"segments": {"Platform": "ios"}}, "segments"),
        ({"metrics": {"": bandana.Binary()}}, "metrics"),
        ({"metrics": {"minutes": bandana.Bounded(1.0, 0.0)}}, "metrics"),
        ({"metrics": {"stars": bandana.Categorical(5)}}, "metrics.*categories"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings, what):
    with pytest.raises(bandana.SetupError, match=what):
        start(**settings)


@pytest.mark.parametrize(
    "url",
    ["localhost:7301", "ftp://localhost", "http://bandana.example.org", "https://a.b/path", ""],
)
def test_an_address_that_cannot_be_used_is_refused(url):
    with pytest.raises(ValueError, match="(?i)give"):
        start(url)


def test_a_transport_that_fails_is_no_network():
    failures = iter([OSError("no route"), RuntimeError("a bug of the app's"), None])
    called = []

    def transport(path, headers, body):
        called.append((path, dict(headers), body))
        failure = next(failures, None)
        if failure is not None:
            raise failure

    with start(transport) as app:
        experiment = app.experiment("button-colour")
        until(lambda: app.status().fetches_failed >= 1)
        for failed in (2, 3):
            # Of calls of `wake`, one in ten seconds counts; a wait is up to a few seconds.
            app.wake()
            until(lambda n=failed: app.status().fetches_failed >= n)
        assert experiment.choose().label_or("blue") == "blue"
        with pytest.raises(bandana.NotReady, match="button-colour: .*no answer"):
            experiment.wait_until_ready(0)
    path, headers, body = called[0]
    assert path == "/bandana.v1.Device/GetExperiment"
    assert headers == {"content-type": "application/proto"}
    assert b"button-colour" in body


@pytest.mark.parametrize(
    "answer",
    [
        bandana.Answer(0, None, None, b""),
        bandana.Answer(-1, "application/json", None, b""),
        bandana.Answer(70_000, "application/json", None, b""),
        bandana.Answer(999, "application/proto", "1e9", b"\xff"),
        bandana.Answer(503, "application/json", "9" * 40, b"{}"),
        bandana.Answer(404, "application/json", None, b"\xff" * 100_000),
        bandana.Answer("200", "application/proto", None, b""),
        bandana.Answer(200, 5, None, b""),
        bandana.Answer(200, "application/proto", None, None),
        "no answer at all",
        5,
    ],
)
def test_whatever_a_transport_returns_the_thread_goes_on(answer):
    with start(lambda *_: answer) as app:
        app.experiment("button-colour")
        until(lambda: app.status().fetches_failed >= 1)
        assert app._thread.is_alive()


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_belongs_to_a_client_is_not_copied(way):
    with start() as app:
        for held in (app.experiment("button-colour").choose(), app._core):
            with pytest.raises(TypeError, match="copied|pickle"):
                way(held)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_a_transport_that_ends_its_thread_does_not_end_the_clients(ending):
    def transport(*_):
        raise ending

    with start(transport) as app:
        app.experiment("button-colour")
        until(lambda: app.status().fetches_failed >= 1)
        assert app._thread.is_alive()


def test_a_signal_in_the_middle_of_a_call_holds_nothing_up():
    with start() as app:
        experiments = [app.experiment(name) for name in ("one", "other")]
        calls = []

        def on_signal(*_):
            calls.append([experiment.choose() for experiment in experiments])
            app.wake()

        before = signal.signal(signal.SIGALRM, on_signal)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.000_7)
        try:
            while len(calls) < 500:
                experiments[0].choose()
                app.wake()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_an_asyncio_app_goes_on_while_it_waits_for_an_arm():
    async def app():
        turns = 0

        async def others():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        async with start() as client:
            experiment = client.experiment("button-colour")
            with pytest.raises(bandana.NotReady, match="button-colour"):
                await experiment.ready(0.1)
            waited = turns
            assert experiment.choose().label is None
        other.cancel()
        assert waited > 10
        assert turns > waited, "the end held the other task up"
        with pytest.raises(bandana.SetupError, match="closed"):
            client.experiment("button-colour")

    asyncio.run(app())


@pytest.mark.parametrize("closes_after", [0, 0.05])
def test_nobody_waits_for_the_arms_of_a_closed_client(closes_after):
    app = start()
    experiment = app.experiment("button-colour")
    closing = threading.Timer(closes_after, app.close)
    closing.start()
    began = time.monotonic()
    with pytest.raises(bandana.NotReady, match="button-colour"):
        experiment.wait_until_ready(10 * PATIENCE)
    with pytest.raises(bandana.NotReady, match="closed"):
        asyncio.run(experiment.ready(10 * PATIENCE))
    assert time.monotonic() - began < PATIENCE
    closing.join()


class Told:
    """A core that notes what it is told, of assignments whose windows all last."""

    assignment = 7

    def __init__(self):
        self.rewards, self.values = [], []

    def reward(self, assignment, reward):
        self.rewards.append((assignment, reward))
        return True

    def measure(self, assignment, metric, value):
        self.values.append((assignment, metric, value))
        return True


class Whole:
    """A whole number of another library."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Spelled(str):
    """A text of another library, which converts itself."""

    def __float__(self):
        return 1.0


def test_numbers_of_other_libraries_are_numbers_and_texts_are_none():
    with start() as app:
        app._core = told = Told()
        for reward in (1, 1.0, True, Whole(1)):
            assert app.reward(Whole(7), reward) and app.measure(7, "returned", reward)
        assert told.rewards == [(7, 1.0)] * 4
        assert told.values == [(7, "returned", 1.0)] * 4
        texts = ("1", b"1", bytearray(b"1"), memoryview(b"1"), Spelled("1"))
        for reward in texts:
            assert app.reward(7, reward) and app.measure(7, "returned", reward)
        # What is no finite number is counted as refused.
        refused = [told.rewards.pop()[1] for _ in texts] + [told.values.pop()[2] for _ in texts]
        assert all(map(math.isnan, refused)), refused
        assert app.reward("7", 1.0) and told.rewards.pop() == (7, 1.0)
        wrong = (Whole(-1), Whole(1 << 64), "seven", 7.0)
        for assignment in wrong:
            assert app.reward(assignment, 1.0) is False
        assert len(told.rewards) - len(wrong) == len(told.values) == 4
        assert {one for one, _ in told.rewards[4:]} == {(1 << 64) - 1}, "it counts as refused"


def test_the_copy_of_a_process_adds_no_reward(monkeypatch):
    with start() as app:
        app._core = told = Told()
        choice = bandana.Choice(told, app._process, told)
        assert app.reward(7, 1.0) and choice.reward(1.0) and choice.measure("returned", 1.0)
        with monkeypatch.context() as copied:
            copied.setattr(os, "getpid", lambda: app._process + 1)
            assert app.reward(7, 1.0) is choice.reward(1.0) is False
            assert app.measure(7, "returned", 1.0) is choice.measure("returned", 1.0) is False
        assert (len(told.rewards), len(told.values)) == (2, 1)


def test_a_reward_that_is_no_number_raises_nothing():
    with start() as app:
        choice = app.experiment("button-colour").choose()
        for reward in (None, "1", [1], 10**400, float("nan"), object()):
            assert choice.reward(reward) is False
            assert app.reward(choice.assignment, reward) is False
        for assignment in (-1, 1 << 64, None, 7, "7", 7.0):
            assert app.reward(assignment, 1.0) is False
            assert app.measure(assignment, "returned", 1.0) is False
        assert choice.measure("returned", 1.0) is False
        for metric in (None, 5, "", "\ud800", "x" * 100_000, object()):
            assert app.measure(7, metric, None) is False


@pytest.mark.parametrize(
    "wrong",
    [
        {"consent": "yes"},
        {"consent": None},
        {"consent": 2},
        {"budget": None},
        {"rewards": "binary"},
        {"segments": [("platform", "ios")]},
        {"segments": {"platform": None}},
        {"segments": {"platform": "\ud800"}},
        {"metrics": {5: bandana.Binary()}},
        {"metrics": {"returned": "binary"}},
        {"metrics": None},
        {"metrics": {"minutes": bandana.Bounded(None, 1.0)}},
        {"rewards": bandana.Bounded("0", "1")},
        {"rewards": bandana.Categorical(2.5)},
        {"epsilon_max": "1"},
        {"epsilon_max": b"1"},
        {"epsilon_max": None},
        {"epsilon_max": 10**400},
        {"signers": "abc"},
        {"signers": ""},
        {"signers": b""},
        {"signers": None},
        {"signers": {"00" * 32}},
        {"signers": [5]},
        {"log": LOG},
        {"log": bandana.Log(5, [WITNESS])},
        {"log": bandana.Log(LOG, WITNESS)},
        {"log": bandana.Log(LOG, [WITNESS], quorum="1")},
        {"log": bandana.Log(LOG, [WITNESS], quorum=-1)},
        {"budget": bandana.Budget(window="5")},
        {"budget": bandana.Budget(lifetime=None)},
        {"budget": bandana.Budget(days=7.5)},
        {"app_key": 5},
        {"app_key": b"key"},
        {"keep_pending_rewards": "no"},
        {"in_the_clear": "no"},
        {"least_release_delay": "600"},
        {"least_release_delay": -1},
        {"report_once_days": "7"},
        {"refusals": 5},
        {"refusals_epsilon_max": "1", "refusals": "refusals"},
        {"directory": 5},
        {"directory": b"app"},
        {"forced": "x"},
    ],
)
def test_a_setting_of_another_type_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        start(**wrong)


def test_what_is_no_address_and_no_name_is_refused():
    for url in (5, None, b"https://localhost", "https://exa\nmple.org", "https://\ud800.org"):
        with pytest.raises(ValueError, match="(?i)give|neither"):
            start(url)
    with start() as app:
        for name in (None, 5, "Button Colour", ""):
            with pytest.raises(bandana.SetupError):
                app.experiment(name)


def test_a_client_that_is_forgotten_ends_its_thread():
    app = start()
    thread = app._thread
    assert thread.is_alive()
    del app
    gc.collect()
    until(lambda: not thread.is_alive())


def test_an_experiment_keeps_its_client():
    experiment = start().experiment("button-colour")
    gc.collect()
    assert experiment.choose().reason != "the client was closed; start another one"
    experiment._client.close()
    assert experiment.choose().reason == "the client was closed; start another one"


def test_the_copy_of_a_process_gives_defaults_and_the_client_goes_on(tmp_path):
    with start(directory=tmp_path / "app") as app:
        experiment = app.experiment("button-colour")
        until(lambda: app.status().fetches_failed > 0)
        child = os.fork()
        if child == 0:
            # pytest is not told of the copy.
            shown = experiment.choose().label is None
            try:
                experiment.wait_until_ready(10 * PATIENCE)  # at once
            except bandana.NotReady:
                pass
            stands = app.status().standing == bandana.Standing.FORKED
            app.close()
            os._exit(0 if shown and stands else 1)
        end = time.monotonic() + PATIENCE
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < end, "the copy hangs"
            time.sleep(0.01)
        assert ended[1] == 0
        assert app.status().standing == bandana.Standing.ON


def test_two_clients_do_not_share_a_directory(tmp_path):
    with start(directory=tmp_path) as one, start(directory=tmp_path) as other:
        assert one.status().standing == bandana.Standing.ON
        status = other.status()
        assert status.standing == bandana.Standing.STORAGE_UNUSABLE
        assert "in use" in status.trouble
    assert not (tmp_path / "state").stat().st_mode & 0o077


class Server(http.server.HTTPServer):
    """Answers each call with what it is told."""

    def __init__(self, status, headers=(), body=b""):
        calls = self.calls = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                calls.append((self.path, dict(self.headers)))
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def handle_error(self, *_):
        pass  # A caller that goes away.

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.thread.join()
        self.server_close()


def test_an_answer_is_given_as_it_came():
    headers = [("content-type", "application/json"), ("retry-after", "7")]
    with Server(429, headers, b"{}") as server:
        answer = Posts(server.url)("/a", {"x": "y"}, b"body")
    assert answer == bandana.Answer(429, "application/json", "7", b"{}")
    ((path, sent),) = server.calls
    assert path == "/a"
    names = {name.lower() for name in sent}
    assert not names & {"cookie", "authorization", "accept-language"}
    assert "ython" not in str(sent), "the version of Python is nobody's business"


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_server_that_sends_a_byte_now_and_then_holds_nobody(begin, monkeypatch):
    monkeypatch.setattr("bandana._transport.PATIENCE", 0.5)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(begin)
                while not ended.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        began = time.monotonic()
        try:
            assert Posts(f"http://127.0.0.1:{listener.getsockname()[1]}")("/a", {}, b"") is None
        finally:
            ended.set()
        assert time.monotonic() - began < PATIENCE
        thread.join(PATIENCE)


def test_a_certificate_is_checked(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    with Server(200, [("content-type", "application/proto")], b"ok") as server:
        server.socket = own.wrap_socket(server.socket, server_side=True)
        url = f"https://localhost:{server.server_port}"
        assert Posts(url)("/a", {}, b"") is None, "nobody vouches for it"
        trusted = ssl.create_default_context(cafile=str(certificate))
        answer = Posts(url, context=trusted)("/a", {}, b"")
        assert answer == bandana.Answer(200, "application/proto", None, b"ok")
        # Another name than the certificate's.
        other = f"https://127.0.0.1:{server.server_port}"
        assert Posts(other, context=trusted)("/a", {}, b"") is None


def test_no_redirect_is_followed_and_no_endless_answer_read():
    with Server(200, [], b"x" * (2 << 20)) as endless:
        assert Posts(endless.url)("/a", {}, b"") is None
        with Server(302, [("location", endless.url)]) as server:
            assert Posts(server.url)("/a", {}, b"").status == 302
        assert len(endless.calls) == 1
    # Nobody listens any more.
    assert Posts(endless.url)("/a", {}, b"") is None


@pytest.mark.parametrize(
    "patch",
    [
        "import threading",
        "from gevent import monkey; monkey.patch_all()",
        "import eventlet; eventlet.monkey_patch()",
    ],
    ids=["threads", "gevent", "eventlet"],
)
def test_an_app_with_greenlets_goes_on_beside_the_client(patch):
    program = """
        import sys, threading, time
        import bandana

        ticks = []
        def tick():
            while True:
                ticks.append(1)
                time.sleep(0.01)

        threading.Thread(target=tick, daemon=True).start()
        with bandana.Bandana(sys.argv[1], consent=True, directory=None) as app:
            experiment = app.experiment("x")
            try:
                experiment.wait_until_ready(1.0)
            except bandana.NotReady:
                pass
            assert experiment.choose().label is None
            assert len(ticks) > 20, ticks
        before = len(ticks)
        time.sleep(0.1)
        assert len(ticks) > before
    """
    with Server(503) as server:
        code = patch + "\n" + textwrap.dedent(program)
        program = [sys.executable, "-W", "ignore", "-c", code, server.url]
        ended = subprocess.run(program, timeout=60, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert server.calls


def test_a_forced_arm_is_shown_and_nothing_leaves():
    with Server(503) as server, start(server.url, forced={"x": "green"}) as app:
        experiment = app.experiment("x")
        choice = experiment.choose()
        assert (choice.label, choice.is_reported, experiment.is_ready()) == ("green", False, True)
        assert "force this arm" in choice.reason and not choice.reward(1)
        app.wake()
        assert app.status().fetches_failed == 0 and not server.calls
    for wrong in ({"x": 5}, [("x", "green")]):
        with pytest.raises(ValueError, match="forced"):
            start(forced=wrong)


def test_who_listens_hears_that_arms_have_ended(caplog):
    told = []
    with start(forced={"x": "green"}) as app:
        experiment = app.experiment("x")
        assert experiment.why_not_ready() is None
        experiment.on_change(lambda: told.append("ended"))()
        experiment.on_change(lambda: 1 / 0)
        experiment.on_change(lambda: told.append(experiment.why_not_ready()))
        with pytest.raises(ValueError, match="listener"):
            experiment.on_change(None)
        assert not told
    app.close()
    assert told == [experiment.why_not_ready()] != [None]
    assert "a listener of x failed: ZeroDivisionError" in caplog.messages


def test_what_is_in_the_way_is_logged_once_and_calls_at_debug(caplog):
    caplog.set_level("DEBUG", logger="bandana")
    with Server(503, [("retry-after", "0")]) as server, start(server.url) as app:
        app.experiment("x")
        until(lambda: app.status().fetches_failed > 0)
        app.wake()
        until(lambda: app.status().fetches_failed > 1)
        until(lambda: len(caplog.records) > 2)
        error = app.status().last_error
    levels = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert levels.count(("WARNING", error)) == 1, levels
    assert sum("answered with status 503" in text for level, text in levels if level == "DEBUG") > 1


class Throwing(logging.Handler):
    """A handler of an app's log with a bug."""

    failure = RuntimeError

    def emit(self, record):
        self.lines.append(record.getMessage())
        raise self.failure("a bug of the app's")


@pytest.fixture(params=["handler", "filter"])
def throwing(request):
    """What throws at each line of the log, as its handler or filter."""
    throwing = Throwing()
    throwing.lines = []
    log = logging.getLogger("bandana")
    level = log.level
    log.setLevel("DEBUG")
    if request.param == "handler":
        log.addHandler(throwing)
    else:
        log.addFilter(throwing.emit)
    yield throwing
    log.removeHandler(throwing)
    log.removeFilter(throwing.emit)
    log.setLevel(level)


@pytest.mark.parametrize("failure", [RuntimeError, SystemExit, asyncio.CancelledError])
def test_a_log_that_throws_ends_no_call_and_no_thread(throwing, failure):
    throwing.failure = failure
    with Server(503, [("retry-after", "0")]) as server, start(server.url) as app:
        app.experiment("x")
        for failed in (1, 2):
            until(lambda n=failed: app.status().fetches_failed >= n)
            assert "503" in app.status().last_error, "the answer was lost"
            app.wake()
        until(lambda: sum("status 503" in line for line in throwing.lines) > 1)
        assert app._thread.is_alive()
    # Nor without an answer.
    with start() as app:
        app.experiment("x")
        until(lambda: app.status().fetches_failed >= 1)
        assert app._thread.is_alive()


def test_a_log_that_throws_is_no_failure_of_a_choice(throwing, monkeypatch):
    with start() as app, monkeypatch.context() as copied:
        experiment = app.experiment("button-colour")
        copied.setattr(os, "getpid", lambda: app._process + 1)
        assert experiment.choose().label is experiment.draw().label is None
        assert any("copy" in line for line in throwing.lines)


def test_a_number_whose_conversion_fails_is_no_failure_of_the_app():
    class Odd:
        def __float__(self):
            raise RuntimeError("a bug of the app's")

    with start() as app:
        assert app.reward(1, Odd()) is False
        assert app.measure(1, "minutes", Odd()) is False
