#!/usr/bin/env python3
"""Drives the program of each language through the same cases against one real server."""

import argparse
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE = 30.0
ENDED = 200
FETCH = "/bandana.v1.Device/GetExperiment"
UPLOAD = "/bandana.v1.Device/SubmitUpload"


class Failure(Exception):
    """A case that a program does not pass."""


def expect(condition, text):
    if not condition:
        raise Failure(text)


def until(is_so, what):
    """Polls for something that another process does."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        expect(time.monotonic() < end, f"{what} within {PATIENCE:.0f} seconds")
        time.sleep(0.02)


class Proxy:
    """Stands between the program and the server, and fails as it is told."""

    def __init__(self, host, port):
        self.answer = None  # None: forwards; else (status, headers, body), or "cut"
        self.seen = []  # (path, connection) of each call
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                proxy.seen.append((self.path, self.client_address[1], dict(self.headers)))
                if proxy.answer == "cut":
                    self.close_connection = True
                    self.connection.close()
                    return
                if proxy.answer is not None:
                    status, headers, text = proxy.answer
                else:
                    connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)
                    wanted = ("content-type", "bandana-app-key")
                    sent = {k: v for k, v in self.headers.items() if k.lower() in wanted}
                    connection.request("POST", self.path, body, sent)
                    answer = connection.getresponse()
                    status, text = answer.status, answer.read()
                    kept = ("content-type", "retry-after")
                    headers = {k: v for k, v in answer.getheaders() if k.lower() in kept}
                    connection.close()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # The program has gone.

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @contextlib.contextmanager
    def failing(self, answer):
        self.answer = answer
        try:
            yield
        finally:
            self.answer = None

    def count(self, path):
        return sum(1 for seen, *_ in self.seen if seen == path)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Program:
    """The program of a language, under way."""

    def __init__(self, command, variables=None):
        # Its standard error is ours, where a failure is looked for.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(variables or {})},
        )
        self.lines = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def ask(self, *words):
        try:
            self.process.stdin.write("\t".join(str(word) for word in words) + "\n")
            self.process.stdin.flush()
            answer = self.lines.get(timeout=4 * PATIENCE)
        except (BrokenPipeError, queue.Empty):
            answer = None
        expect(answer is not None, f"the program does not answer {words}")
        return answer

    def tell(self, *words):
        """Asks for what must succeed."""
        answer = self.ask(*words)
        expect(answer in ("ok", "ready", "yes"), f"{words}: {answer}")

    def arm(self, way, name):
        """(label, assignment, whether it is reported) of an arm."""
        answer = self.ask(way, name)
        words = answer.split("\t")
        expect(words[0] == "arm", f"{way} {name}: {answer}")
        return words[1], int(words[2]), words[3] == "reported"

    def status(self):
        words = self.ask("status").split("\t")
        names = ("standing", "spent", "waiting", "open", "accepted", "failed", "refused")
        status = dict(zip(names, words))
        texts = (status["standing"], "unknown")
        return {k: v if v in texts else float(v) for k, v in status.items()}

    def end(self):
        """Ends it by closing its standard input. Returns its exit code."""
        self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failure("the program does not end") from None

    def kill(self):
        self.process.kill()
        self.process.wait()


class Server:
    """A server on a directory of its own."""

    def __init__(self, binary, folder, *flags):
        self.binary = binary
        log = open(folder / "server.log", "w", encoding="utf-8")
        command = [binary, "serve", "--init", "--data-dir", str(folder / "data"), *flags]
        command += ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        addresses = dict(self.process.stdout.readline().strip().split("=") for _ in range(2))
        self.operator = f"http://{addresses['operator']}"
        host, port = addresses["device"].rsplit(":", 1)
        self.host, self.port = host, int(port)

    def run(self, *arguments):
        variables = {**os.environ, "BANDANA_OPERATOR_URL": self.operator}
        done = subprocess.run(
            [self.binary, *arguments], env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"bandana {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def create(self, name, window, *participation):
        arms = ["--arm", "blue", "--arm", "green", "--epsilon", "1"]
        window = ["--attribution-window-seconds", str(window), "--release-delay-seconds-max", "0"]
        self.run("experiment", "create", name, *arms, *window, *participation)

    def stop(self):
        self.process.terminate()
        expect(self.process.wait(PATIENCE) == 0, "the server does not end")


class LoggedServer(Server):
    """A server with a public log, and the log's witness."""

    def __init__(self, binary, folder):
        keys = []
        for role in ("log", "witness"):
            made = [binary, "log-key", "generate", "--role", role, "--name", f"{role}.example/1"]
            made += ["--out", str(folder / role)]
            keys.append(subprocess.check_output(made, text=True).strip())
        self.key, self.witness_key = keys
        command = [binary, "witness", "--listen", "127.0.0.1:0", "--witness-interval-seconds", "0"]
        command += ["--witness", str(folder / "seen"), "--witness-init"]
        command += ["--witness-key", str(folder / "witness"), "--witness-log", self.key]
        log = open(folder / "witness.log", "w", encoding="utf-8")
        self.witness = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        address = self.witness.stdout.readline().strip().split("=")[1]
        named = folder / "witnesses"
        named.write_text(f"{self.witness_key} http://{address}\n", encoding="utf-8")
        flags = ["--log-key-file", str(folder / "log"), "--log-witnesses-file", str(named)]
        super().__init__(binary, folder, *flags, "--log-epoch-seconds", "1")
        self.create("logged", 1, "--redraw")

    def stop(self):
        super().stop()
        self.witness.terminate()
        expect(self.witness.wait(PATIENCE) == 0, "the witness does not end")


class World(Server):
    """The server, its experiments, and directories for programs."""

    def __init__(self, binary, scratch):
        self.scratch = pathlib.Path(scratch)
        super().__init__(binary, self.scratch)
        self.key = self.scratch / "operator.key"
        printed = self.run("keys", "generate", "--out", str(self.key))
        self.public_key = printed.split()[-1]
        for name in ("short", "other", "signed", "button-colour"):
            self.create(name, 1, "--redraw")
        self.create("long", 600, "--redraw")
        self.create("left", 8, "--redraw")
        self.create("rated", 1, "--redraw", "--reward-kind", "bounded", "--reward-high", "100")
        self.create("kept", 1)
        self.create("one-half", 1, "--layer", "page:0-0.5")
        self.create("other-half", 1, "--layer", "page:0.5-1")
        platforms = ("--segments", "platform=ios,android")
        self.create("measured", 1, "--redraw", *platforms, "--metric", "returned:0.5")
        self.run(
            "sign", "--key", str(self.key), "--expires-days", "1", "--experiment", "signed", "--yes"
        )
        self.directories = 0
        (self.scratch / "logged").mkdir()
        self.logged = LoggedServer(binary, self.scratch / "logged")

    def estimate(self, name):
        return json.loads(self.run("estimate", name, "--json"))

    def reports(self, name):
        return reports(self.estimate(name))

    def directory(self):
        self.directories += 1
        return self.scratch / f"app-{self.directories}"

    def stop(self):
        self.logged.stop()
        super().stop()


def reports(estimates):
    return sum(arm["reports"] for arm in estimates["arms"])


class Case:
    """What a case works with."""

    def __init__(self, world, command):
        self.world = world
        self.command = command
        self.others = []
        self.proxy = Proxy(world.host, world.port)
        self.programs = []

    def program(self, variables=None):
        program = Program(self.command, variables)
        self.programs.append(program)
        return program

    def start(
        self,
        directory=None,
        *,
        consent=1,
        lifetime=1000,
        signer="-",
        segment="-",
        metric="-",
        rewards="-",
        log="-",
        server=None,
        variables=None,
    ):
        program = self.program(variables)
        directory = directory or self.world.directory()
        terms = (consent, lifetime, signer, segment, metric, rewards, log)
        program.tell("start", server or self.proxy.url, directory, *terms)
        return program

    def close(self):
        for program in self.programs:
            if program.process.poll() is None:
                program.kill()
        for proxy in [self.proxy, *self.others]:
            proxy.close()

    def before(self, server):
        """A proxy before another server."""
        self.others.append(Proxy(server.host, server.port))
        return self.others[-1].url


CASES = []


def case(function):
    CASES.append(function)
    return function


@case
def hundred_choices_and_uploads(world, it):
    program = it.start()
    program.tell("join", "short")
    program.tell("ready", "short", PATIENCE)
    before = world.reports("short")
    for _ in range(100):
        _, assignment, reported = program.arm("draw", "short")
        expect(reported, "an arm without a report")
        program.tell("reward", assignment, 1)
    until(lambda: program.status()["accepted"] == 100, "100 uploads are accepted")
    expect(program.status()["waiting"] == 0, "reports still wait")
    expect(world.reports("short") == before + 100, "the server has counted others")
    connections = [port for path, port, _ in it.proxy.seen if path == UPLOAD]
    expect(len(set(connections)) == len(connections), "two uploads share a connection")
    headers = [headers for *_, headers in it.proxy.seen]
    expect(not any("cookie" in map(str.lower, one) for one in headers), "a cookie was sent")
    program.tell("close")


@case
def one_assignment_until_its_window_ends(world, it):
    program = it.start()
    program.tell("join", "long")
    program.tell("ready", "long", PATIENCE)
    shown = {program.arm("choose", "long") for _ in range(100)}
    expect(len(shown) == 1, f"{len(shown)} assignments")
    expect(program.status()["spent"] == 1.0, "more than one report was paid for")
    other = program.arm("draw", "long")
    expect(other not in shown, "a draw gives another assignment")


@case
def offline_and_retry(world, it):
    program = it.start()
    program.tell("join", "other")
    program.tell("ready", "other", PATIENCE)
    for broken in ("cut", (502, {"content-type": "text/html"}, b"<html>Bad gateway</html>")):
        accepted = program.status()["accepted"]
        with it.proxy.failing(broken):
            _, assignment, _ = program.arm("draw", "other")
            program.tell("reward", assignment, 1)
            seen = it.proxy.count(UPLOAD)
            until(lambda: it.proxy.count(UPLOAD) > seen, "an upload is tried")
            expect(program.status()["accepted"] == accepted, "it counts as accepted")
        program.tell("wake")
        until(lambda: program.status()["accepted"] == accepted + 1, "the report arrives")


@case
def answers_that_are_no_success(world, it):
    program = it.start()
    program.tell("join", "nowhere")
    until(lambda: "404" in program.ask("ready", "nowhere", 0), "404 is the reason")
    expect(program.ask("choose", "nowhere").startswith("default\t"), "the default")
    # A network that wants a login answers with a page.
    program = it.start()
    with it.proxy.failing((200, {"content-type": "text/html"}, b"<html>Log in</html>")):
        program.tell("join", "other")
        until(lambda: program.status()["failed"] > 0, "a login page is no answer")
    program.tell("wake")
    program.tell("ready", "other", PATIENCE)
    for status in (429, 503):
        # Of calls of `wake`, one in ten seconds counts.
        program = it.start()
        program.tell("join", "other")
        program.tell("ready", "other", PATIENCE)
        json_type = {"content-type": "application/json", "retry-after": "3600"}
        with it.proxy.failing((status, json_type, b'{"code":"unavailable"}')):
            program.arm("draw", "other")
            seen = it.proxy.count(UPLOAD)
            until(lambda: it.proxy.count(UPLOAD) > seen, "an upload is tried")
            time.sleep(1.5)
            expect(it.proxy.count(UPLOAD) == seen + 1, "it does not wait for an hour")
        program.tell("wake")
        until(lambda: program.status()["accepted"] == 1, "it arrives after a wake")


@case
def restart(world, it):
    directory = world.directory()
    program = it.start(directory)
    program.tell("join", "long")
    program.tell("ready", "long", PATIENCE)
    shown = program.arm("choose", "long")
    program.tell("close")
    closed = program.status()
    expect((closed["spent"], closed["open"]) == (1.0, 1), "a closed client forgets how it stood")
    expect(program.end() == 0, "the program does not end with 0")
    program = it.start(directory)
    program.tell("join", "long")
    expect(program.arm("choose", "long") == shown, "another arm after a restart")
    expect(program.status()["spent"] == 1.0, "another budget after a restart")
    # A process that is killed has forgotten nothing either.
    program.kill()
    program = it.start(directory)
    program.tell("join", "long")
    expect(program.arm("choose", "long") == shown, "another arm after a kill")
    expect(program.status()["spent"] == 1.0, "another budget after a kill")


def expect_ones(before, after):
    """Requires that ENDED reports came, of rewards of 1."""
    ones, made = (sum(a[n] - b[n] for a, b in zip(after["arms"], before["arms"])) for n in ("ones", "reports"))
    # Of a truth of 1, at epsilon 1, .73 are ones, and of 0, .27: .55 is more than five standard deviations from both.
    expect(made == ENDED and ones / made > 0.55, f"{ones} ones of {made} reports")


@case
def an_app_that_ends_loses_no_reward(world, it):
    directory = world.directory()
    program = it.start(directory)
    program.tell("join", "left")
    program.tell("ready", "left", PATIENCE)
    before = world.estimate("left")
    for _ in range(ENDED):
        _, assignment, reported = program.arm("draw", "left")
        expect(reported, "an arm without a report")
        program.tell("reward", assignment, 1)
    # It waits for no window.
    begin = time.monotonic()
    program.tell("close")
    expect(program.end() == 0, "the program does not end with 0")
    expect(time.monotonic() - begin < 5, "it waits for the window")
    program = it.start(directory)
    program.tell("join", "left")
    until(lambda: program.status()["accepted"] >= ENDED, f"{ENDED} reports arrive after the restart")
    expect_ones(before, world.estimate("left"))


@case
def a_reward_beyond_the_range_is_its_end(world, it):
    program = it.start(rewards="0:100")
    program.tell("join", "rated")
    program.tell("ready", "rated", PATIENCE)
    before = world.estimate("rated")
    for _ in range(ENDED):
        _, assignment, _ = program.arm("draw", "rated")
        program.tell("reward", assignment, 150)
    until(lambda: program.status()["accepted"] >= ENDED, f"{ENDED} reports arrive")
    expect_ones(before, world.estimate("rated"))


@case
def kept_arms_and_layers(world, it):
    directory = world.directory()
    halves = ("one-half", "other-half")
    shown, sampled, reports = set(), set(), 0
    for start in range(3):
        program = it.start(directory)
        for name in ("kept", *halves):
            program.tell("join", name)
            until(lambda n=name: not_waiting(program.ask("ready", n, 0)), f"{name} is known")
        for _ in range(40):
            label, _, reported = program.arm("draw", "kept")
            shown.add(label)
            reports += reported
        for name in halves:
            answer = program.ask("draw", name)
            expect(answer.startswith("arm") or "part of the installations" in answer, answer)
            if answer.startswith("arm"):
                sampled.add(name)
        # The report leaves with what it follows from on the disk.
        until(lambda: program.status()["waiting"] + program.status()["open"] == 0, "reports leave")
        program.kill()
    expect(len(shown) == 1, f"an installation keeps its arm: {shown}")
    expect(reports == 1, f"{reports} reports of an experiment that is reported once")
    expect(len(sampled) == 1, f"one position in a layer is in one half: {sampled}")


def not_waiting(answer):
    return answer == "ready" or "no server has told" not in answer


@case
def budget(world, it):
    program = it.start(lifetime=2)
    program.tell("join", "long")
    program.tell("ready", "long", PATIENCE)
    reported = [program.arm("draw", "long")[2] for _ in range(4)]
    expect(reported == [True, True, False, False], f"{reported}")
    expect(program.status()["spent"] == 2.0, "the budget is exceeded")


@case
def opt_out(world, it):
    directory = world.directory()
    program = it.start(directory)
    program.tell("join", "long")
    program.tell("ready", "long", PATIENCE)
    program.arm("choose", "long")
    program.tell("opt-out")
    expect(program.ask("choose", "long").startswith("default\t"), "an arm after the opt-out")
    program.tell("close")
    program.end()
    program = it.start(directory)
    program.tell("join", "long")
    expect(program.status()["standing"] == "opted-out", "the opt-out is forgotten")
    program.tell("opt-in")
    program.tell("ready", "long", PATIENCE)
    expect(program.status()["spent"] == 1.0, "what was spent is forgotten")
    program = it.start(consent=0)
    program.tell("join", "long")
    time.sleep(0.3)
    seen = len(it.proxy.seen)
    expect(program.status()["standing"] == "opted-out", "it takes part without consent")
    time.sleep(0.3)
    expect(len(it.proxy.seen) == seen, "it calls without consent")


@case
def signatures(world, it):
    program = it.start(signer=world.public_key)
    program.tell("join", "signed")
    program.tell("ready", "signed", PATIENCE)
    program.tell("join", "long")
    until(lambda: "sign" in program.ask("ready", "long", 0), "unsigned is the reason")
    expect(program.ask("choose", "long").startswith("default\t"), "an arm of nobody's")
    library = shutil.which("faketime") and next(
        iter(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None
    )
    expect(library, "faketime is not installed")
    # A device whose clock is past the signature's end. Timeouts are of the true clock.
    later = {"LD_PRELOAD": str(library), "FAKETIME": "+36h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    program = it.start(signer=world.public_key, variables=later)
    program.tell("join", "signed")
    until(lambda: "expire" in program.ask("ready", "signed", 0), "it has expired")
    expect(program.ask("choose", "signed").startswith("default\t"), "an arm by an old signature")


@case
def bad_settings_and_names(world, it):
    program = it.program()
    log, witness = world.logged.key, world.logged.witness_key
    for settings, what in (
        ((1, -1, "-", "-", "-", "-", "-"), "budget"),
        ((1, 10, "nonsense", "-", "-", "-", "-"), "key"),
        ((1, 10, "-", "Platform=ios", "-", "-", "-"), "segments"),
        ((1, 10, "-", "-", "days until", "-", "-"), "metrics"),
        ((1, 10, "-", "-", "-", "1:0", "-"), "rewards"),
        ((1, 10, "-", "-", "-", "-", f"{log} none"), "log"),
        ((1, 10, "-", "-", "-", "-", f"{witness} {log}"), "log"),
    ):
        answer = program.ask("start", it.proxy.url, world.directory(), *settings)
        expect(answer.startswith("error\t") and what in answer, answer)
    program = it.start()
    for name in ("", "With Capitals", "x" * 65, "naïve"):
        answer = program.ask("join", name)
        expect(answer.startswith("error\t"), f"{name!r}: {answer}")
        expect(program.ask("choose", name).startswith("default\t"), f"{name!r} has an arm")


@case
def segments_and_metrics(world, it):
    agreed = {"segment": "platform=android", "metric": "returned"}
    for terms, why in (
        ({"metric": "returned"}, "platform"),
        ({"segment": "platform=ios"}, "returned"),
        ({**agreed, "segment": "platform=web"}, "part of the installations"),
    ):
        program = it.start(**terms)
        program.tell("join", "measured")
        until(lambda: not_waiting(program.ask("ready", "measured", 0)), "the experiment is known")
        answer = program.ask("choose", "measured")
        expect(answer.startswith("default\t") and why in answer, answer)
        refusal = program.ask("refusal")
        if why == "part of the installations":
            expect(refusal == "none", refusal)
        else:
            expect(refusal.startswith("told\texperiment measured: ") and why in refusal, refusal)
        expect(program.ask("error") == "none", "a refusal is no error")
    before = world.estimate("measured")
    program = it.start(**agreed)
    program.tell("join", "measured")
    program.tell("ready", "measured", PATIENCE)
    for _ in range(40):
        _, assignment, reported = program.arm("draw", "measured")
        expect(reported, "an arm without a report")
        program.tell("reward", assignment, 1)
        program.tell("measure", assignment, "returned", 1)
        program.tell("measure", assignment, "unknown", 1)
    until(lambda: program.status()["accepted"] == 40, "40 uploads are accepted")
    expect(program.status()["spent"] == 40.0, "a metric costs more than the report")
    after = world.estimate("measured")
    ios, android = (reports(of[1]) - reports(of[0]) for of in paired(before, after, "segments"))
    (returned,) = (reports(of[1]) - reports(of[0]) for of in paired(before, after, "metrics"))
    expect(ios == 0 and android > 0, f"{ios} reports of rewards from ios, {android} from android")
    told = f"{android} of rewards, {returned} of the metric"
    expect(returned > 0 and android + returned == 40, told)


def paired(before, after, what):
    return zip(before[what], after[what], strict=True)


@case
def one_view_for_all(world, it):
    """A log that the app pins: what it says is used, and nothing else."""
    logged = world.logged
    keys = f"{logged.key} {logged.witness_key}"
    program = it.start(log=keys, server=it.before(logged))
    program.tell("join", "logged")
    program.tell("ready", "logged", PATIENCE)
    _, assignment, reported = program.arm("draw", "logged")
    expect(reported, "an arm without a report")
    program.tell("reward", assignment, 1)
    until(lambda: program.status()["accepted"] == 1, "the report is accepted")
    # A server without a log can't be used by an app that wants one.
    program = it.start(log=keys)
    program.tell("join", "short")
    until(lambda: program.ask("refusal") != "none", "the answer is refused")
    expect(program.ask("ready", "short", 0).startswith("not-ready"), "an experiment without a log")


@case
def close(world, it):
    directory = world.directory()
    program = it.start(directory)
    program.tell("join", "long")
    program.tell("ready", "long", PATIENCE)
    _, assignment, _ = program.arm("choose", "long")
    for _ in range(2):
        program.tell("close")
    expect(program.ask("choose", "long").startswith("default\t"), "an arm after the end")
    expect(program.ask("reward", assignment, 1) == "no", "a reward after the end")
    expect(program.status()["standing"] == "closed", "it is not closed")
    # The directory is free at once, for another program too.
    other = it.start(directory)
    until(lambda: other.status()["standing"] == "on", "the directory is free")
    # What nobody knows is no 0.
    directory = world.directory()
    directory.write_text("no directory", encoding="utf-8")
    program = it.start(directory)
    until(lambda: program.status()["standing"] == "storage-unusable", "a file is no directory")
    expect(program.status()["spent"] == "unknown", "what was spent is not known")
    program.tell("close")
    expect(program.status()["spent"] == "unknown", "it is not known afterwards either")


@case
def eight_threads(world, it):
    program = it.start()
    program.tell("join", "short")
    program.tell("ready", "short", PATIENCE)
    expect(program.ask("threads", 8, "short", 25) == "200", "assignments are missing")
    until(lambda: program.status()["accepted"] == 200, "200 uploads are accepted")


def microseconds_of_choose(world, command):
    """Microseconds of a choice."""
    it = Case(world, command)
    try:
        program = it.start()
        program.tell("join", "long")
        program.tell("ready", "long", PATIENCE)
        return float(program.ask("time", "long", 5000))
    finally:
        it.close()


def run_app(world, command):
    """Runs an app of the documentation, as a newcomer does."""
    directory = world.directory()
    directory.mkdir()
    address = f"http://{world.host}:{world.port}"
    done = subprocess.run(
        [*command, address], cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    lines = done.stdout.splitlines()
    if done.returncode != 0 or len(lines) != 2 or lines[1] != "reports counted: 1":
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    print(f"{' '.join(command)}: {lines[0]}, {lines[1]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the program `bandana`")
    parser.add_argument(
        "--language",
        action="append",
        required=True,
        metavar="NAME=WORD,WORD...",
        help="a language, and the command of its program; repeat it for each",
    )
    parser.add_argument(
        "--app",
        action="append",
        default=[],
        metavar="WORD,WORD...",
        help="an app of the documentation, which is given the address and counts one report",
    )
    parser.add_argument("--case", action="append", help="only these cases")
    parser.add_argument("--json", help="a file for the results")
    arguments = parser.parse_args()
    languages = dict(language.split("=", 1) for language in arguments.language)
    results, times = {}, {}
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        world = World(str(pathlib.Path(arguments.server).resolve()), scratch)
        try:
            for language, words in languages.items():
                command = words.split(",")
                for function in CASES:
                    if arguments.case and function.__name__ not in arguments.case:
                        continue
                    begin = time.monotonic()
                    it = Case(world, command)
                    try:
                        function(world, it)
                        outcome = "passed"
                    except Failure as why:
                        outcome = f"failed: {why}"
                        failed += 1
                    finally:
                        it.close()
                    results.setdefault(function.__name__, {})[language] = outcome
                    took = time.monotonic() - begin
                    print(f"{language:8} {function.__name__:40} {took:5.1f} s  {outcome}", flush=True)
                times[language] = microseconds_of_choose(world, command)
            for words in arguments.app:
                run_app(world, words.split(","))
        finally:
            world.stop()
    names = list(languages)
    print(f"\n{'':40}" + "".join(f"{name:>10}" for name in names))
    for name, outcomes in results.items():
        shown = "".join(f"{outcomes[one].split(':')[0]:>10}" for one in names)
        print(f"{name.replace('_', ' '):40}{shown}")
    print(f"{'choose, microseconds':40}" + "".join(f"{times[one]:>10.1f}" for one in names))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"cases": results, "choose_us": times}, file, indent=2)
    passed = sum(one == "passed" for outcomes in results.values() for one in outcomes.values())
    print(f"\n{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
