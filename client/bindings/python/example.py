"""Five minutes to the first choice: shows an arm, rewards it, and waits until the report has left."""

import os
import sys
import time

import bandana

# Without it the app takes part in no experiment whose reports leave at once: their time tells whose they are.
demonstration = "BANDANA_DEMONSTRATION" in os.environ
if demonstration:
    print(
        "DEMONSTRATION, for no real users: reports leave at once, and nobody has signed the experiment",
        file=sys.stderr,
    )

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:7301"
with bandana.Bandana(
    url,
    consent=True,  # the user was asked
    directory="app-data/bandana",
    least_release_delay=0 if demonstration else 600,
) as app:
    experiment = app.experiment("button-colour")
    try:
        experiment.wait_until_ready(10)
    except bandana.NotReady:
        pass  # the choice says why
    choice = experiment.choose()  # at once, offline too
    print("show", choice.label_or("blue"))
    if choice.reason is not None:
        print("no report:", choice.reason, file=sys.stderr)
    choice.reward(1.0)  # when the user reacts

    # An app goes on; this one waits until its report has left.
    while (status := app.status()).open_assignments + status.waiting_reports > 0:
        time.sleep(0.01)
    print("reports counted:", status.uploads_accepted)
