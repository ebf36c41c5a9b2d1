"""What the report shows of the test results, one file for each likelihood; a likelihood without one has its metrics."""

from deelbo.report.views.base import VIEWS, View

__all__ = ["VIEWS", "View"]
