"""The files of the apps that `test_hosts.py` starts: the texts of modules, by their names."""

#: What all apps share: a client, and a visitor who is shown an arm and reacts.
SHOP = '''
import json
import logging
import os

import bandana

logging.basicConfig(level="INFO", format="%(name)s %(levelname)s %(message)s")

def start():
    url = os.environ["BANDANA_URL"]
    client = bandana.Bandana(url, consent=True, directory="app-data", least_release_delay=0)
    client.experiment("button-colour")
    return client

def visit(client):
    choice = client.experiment("button-colour").choose()
    choice.reward(1.0)
    status = client.status()
    return json.dumps({
        "process": os.getpid(),
        "assignment": choice.assignment,
        "is_reported": choice.is_reported,
        "standing": status.standing.name,
        "spent": status.lifetime_spent,
    })

def visit_when_ready(client):
    try:
        client.experiment("button-colour").wait_until_ready(30)
    except bandana.NotReady as why:
        print(why, flush=True)
    return visit(client)
'''

WSGI = '''
import shop

client = shop.start()

def application(environ, start_response):
    start_response("200 OK", [("content-type", "application/json")])
    return [shop.visit(client).encode()]
'''

ASGI = '''
import contextlib

import fastapi
import shop

@contextlib.asynccontextmanager
async def lifespan(app):
    async with shop.start() as app.state.client:
        yield

app = fastapi.FastAPI(lifespan=lifespan)

@app.get("/")
async def page():
    return fastapi.Response(shop.visit(app.state.client))
'''

FLASK = '''
import sys

import flask
import shop

client = shop.start()
app = flask.Flask(__name__)

@app.get("/")
def page():
    return shop.visit(client)

if __name__ == "__main__":
    app.run(debug=True, port=int(sys.argv[1]))
'''

DJANGO = '''
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpResponse
from django.urls import path

import shop_app

settings.configure(
    DEBUG=True, INSTALLED_APPS=["shop_app.ShopApp"], ROOT_URLCONF=__name__, SECRET_KEY="of nobody"
)
urlpatterns = [path("", lambda request: HttpResponse(shop_app.visit()))]

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
'''

DJANGO_APP = '''
from django.apps import AppConfig
import shop

class ShopApp(AppConfig):
    name = "shop_app"

    def ready(self):
        global client
        client = shop.start()

def visit():
    return shop.visit(client)
'''

CELERY = '''
import celery
import celery.signals
import shop

app = celery.Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "queue"
}

@celery.signals.worker_process_init.connect
def begin(**_):
    global client
    client = shop.start()

@celery.signals.worker_ready.connect
def send(**_):
    visit.delay()

@app.task
def visit():
    with open("visit", "w") as file:
        file.write(shop.visit_when_ready(client))
    with open("is-done", "w"):
        pass
'''

PROCESSES = '''
import multiprocessing
import sys

import shop

client = shop.start()

def visit(_):
    return shop.visit(client)

if __name__ == "__main__":
    own = shop.visit_when_ready(client)
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        (other,) = pool.map(visit, [1])
    print("[" + own + "," + other + "]", flush=True)
    client.close()
'''

FILES = {
    "shop": SHOP,
    "wsgi": WSGI,
    "asgi": ASGI,
    "flask_shop": FLASK,
    "django_shop": DJANGO,
    "shop_app": DJANGO_APP,
    "tasks": CELERY,
    "processes": PROCESSES,
}
