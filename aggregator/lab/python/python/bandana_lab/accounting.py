"""Privacy accounting: the total loss of many private reports.

Losses are in nats. Every result is a bound that holds for the exact numbers given: losses and
deltas are rounded up, numbers of reports down.

>>> from bandana_lab import accounting
>>> optimal = accounting.optimal(0.1, 1000, 1e-6)
>>> optimal < accounting.advanced(0.1, 1000, 1e-6) < accounting.basic(0.1, 1000)
True
"""

from bandana_lab._native import (
    advanced,
    basic,
    gaussian_rho,
    heterogeneous,
    largest_local_epsilon,
    optimal,
    optimal_delta,
    report_epsilon,
    report_number,
    rho_of_pure,
    shuffled,
    zcdp,
    zcdp_delta,
)

__all__ = [
    "advanced",
    "basic",
    "gaussian_rho",
    "heterogeneous",
    "largest_local_epsilon",
    "optimal",
    "optimal_delta",
    "report_epsilon",
    "report_number",
    "rho_of_pure",
    "shuffled",
    "zcdp",
    "zcdp_delta",
]
