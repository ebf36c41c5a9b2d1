"""Methods side by side on the user's own data: runs that are never repeated, a table, and accuracy over time."""

from deelbo.compare.comparison import Comparison, compare, make_tasks
from deelbo.compare.records import Records
from deelbo.compare.results import write_results
from deelbo.compare.strategies import make_strategies, names, register
from deelbo.compare.task import Options, Task, Trial

__all__ = [
    "Comparison",
    "Options",
    "Records",
    "Task",
    "Trial",
    "compare",
    "make_strategies",
    "make_tasks",
    "names",
    "register",
    "write_results",
]
