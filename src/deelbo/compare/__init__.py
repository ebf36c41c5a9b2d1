"""Comparison of methods on the user's own data: finished runs are kept, and give tables and test results over time."""

from deelbo.compare.comparison import Comparison, compare, make_problems
from deelbo.compare.problem import Options, Problem, Trial
from deelbo.compare.records import KnownRecords, Records
from deelbo.compare.results import write_results
from deelbo.compare.strategies import STRATEGIES, make_strategies

__all__ = [
    "STRATEGIES",
    "Comparison",
    "KnownRecords",
    "Options",
    "Problem",
    "Records",
    "Trial",
    "compare",
    "make_problems",
    "make_strategies",
    "write_results",
]
