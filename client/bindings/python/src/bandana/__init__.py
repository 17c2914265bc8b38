"""Private bandits: an arm comes out, a reward goes in, and one random bit about it leaves.

    import bandana

    with bandana.Bandana("http://localhost:7301", consent=True, directory="app-data") as app:
        experiment = app.experiment("button-colour")
        choice = experiment.choose()
        show(choice.label_or("blue"))
        choice.reward(1.0)  # when the user reacts, if ever

``choose`` never waits and never fails. A reward changes the odds of one private bit, and nothing
else: neither whether nor when a report is made.
"""

from ._client import (
    Answer,
    Bandana,
    Binary,
    Bounded,
    Budget,
    Categorical,
    Choice,
    Experiment,
    Log,
    NotReady,
    SetupError,
    Transport,
)
from ._core import Standing, Status

__all__ = [
    "Answer",
    "Bandana",
    "Binary",
    "Bounded",
    "Budget",
    "Categorical",
    "Choice",
    "Experiment",
    "Log",
    "NotReady",
    "SetupError",
    "Standing",
    "Status",
    "Transport",
]
