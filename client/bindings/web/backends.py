#!/usr/bin/env python3
"""Drives the back ends of `examples/backends` in Chromium, against a real server."""

import argparse
import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from browser import PATIENCE, ROOT, Browser

BACKENDS = ROOT / "examples" / "backends"

# What docs/python.md tells readers to run.
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8").split("## Examples of back ends")[1]
CREATE = shlex.split(re.search(r"^bandana (experiment create (?:.*\\\n)*.*)$", PAGE, re.MULTILINE)[1].replace("\\\n", ""))
COMMANDS = dict(re.findall(r"^\| \[(.*)\]\(.*\) \| `python (.*)` \|$", PAGE, re.MULTILINE))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@contextlib.contextmanager
def running(command, **settings):
    process = subprocess.Popen(command, **settings)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)
        if process.stdout is not None:
            process.stdout.close()


def answered(url):
    """The headers and the text of a page, once a back end answers."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as page:
                return page.headers, page.read().decode()
        except OSError as error:
            if time.monotonic() > end:
                raise SystemExit(f"{url}: {error}") from error
            time.sleep(0.02)


def drive(browser, url):
    """A visitor takes part, reacts, and is counted."""
    browser.open(url)
    browser.until("arm", lambda text: text == "the default", "before anybody agrees")
    browser.click("takes-part")
    browser.until("arm", lambda text: text in ("blue", "green"), "an arm")
    browser.click("buy")
    browser.until("reports", lambda text: text == "1 counted", "a report")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the program `bandana`")
    parser.add_argument("--python", default=sys.executable, help="a Python with the frameworks")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        ports = {name: free_port() for name in COMMANDS}
        origins = ",".join(f"http://127.0.0.1:{port}" for port in ports.values())
        command = [arguments.server, "serve", "--init", "--data-dir", f"{scratch}/data"]
        command += ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]
        log = stack.enter_context(open(f"{scratch}/log", "w", encoding="utf-8"))
        command += ["--cors-origins", origins]
        server = stack.enter_context(running(command, stdout=subprocess.PIPE, stderr=log, text=True))
        addresses = dict(server.stdout.readline().strip().split("=") for _ in range(2))
        operator = {**os.environ, "BANDANA_OPERATOR_URL": f"http://{addresses['operator']}"}

        def bandana(*words):
            command = [arguments.server, *words]
            return subprocess.run(command, env=operator, capture_output=True, text=True, check=True).stdout

        bandana(*CREATE)
        variables = {
            **os.environ,
            "BANDANA_SERVER_URL": f"http://{addresses['device']}",
            "BANDANA_PACKAGE": str(ROOT / "client/bindings/web/dist"),
            "BANDANA_DEMONSTRATION": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for name, command in COMMANDS.items():
            words = [arguments.python, *shlex.split(command.replace("8000", str(ports[name])))]
            stack.enter_context(running(words, cwd=BACKENDS, env=variables, stdout=log, stderr=log))
        browser = Browser(scratch)
        stack.callback(browser.close)
        for name, port in ports.items():
            print(name, flush=True)
            url = f"http://127.0.0.1:{port}/"
            headers, _ = answered(url)
            if "'wasm-unsafe-eval'" not in headers.get("content-security-policy", ""):
                raise SystemExit(f"{name}: its page has no Content-Security-Policy")
            drive(browser, url)
        reports = sum(arm["reports"] for arm in json.loads(bandana("estimate", "button-colour", "--json"))["arms"])
        print(f"the server has counted {reports} reports")
        return 0 if reports == len(COMMANDS) else 1


if __name__ == "__main__":
    sys.exit(main())
