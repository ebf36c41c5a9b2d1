"""Test results in detail, and `report.html`, the page that shows a run."""

from deelbo.report.assessment import assess
from deelbo.report.page import write_report

__all__ = ["assess", "write_report"]
