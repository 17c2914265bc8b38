"""A back end in Django. Its visitors' browsers have the client, so it never sees how they react to an arm."""

import os
import pathlib
import secrets
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.static import serve

HERE = pathlib.Path(__file__).parent
PACKAGE = os.environ.get("BANDANA_PACKAGE", "node_modules/bandana-client/dist")
SERVER = os.environ.get("BANDANA_SERVER_URL", "http://127.0.0.1:7301")
# For no real users: reports leave at once, and nobody has signed the experiment.
DEMONSTRATION = "BANDANA_DEMONSTRATION" in os.environ

# The page runs the package's WebAssembly, and calls Bandana's server.
POLICY = f"default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' {SERVER}"

settings.configure(
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("SECRET_KEY", secrets.token_hex()),
)


def page(_request: HttpRequest) -> HttpResponse:
    text = (HERE / "page" / "index.html").read_text()
    return HttpResponse(text, headers={"content-security-policy": POLICY})


def settings_of_page(_request: HttpRequest) -> JsonResponse:
    return JsonResponse({"server": SERVER, "demonstration": DEMONSTRATION})


urlpatterns = [
    path("", page),
    path("settings", settings_of_page),
    path("page/<path:path>", serve, {"document_root": HERE / "page"}),
    path("bandana/<path:path>", serve, {"document_root": PACKAGE}),
]

application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
