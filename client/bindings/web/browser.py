#!/usr/bin/env python3
"""Drives `examples/web` in Chromium: offline and on again, over a reload, and in two tabs."""

import argparse
import base64
import functools
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
PATIENCE = 30.0

# What the page has kept of sums of rewards, in hexadecimal, and how a 1 looks in it.
KEPT = """return new Promise((resolve, reject) => {
  const request = indexedDB.open("bandana:shop", 1);
  request.onerror = () => reject(request.error);
  request.onsuccess = () => {
    const read = request.result.transaction("slots").objectStore("slots").get("rewards");
    read.onsuccess = () => {
      request.result.close();
      resolve(Array.from(read.result ?? [], (byte) => byte.toString(16).padStart(2, "0")).join(""));
    };
  };
});"""
ONE = "000000000000f03f"


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, *_):
        pass


class Browser:
    """A session of chromedriver, by the W3C's WebDriver."""

    def __init__(self, scratch):
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True
        )
        for line in self.driver.stdout:
            if "started successfully on port" in line:
                self.url = "http://127.0.0.1:" + line.rstrip(".\n").rsplit(" ", 1)[1]
                break
        threading.Thread(target=self.driver.stdout.read, daemon=True).start()
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        arguments += ["--disable-background-networking", "--disable-component-update"]
        arguments += ["--disable-sync", "--window-size=480,640", f"--user-data-dir={scratch}/profile"]
        options = {"goog:chromeOptions": {"args": arguments}}
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self.url += "/session/" + answer["sessionId"]

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("content-type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def script(self, text):
        return self.call("POST", "/execute/sync", {"script": text, "args": []})

    def open(self, address):
        self.call("POST", "/url", {"url": address})

    def text(self, element):
        return self.script(f"return document.getElementById({json.dumps(element)}).textContent")

    def click(self, element):
        self.script(f"document.getElementById({json.dumps(element)}).click()")

    def offline(self, is_offline):
        conditions = {"offline": is_offline, "latency": 0, "throughput": -1}
        conditions |= {"download_throughput": -1, "upload_throughput": -1}
        self.call("POST", "/chromium/network_conditions", {"network_conditions": conditions})

    def until(self, element, is_so, what):
        end = time.monotonic() + PATIENCE
        while not is_so(text := self.text(element)):
            if time.monotonic() > end:
                raise SystemExit(f"{what}: {element} is {text!r}")
            time.sleep(0.05)
        print(f"{what}: {text}", flush=True)
        return text

    def close(self):
        try:
            self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the program `bandana`")
    parser.add_argument("--picture", help="a PNG file for what the page shows")
    arguments = parser.parse_args()
    handler = functools.partial(Quiet, directory=ROOT)
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{pages.server_port}"
    with tempfile.TemporaryDirectory() as scratch:
        command = [arguments.server, "serve", "--init", "--data-dir", f"{scratch}/data"]
        command += ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]
        command += ["--cors-origins", origin]
        with open(f"{scratch}/log", "w", encoding="utf-8") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        addresses = dict(server.stdout.readline().strip().split("=") for _ in range(2))
        operator = {**os.environ, "BANDANA_OPERATOR_URL": f"http://{addresses['operator']}"}

        def bandana(*words):
            command = [arguments.server, *words]
            done = subprocess.run(command, env=operator, capture_output=True, text=True, check=True)
            return done.stdout

        for name, window in (("short", "2"), ("long", "600")):
            settings = ["--arm", "blue", "--arm", "green", "--epsilon", "1"]
            settings += ["--attribution-window-seconds", window, "--release-delay-seconds-max", "0"]
            bandana("experiment", "create", name, *settings)
        browser = Browser(scratch)
        try:
            drive(browser, f"{origin}/examples/web/?demonstration&server=http://{addresses['device']}", arguments)
        finally:
            browser.close()
        reports = sum(a["reports"] for a in json.loads(bandana("estimate", "short", "--json"))["arms"])
        print(f"the server has counted {reports} report")
        if reports != 1:
            return 1
        server.terminate()
        return server.wait(PATIENCE)


def drive(browser, page, arguments):
    """What somebody does with the page."""
    is_arm = lambda text: text in ("blue", "green")
    browser.open(f"{page}&experiment=long")
    arm = browser.until("arm", is_arm, "an arm")
    browser.until("spent", lambda text: text == "1 nats", "one report is paid for")
    # It is left in the task of the click.
    shown = "document.getElementById('arm').textContent = 'left'"
    browser.script(f"{shown}; document.getElementById('buy').click(); location.reload()")
    browser.until("arm", lambda text: text == arm, "the same arm after the page was left")
    if ONE not in browser.script(KEPT):
        raise SystemExit("the reward of a page that was left is lost")
    browser.click("buy")
    browser.until("thanks", lambda text: text == "Thank you!", "a click is a reward")
    if arguments.picture:
        picture = base64.b64decode(browser.call("GET", "/screenshot"))
        pathlib.Path(arguments.picture).write_bytes(picture)
    for _ in range(3):
        browser.open(f"{page}&experiment=long")
        browser.until("arm", lambda text: text == arm, "the same arm after a reload")
        browser.until("spent", lambda text: text == "1 nats", "and nothing more is paid")
        browser.until("standing", lambda text: text == "on", "the client")

    # Offline a choice is made all the same, and its report waits.
    browser.open(f"{page}&experiment=short")
    browser.until("arm", is_arm, "an arm of another experiment")
    browser.offline(True)
    browser.click("buy")
    browser.until("reports", lambda text: ", 1 waiting, 0 counted" in text, "offline")
    browser.offline(False)
    browser.until("reports", lambda text: ", 0 waiting, 1 counted" in text, "and on again")

    # Two tabs don't spend the budget twice.
    first = browser.call("GET", "/window")
    second = browser.call("POST", "/window/new", {"type": "tab"})["handle"]
    browser.call("POST", "/window", {"handle": second})
    browser.open(f"{page}&experiment=long")
    browser.until("standing", lambda text: "another tab" in text, "a second tab")
    browser.until("arm", lambda text: text == arm, "the arm of the first one")
    browser.call("POST", "/window", {"handle": first})
    browser.call("DELETE", "/window")
    browser.call("POST", "/window", {"handle": second})
    browser.until("standing", lambda text: text == "on", "once the first one is closed")
    browser.until("spent", lambda text: text == "2 nats", "with what both have spent")

    browser.click("takes-part")
    browser.until("standing", lambda text: text == "opted-out", "the user opts out")
    browser.open(f"{page}&experiment=long")
    browser.until("standing", lambda text: text == "opted-out", "also after a reload")
    browser.until("arm", lambda text: text.startswith("the default"), "the default")


if __name__ == "__main__":
    sys.exit(main())
