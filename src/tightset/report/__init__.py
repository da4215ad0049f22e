"""The report: one HTML file that a colleague without Python can open.

`numbers` computes, `words` and `figures` present the results, `write` fills the templates of the folder ``page``.
"""

from __future__ import annotations

from tightset.report.write import ReportPage, write_report

__all__ = ["ReportPage", "write_report"]
