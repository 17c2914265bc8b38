#!/usr/bin/env python3
"""Builds the example of docs/web.md with bundlers, from the package as npm packs it, and runs it."""

import argparse
import functools
import http.server
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from browser import PATIENCE, ROOT, Browser, Quiet

HERE = pathlib.Path(__file__).resolve().parent
POLICY = "script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' http://127.0.0.1:*"
FAST = ["node", "commonjs", "exit", "react", "esbuild", "webpack", "rollup", "vite", "vite-dev"]
DEEP = ["parcel", "next", "bun", "deno", "jest"]

# What browsers of the list do not have, though this one does.
NEWER = """
for (const [of, names] of [
  [AbortSignal, ["any", "timeout"]],
  [Symbol, ["asyncDispose", "dispose"]],
  [Promise, ["withResolvers", "try"]],
  [Array, ["fromAsync"]],
  [Object, ["groupBy"]],
  [Map, ["groupBy"]],
  [URL, ["parse", "canParse"]],
  [Uint8Array, ["fromBase64"]],
  [Uint8Array.prototype, ["toBase64"]],
  [Set.prototype, ["union"]],
  [Array.prototype, ["toSorted", "toSpliced", "with"]],
  [ReadableStream, ["from"]],
  [ReadableStream.prototype, [Symbol.asyncIterator]],
  [self, ["scheduler", "Iterator"]],
]) {
  for (const name of names) {
    delete of[name];
  }
}
"""


class Pages(Quiet):
    """Pages under the policy that docs/web.md names."""

    def end_headers(self):
        self.send_header("content-security-policy", POLICY)
        super().end_headers()


def example(device, language="js"):
    """An example of the page, of an unsigned experiment on the server at this address."""
    text = (ROOT / "docs/web.md").read_text(encoding="utf-8")
    code = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)[1]
    code, found = re.subn(r'server: ".*?"', f'server: "http://{device}"', code)
    code, signed = re.subn(r"\n *operatorKey: .*", "", code)
    if found + signed != 2:
        raise SystemExit("docs/web.md: its example has no server, or no key")
    return code


def programs(folder, code):
    """The example for Node and its like, as modules of both kinds, and as a page of Next."""
    function = code.split("\n\n")[1]
    program = function.replace("start({", 'start({\n    store: new DirectoryStore("state"),', 1)
    begin = "const button = { dataset: {} };\n" + program[: program.rindex("}")]
    end = "}\nshow(button).then(() => console.log(button.dataset.colour));\n"
    names = "{ Bandana, DirectoryStore }"
    module = f'import {names} from "bandana-client";\n'
    script = f'const {names} = require("bandana-client");\n'
    close = "  await bandana.close();\n"
    (folder / "program.mjs").write_text(module + begin + close + end, encoding="utf-8")
    (folder / "program.cjs").write_text(script + begin + close + end, encoding="utf-8")
    # It ends right after its choice.
    ends = begin.replace('"state"', '"ended"') + "  console.log(choice.label, choice.assignment);\n"
    ends += "  process.exit();\n}\nshow(button);\n"
    (folder / "ends.mjs").write_text(module + ends, encoding="utf-8")
    (folder / "pages").mkdir(exist_ok=True)
    component = f"""import {{ useEffect }} from "react";
import {{ Bandana }} from "bandana-client";
{function}
export default function Page({{ kind }}) {{
  useEffect(() => void show(document.getElementById("buy")), []);
  return <button id="buy">{{kind}}</button>;
}}
export function getServerSideProps() {{
  return {{ props: {{ kind: typeof Bandana.start }} }};
}}
"""
    (folder / "pages/index.jsx").write_text(component, encoding="utf-8")


def project(folder, deep, device):
    """A project with bundlers, the package, and the example."""
    folder.mkdir(parents=True, exist_ok=True)
    source = HERE / "test/bundlers" / ("deep" if deep else "")
    lock = (source / "package-lock.json").read_bytes()
    done = folder / "installed"
    if not done.exists() or done.read_bytes() != lock:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        subprocess.run(["npm", "ci", "--loglevel", "error", "--no-fund", "--no-audit"], cwd=folder, check=True)
        done.write_bytes(lock)
    target = folder / "node_modules/bandana-client"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    packed = ["npm", "pack", "--silent", "--pack-destination", folder]
    archive = subprocess.run(packed, cwd=HERE, check=True, capture_output=True, text=True).stdout.split()[-1]
    unpack = ["tar", "xzf", folder / archive, "-C", target, "--strip-components=1"]
    subprocess.run(unpack, check=True)
    print(f"the package has {(folder / archive).stat().st_size} bytes", flush=True)
    (folder / "main.js").write_text(example(device), encoding="utf-8")
    programs(folder, example(device))
    # It is not to show its default.
    component = example(device, "jsx").replace('?? "blue"', '?? "default"')
    page = 'import { createRoot } from "react-dom/client";\n'
    root = "createRoot(document.querySelector('main')).render(<StrictMode><App /></StrictMode>);\n"
    component = f'import {{ StrictMode }} from "react";\n{page}{component}{root}'
    (folder / "react.jsx").write_text(component, encoding="utf-8")
    (folder / "newer.js").write_text(NEWER, encoding="utf-8")
    page = '<!doctype html><meta charset="utf-8"><main><button id="buy">Buy</button></main>\n'
    module = '<script type="module" src="./main.js"></script>\n'
    (folder / "index.html").write_text(page + module, encoding="utf-8")
    for made in ("out", "state", "ended", ".next", "node_modules/.vite"):
        shutil.rmtree(folder / made, ignore_errors=True)
    return page + '<script src="newer.js"></script>\n' + module


def built(folder, name, page):
    command = ["node", HERE / "test/bundlers/build.mjs", name]
    subprocess.run(command, cwd=folder, check=True)
    out = folder / "out" / name
    if not (out / "index.html").exists():
        (out / "index.html").write_text(page, encoding="utf-8")
        shutil.copy(folder / "newer.js", out)


def shows(browser, name, address):
    browser.open(address)
    end = time.monotonic() + PATIENCE
    colour = "return document.getElementById('buy')?.dataset.colour"
    while (shown := browser.script(colour)) not in ("blue", "green"):
        if time.monotonic() > end:
            entries = browser.call("POST", "/se/log", {"type": "browser"})
            raise SystemExit(f"{name}: the example shows {shown!r}: {entries}")
        time.sleep(0.05)
    print(f"{name}: the example shows {shown}", flush=True)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port, process):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("a server of pages does not start") from None
            time.sleep(0.05)


def with_server(browser, name, command, folder, port):
    """Runs a server of pages that builds them as they are asked for."""
    with subprocess.Popen([*map(str, command)], cwd=folder, stdin=subprocess.PIPE) as process:
        try:
            wait_for(port, process)
            shows(browser, name, f"http://127.0.0.1:{port}/")
        finally:
            process.terminate()


def in_program(name, command, folder):
    """Runs the example without a page: its button is an object."""
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=60)
    if done.returncode != 0 or done.stdout.strip() not in ("blue", "green"):
        raise SystemExit(f"{name}: {done.stdout}{done.stderr}")
    print(f"{name}: the example shows {done.stdout.strip()}", flush=True)


def jest(folder, archive):
    """A test of an app, with the settings that docs/web.md has for Jest."""
    folder.mkdir(exist_ok=True)
    (folder / "package.json").write_text("{}", encoding="utf-8")
    install = ["npm", "install", "--silent", "--no-audit", "jest@30.2.0", "jest-environment-jsdom@30.2.0", archive]
    subprocess.run(install, cwd=folder, check=True)
    text = (ROOT / "docs/web.md").read_text(encoding="utf-8")
    for name in ("jest.config.cjs", "jest.setup.cjs", "button.test.cjs"):
        code = re.search(rf"^// {re.escape(name)}\n(.*?)^(?://|```)", text, re.DOTALL | re.MULTILINE)
        (folder / name).write_text(code[1], encoding="utf-8")
    subprocess.run(["node_modules/.bin/jest", "--config", "jest.config.cjs"], cwd=folder, check=True)


def run(browser, name, folder, page, origin, port):
    """Builds and runs the example by one bundler or program."""
    os.environ["NEXT_TELEMETRY_DISABLED"] = "1"
    bin = folder / "node_modules/.bin"
    if name == "vite-dev":
        command = ["node", HERE / "test/bundlers/build.mjs", name, port]
        with_server(browser, name, command, folder, port)
    elif name == "next":
        subprocess.run([bin / "next", "build"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with_server(browser, name, [bin / "next", "start", "-H", "127.0.0.1", "-p", port], folder, port)
    elif name == "node":
        in_program(name, ["node", "program.mjs"], folder)
    elif name == "commonjs":
        in_program(name, ["node", "program.cjs"], folder)
    elif name == "exit":
        shown = [subprocess.check_output(["node", "ends.mjs"], cwd=folder, text=True) for _ in range(2)]
        if shown[0] != shown[1]:
            raise SystemExit(f"what was chosen before process.exit() is forgotten: {shown}")
        print(f"{name}: the choice is kept", flush=True)
    elif name == "bun":
        in_program(name, [bin / "bun", "program.mjs"], folder)
    elif name == "deno":
        in_program(name, [bin / "deno", "run", "--allow-all", "program.mjs"], folder)
    elif name == "jest":
        jest(folder / "jest", next(folder.glob("bandana-client-*.tgz")))
    else:
        built(folder, name, page)
        shows(browser, name, f"{origin}/{name}/")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the program `bandana`")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="where bundlers are installed")
    parser.add_argument("--deep", action="store_true", help="those that take longer")
    parser.add_argument("--only", action="append", help="only this one")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    handler = functools.partial(Pages, directory=folder / "out")
    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    origin = f"http://127.0.0.1:{pages.server_port}"
    port = free_port()
    with tempfile.TemporaryDirectory() as scratch:
        command = [arguments.server, "serve", "--init", "--data-dir", f"{scratch}/data"]
        command += ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]
        command += ["--cors-origins", f"{origin},http://127.0.0.1:{port}"]
        with open(f"{scratch}/log", "w", encoding="utf-8") as log:
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        browser = None
        try:
            addresses = dict(server.stdout.readline().strip().split("=") for _ in range(2))
            operator = {**os.environ, "BANDANA_OPERATOR_URL": f"http://{addresses['operator']}"}
            create = [arguments.server, "experiment", "create", "button-colour"]
            create += ["--arm", "blue", "--arm", "green", "--epsilon", "1"]
            create += ["--attribution-window-seconds", "600"]
            subprocess.run(create, env=operator, check=True, stdout=subprocess.DEVNULL)
            page = project(folder, arguments.deep, addresses["device"])
            browser = Browser(scratch)
            for name in arguments.only or (DEEP if arguments.deep else FAST):
                run(browser, name, folder, page, origin, port)
        finally:
            if browser is not None:
                browser.close()
            server.terminate()
        return server.wait(PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
