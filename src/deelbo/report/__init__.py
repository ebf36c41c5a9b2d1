"""Test results in detail, and `report.html`, the page that shows a run."""

from deelbo.report.assessment import assess
from deelbo.report.confidence import confidence_on
from deelbo.report.page import write_report

__all__ = ["assess", "confidence_on", "write_report"]
