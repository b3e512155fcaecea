"""Tables, plots and the HTML page."""

from hexane.report.check import CheckReport, CheckRow, check, check_program

__all__ = ["CheckReport", "CheckRow", "check", "check_program"]
