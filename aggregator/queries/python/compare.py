"""Comparison with OpenDP and diffprivlib: mean absolute errors for the same data, price and neighbours.

Two data sets are neighbours if they differ in the values of one row; the number of rows is public. Each
peer answers with its best mechanism for that: OpenDP's map of a mechanism must give the same epsilon.

    pip install ./aggregator/queries/python opendp==0.16.0 diffprivlib==0.6.6 'scikit-learn<1.5'
    python aggregator/queries/python/compare.py --server target/release/bandana --json result.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import opendp.prelude as dp
from diffprivlib import tools

from bandana_queries import Client, DataSet, between

dp.enable_features("contrib")

ROWS, EPSILON = 5_000, 0.01
CITIES = ["Bonn", "Ulm", "Kiel", "Trier", "Jena"]
LOW, HIGH = 18, 99


@contextlib.contextmanager
def served(program: str, rows: list[tuple[int, str, str]]) -> Iterator[Callable[[int], DataSet]]:
    """Data sets of these rows with a budget of their own: each has one row that nobody asks about."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "files"
        files.mkdir()
        command = [program, "serve", "--init", "--data-dir", f"{folder}/data", "--data-sets", str(files)]
        command += ["--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"]
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert server.stdout is not None
        addresses = dict(line.strip().split("=") for line in (next(server.stdout), next(server.stdout)))

        def register(place: int) -> DataSet:
            lines = [f"{age},{city},{ill},{i if i else place}\n" for i, (age, city, ill) in enumerate(rows)]
            (files / f"{place}.csv").write_text("age,city,ill,mark\n" + "".join(lines))
            columns = [f"age:{LOW}..{HIGH}", "city:" + "|".join(CITIES), "ill:no|yes"]
            return client.register(f"people-{place}", f"{place}.csv", columns, epsilon=32)

        with Client(f"http://{addresses['operator']}") as client:
            yield register
        server.terminate()
        server.wait()


def main() -> None:
    """Prints a table of errors, and their ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", default="bandana")
    parser.add_argument("--answers", type=int, default=400, help="of each question, at most 3000")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    settings = parser.parse_args()
    seeded = random.Random(settings.seed)
    weights = [30, 29, 25, 10, 6]
    rows = [
        (seeded.randint(LOW, HIGH), seeded.choices(CITIES, weights)[0], seeded.choice(["no", "yes"]))
        for _ in range(ROWS)
    ]
    ages = np.array([age for age, _, _ in rows])
    ill = np.array([age for age, _, ill in rows if ill == "yes"])
    cities = [sum(city == name for _, city, _ in rows) for name in CITIES]
    bins = [(18, 33), (34, 49), (50, 65), (66, 81), (82, 99)]
    binned = [int(((low <= ages) & (ages <= high)).sum()) for low, high in bins]
    median = int(np.sort(ages)[(ROWS + 1) // 2 - 1])

    def laplace(exact: list[int], sensitivity: int) -> Callable[[], float]:
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
        mechanism = dp.m.make_laplace(*space, scale=sensitivity / EPSILON)
        assert mechanism.map(sensitivity) <= EPSILON * (1 + 1e-9)
        return lambda: statistics.fmean(abs(a - b) for a, b in zip(mechanism(exact), exact))

    def chosen(utilities: list[int]) -> Callable[[], float]:
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
        mechanism = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2 / EPSILON)
        assert mechanism.map(1) <= EPSILON * (1 + 1e-9)
        return lambda: float(max(utilities) - utilities[mechanism(utilities)])

    def of_diffprivlib(ask: Callable[..., float], exact: float) -> Callable[[], float]:
        def error() -> float:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = ask(ages, epsilon=EPSILON, bounds=(LOW, HIGH))
            return abs(float(found) - exact)

        return error

    below = [int((ages < age).sum()) for age in range(LOW, HIGH + 1)]
    here = [int((ages == age).sum()) for age in range(LOW, HIGH + 1)]
    rank = (ROWS + 1) // 2
    ranks = [-max(rank - b - h, b + 1 - rank, 0) for b, h in zip(below, here)]
    price = {"epsilon": EPSILON}
    wheres = [{"age": between(low, high)} for low, high in bins]
    top = max(cities)
    squares = int((ages.astype(int) ** 2).sum())
    questions: list[tuple[str, Callable[[DataSet], float], dict[str, Callable[[], float]]]] = [
        (
            "5 disjoint bins",
            lambda data: statistics.fmean(
                abs(n.value - b) for n, b in zip(data.counts(wheres, **price), binned)
            ),
            {"OpenDP": laplace(binned, 2)},
        ),
        (
            "sum with a condition",
            lambda data: abs(data.sum("age", where={"ill": "yes"}, **price).value - int(ill.sum())),
            {"OpenDP": laplace([int(ill.sum())], HIGH)},
        ),
        (
            "sum of squares",
            lambda data: abs(data.sum("age", squares=True, **price).value - squares),
            {"OpenDP": laplace([squares], HIGH**2 - LOW**2)},
        ),
        (
            "most common, by noisy max",
            lambda data: top - cities[CITIES.index(data.most_common("city", noisy_max=True, **price).value)],
            {"OpenDP": chosen(cities)},
        ),
        (
            "median, by noisy max",
            lambda data: -ranks[int(data.quantile("age", 0.5, noisy_max=True, **price).value) - LOW],
            {"OpenDP": chosen(ranks)},
        ),
        (
            "median, in years",
            lambda data: abs(int(data.quantile("age", 0.5, noisy_max=True, **price).value) - median),
            {"diffprivlib": of_diffprivlib(tools.median, median)},
        ),
        (
            "mean",
            lambda data: abs(data.mean("age", **price).value - float(ages.mean())),
            {"diffprivlib": of_diffprivlib(tools.mean, float(ages.mean()))},
        ),
        (
            "variance",
            lambda data: abs(data.variance("age", **price).value - float(ages.var())),
            {"diffprivlib": of_diffprivlib(tools.var, float(ages.var()))},
        ),
    ]
    table = []
    print(f"{'question':28} {'bandana':>10} {'peer':>10} {'ratio':>6}  peer")
    with served(settings.server, rows) as register:
        for place, (question, ask, peers) in enumerate(questions):
            data = register(place)
            ours = statistics.fmean(ask(data) for _ in range(settings.answers))
            for peer, error in peers.items():
                theirs = statistics.fmean(error() for _ in range(settings.answers))
                ratio = ours / theirs
                table.append({"question": question, "bandana": ours, "peer": peer, "error": theirs})
                print(f"{question:28} {ours:10.4g} {theirs:10.4g} {ratio:6.2f}  {peer}", flush=True)
    if settings.json:
        Path(settings.json).write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
