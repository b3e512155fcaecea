"""Tables, plots and the HTML page."""

from hexane.report.check import CheckReport, Row, check, check_program

__all__ = ["CheckReport", "Row", "check", "check_program"]
