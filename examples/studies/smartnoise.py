"""Synthetic people by SmartNoise, for `study synthetic --compare`.

    pip install smartnoise-synth
    python smartnoise.py mwem census.csv made.csv --epsilon 1 --split-factor 3
"""

import argparse
import time

import numpy
import pandas
from snsynth import Synthesizer
from snsynth.transform import LabelTransformer, TableTransformer

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=["mwem", "mst", "aim"])
parser.add_argument("people")
parser.add_argument("out")
parser.add_argument("--epsilon", type=float, default=1.0)
parser.add_argument("--delta", type=float, default=1e-6)
parser.add_argument("--split-factor", type=int, default=3)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument(
    "--values",
    type=lambda text: [int(number) for number in text.split(",")],
    help="the declared number of values of each column, with commas; without it, SmartNoise "
    "takes those that occur, which tells who is in the data",
)
options = parser.parse_args()

numpy.random.seed(options.seed)
people = pandas.read_csv(options.people)
columns = list(people.columns)
transformer = None
if options.values:
    transformer = TableTransformer([LabelTransformer(nullable=False) for _ in columns])
    longest = max(options.values)
    domain = {name: [n % size for n in range(longest)] for name, size in zip(columns, options.values)}
    transformer.fit(pandas.DataFrame(domain))
begun = time.monotonic()
if options.kind == "mwem":
    maker = Synthesizer.create(
        "mwem", epsilon=options.epsilon, split_factor=options.split_factor
    )
else:
    maker = Synthesizer.create(options.kind, epsilon=options.epsilon, delta=options.delta)
declared = {"transformer": transformer} if transformer else {"categorical_columns": columns}
maker.fit(people.copy(), **declared, preprocessor_eps=0.0)
made = maker.sample(len(people))
print(f"{options.kind}: {time.monotonic() - begun:.1f} seconds")
pandas.DataFrame(made, columns=columns).astype(int).to_csv(options.out, index=False)
