"""Views of test results in the report, one file for each likelihood; without a view the report shows only metrics."""

from deelbo.report.views.base import VIEWS, View

__all__ = ["VIEWS", "View"]
