"""What this machine can do, what is missing, and the command that installs it.

``run_checks`` examines everything; ``require("bcc")`` is for a part that is about to need one
thing and wants the error, with its fix, before it starts.
"""

from harness.doctor.model import Check, Finding, Outcome
from harness.doctor.registry import all_checks, missing, require, run_checks

__all__ = ["Check", "Finding", "Outcome", "all_checks", "missing", "require", "run_checks"]
