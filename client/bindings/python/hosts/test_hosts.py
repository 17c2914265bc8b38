"""The client in the programs that run Python apps, against a real server.

`BANDANA_SERVER` is the program `bandana`. Each host is started as people do it, in a folder of its own.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import apps
import bandana
import nbclient
import nbformat
import pytest
from bandana._transport import Posts
from jupyter_core.utils import run_sync

PATIENCE = 60.0
PYTHON = [sys.executable]
GUNICORN = [*PYTHON, "-m", "gunicorn", "--bind", "127.0.0.1:PORT"]
UVICORN = [*PYTHON, "-m", "uvicorn", "--port", "PORT"]
UWSGI = [pathlib.Path(sys.executable).with_name("uwsgi"), "--need-app", "--home", sys.prefix]
UWSGI += ["--http-socket", "127.0.0.1:PORT", "--wsgi-file", "wsgi.py"]


def until(give, what):
    """Polls for what another process does, and returns the first true answer."""
    end = time.monotonic() + PATIENCE
    while not (given := give()):
        assert time.monotonic() < end, f"{what} within {PATIENCE:.0f} seconds"
        time.sleep(0.02)
    return given


class Server:
    """A server with an experiment whose assignments stay open."""

    def __init__(self, folder):
        self.program = os.environ["BANDANA_SERVER"]
        command = [self.program, "serve", "--init", "--data-dir", folder / "data"]
        command += ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]
        with open(folder / "log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        addresses = dict(self.process.stdout.readline().strip().split("=") for _ in range(2))
        self.url = f"http://{addresses['device']}"
        create = [self.program, "experiment", "create", "button-colour", "--epsilon", "1"]
        create += ["--arm", "blue", "--arm", "green", "--attribution-window-seconds", "600"]
        create += ["--release-delay-seconds-max", "0"]
        operator = {**os.environ, "BANDANA_OPERATOR_URL": f"http://{addresses['operator']}"}
        subprocess.run(create, env=operator, stdout=subprocess.DEVNULL, check=True)

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with contextlib.closing(Server(tmp_path_factory.mktemp("server"))) as server:
        yield server


class Host:
    """A program under way that runs an app in a folder."""

    def __init__(self, folder, server, command):
        self.folder, self.log = folder, folder / "log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}/"
        variables = {"BANDANA_URL": server.url, "PYTHONUNBUFFERED": "1"}
        # A change within a second leaves compiled files as they are.
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [str(word).replace("PORT", port) for word in command],
                cwd=folder,
                env={**os.environ, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def visit(self):
        """What a visitor is shown; nothing while nobody answers."""
        assert self.process.poll() is None, "the host has ended"
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(self.url, timeout=PATIENCE) as page:
                return json.load(page)

    def reported(self):
        """The first visit that is reported."""

        def give():
            seen = self.visit()
            return seen if seen and seen["is_reported"] else None

        return until(give, "an arm with a report")

    def reloaded(self, before):
        """The first visit that is reported after the app was changed."""

        def give():
            seen = self.visit()
            if seen and seen["process"] == before["process"]:
                # A change before a reloader's first look is none.
                (self.folder / "shop.py").touch()
                return None
            return seen if seen and seen["is_reported"] else None

        return until(give, "an arm of another process")

    def warnings(self):
        lines = self.log.read_text().splitlines()
        return [line for line in lines if "bandana WARNING" in line]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        # Children that outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        # pytest shows it when a test fails.
        print(self.log.read_text())


def test_who_listens_hears_that_arms_have_come(server):
    posts, listens, came = Posts(server.url), threading.Event(), threading.Event()

    def call(path, headers, body):
        assert listens.wait(PATIENCE)
        return posts(path, headers, body)

    settings = {"consent": True, "directory": None, "least_release_delay": 0}
    with bandana.Bandana(call, **settings) as app:
        experiment = app.experiment("button-colour")
        experiment.on_change(came.set)
        assert not came.is_set() and experiment.why_not_ready() is not None
        listens.set()
        assert came.wait(PATIENCE) and experiment.is_ready()


@pytest.fixture
def host(tmp_path, server):
    for name, text in apps.FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "queue").mkdir()
    return lambda command: Host(tmp_path, server, command)


RELOADERS = {
    "flask": [*PYTHON, "-m", "flask", "--app", "flask_shop", "run", "--debug", "--port", "PORT"],
    "flask's app.run": [*PYTHON, "flask_shop.py", "PORT"],
    "django": [*PYTHON, "django_shop.py", "runserver", "PORT"],
    "uvicorn": [*UVICORN, "--reload", "asgi:app"],
}


@pytest.mark.parametrize("command", RELOADERS.values(), ids=RELOADERS)
def test_reloaders_have_one_installation(host, command):
    with host(command) as host:
        before = host.reported()
        after = host.reloaded(before)
        # The second one goes on with what the first one kept.
        assert after == {**before, "process": after["process"]}
        assert after["standing"] == "ON" and after["spent"] == 1.0
        assert host.warnings() == []


WORKERS = {
    "gunicorn gthread": [*GUNICORN, "--worker-class", "gthread", "--threads", "4", "wsgi:application"],
    "gunicorn uvicorn": [*GUNICORN, "--worker-class", "uvicorn_worker.UvicornWorker", "asgi:app"],
    "uwsgi": [*UWSGI, "--enable-threads"],
    "uwsgi workers": [*UWSGI, "--threads", "2", "--master", "--lazy-apps"],
}


@pytest.mark.parametrize("command", WORKERS.values(), ids=WORKERS)
def test_workers_that_start_a_client_report(host, command):
    with host(command) as host:
        seen = host.reported()
        assert seen["standing"] == "ON" and seen["spent"] == 1.0
        assert host.warnings() == []


COPIES = {
    "gunicorn": [*GUNICORN, "--preload", "wsgi:application"],
    "uwsgi": [*UWSGI, "--enable-threads", "--master"],
}


@pytest.mark.parametrize("command", COPIES.values(), ids=COPIES)
def test_workers_that_are_copies_say_so_once(host, command):
    with host(command) as host:
        for _ in range(2):
            seen = until(host.visit, "a page")
            assert seen["standing"] == "FORKED" and not seen["is_reported"]
        assert sum("start a client in each worker" in line for line in host.warnings()) == 1


def test_the_second_worker_in_a_directory_says_so(host):
    with host([*GUNICORN, "--workers", "2", "wsgi:application"]) as host:
        host.reported()
        (warning,) = until(host.warnings, "a warning")
        assert "give each client a directory of its own" in warning


def test_uwsgi_without_threads_says_so(host):
    with host(UWSGI) as host:
        assert not until(host.visit, "a page")["is_reported"]
        assert any("--enable-threads" in line for line in host.warnings())


def test_a_worker_of_celery_reports(host):
    command = [*PYTHON, "-m", "celery", "--app", "tasks", "worker", "--concurrency", "1"]
    with host([*command, "--pool", "prefork", "--without-mingle", "--without-gossip"]) as host:
        until((host.folder / "is-done").exists, "a task")
        seen = json.loads((host.folder / "visit").read_text())
        assert seen["is_reported"] and seen["standing"] == "ON"


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_another_process_does_not_take_part_a_second_time(host, way):
    with host([*PYTHON, "processes.py", way]) as host:
        assert host.process.wait(PATIENCE) == 0
        printed = host.log.read_text()
        (own, other), _ = json.JSONDecoder().raw_decode(printed, printed.index("[{"))
        assert own["is_reported"] and own["process"] != other["process"]
        # It has imported the app too, and the directory is in use.
        assert not other["is_reported"] and other["standing"] == "STORAGE_UNUSABLE"


def test_a_cell_that_is_run_again_and_another_kernel_go_on(host, tmp_path, server, monkeypatch):
    monkeypatch.setenv("BANDANA_URL", server.url)
    # What a notebook shows, it keeps.
    start = "import shop\nclient = shop.start()\nclient"
    visit = "print(shop.visit_when_ready(client))"
    cells = [nbformat.v4.new_code_cell(text) for text in [start, visit] * 3]
    notebook = nbformat.v4.new_notebook(cells=cells)
    run = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}})
    with run.setup_kernel():
        for number, cell in enumerate(cells):
            if number == 4:
                run_sync(run.km.restart_kernel)(now=True)
                run_sync(run.kc.wait_for_ready)(timeout=PATIENCE)
            run.execute_cell(cell, number)
    # The log goes to the other stream, whenever it has something to say.
    texts = [
        "".join(out["text"] for out in cell.outputs if out.get("name") == "stdout")
        for cell in cells
    ]
    seen = [json.loads(text.splitlines()[-1]) for text in texts[1::2]]
    assert [one["spent"] for one in seen] == [1.0] * 3, texts
    assert len({one["assignment"] for one in seen}) == 1 and seen[0]["is_reported"], texts
    assert seen[0]["process"] == seen[1]["process"] != seen[2]["process"]
    assert "WARNING" not in str([cell.outputs for cell in cells])
