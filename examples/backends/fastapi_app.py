"""A back end in FastAPI. Its visitors' browsers have the client, so it never sees how they react to an arm."""

import os
import pathlib

from fastapi import FastAPI, Response
from fastapi.staticfiles import StaticFiles

HERE = pathlib.Path(__file__).parent
PACKAGE = os.environ.get("BANDANA_PACKAGE", "node_modules/bandana-client/dist")
SERVER = os.environ.get("BANDANA_SERVER_URL", "http://127.0.0.1:7301")
# For no real users: reports leave at once, and nobody has signed the experiment.
DEMONSTRATION = "BANDANA_DEMONSTRATION" in os.environ

# The page runs the package's WebAssembly, and calls Bandana's server.
POLICY = f"default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' {SERVER}"

app = FastAPI()
app.mount("/bandana", StaticFiles(directory=PACKAGE))
app.mount("/page", StaticFiles(directory=HERE / "page"))


@app.get("/")
def page() -> Response:
    text = (HERE / "page" / "index.html").read_text()
    return Response(text, headers={"content-security-policy": POLICY}, media_type="text/html")


@app.get("/settings")
def settings() -> dict[str, object]:
    return {"server": SERVER, "demonstration": DEMONSTRATION}
