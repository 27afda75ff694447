"""What a person looks at: the page of a run, the comparison of two, the console summary."""

from harness.report.compare import compare
from harness.report.console import print_details, print_run, print_summary
from harness.report.page import render_run, write_page
from harness.report.run import Run, open_run, read_run
from harness.report.sections import build

__all__ = [
    "Run",
    "build",
    "compare",
    "open_run",
    "print_details",
    "print_run",
    "print_summary",
    "read_run",
    "render_run",
    "write_page",
]
