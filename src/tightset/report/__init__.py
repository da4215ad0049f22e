"""The report: one HTML file that a colleague without Python can open.

`numbers` counts, `words` says it, `figures` places it, `write` makes the page of what is in the folder ``page``.
"""

from __future__ import annotations

from tightset.report.write import ReportPage, write_report

__all__ = ["ReportPage", "write_report"]
