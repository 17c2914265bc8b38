"""A back end in Flask. Its visitors' browsers have the client, so it never sees how they react to an arm."""

import os
import pathlib

import flask

HERE = pathlib.Path(__file__).parent
PACKAGE = os.path.abspath(os.environ.get("BANDANA_PACKAGE", "node_modules/bandana-client/dist"))
SERVER = os.environ.get("BANDANA_SERVER_URL", "http://127.0.0.1:7301")
# For no real users: reports leave at once, and nobody has signed the experiment.
DEMONSTRATION = "BANDANA_DEMONSTRATION" in os.environ

# The page runs the package's WebAssembly, and calls Bandana's server.
POLICY = f"default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' {SERVER}"

app = flask.Flask(__name__, static_folder=None)


@app.get("/")
def page() -> flask.Response:
    answer = flask.send_from_directory(HERE / "page", "index.html")
    answer.headers["content-security-policy"] = POLICY
    return answer


@app.get("/page/<path:name>")
def page_file(name: str) -> flask.Response:
    return flask.send_from_directory(HERE / "page", name)


@app.get("/bandana/<path:name>")
def package_file(name: str) -> flask.Response:
    return flask.send_from_directory(PACKAGE, name)


@app.get("/settings")
def settings() -> dict[str, object]:
    return {"server": SERVER, "demonstration": DEMONSTRATION}
