"""The one family of errors, each with the exit code that a user's shell sees.

Codes: 0 done, 1 the thing measured failed, 2 wrong usage or configuration, 3 the machine
lacks something, 130 interrupted.
"""

from __future__ import annotations


class HarnessError(Exception):
    """Base of all errors a user may meet; printed as one message, never as a traceback.

    ``fix`` says what to do about it and is printed on a line of its own.
    """

    exit_code = 1

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


class MeasurementError(HarnessError):
    """The thing being measured failed: a device error, a verify mismatch, a dead child."""

    exit_code = 1


class UsageError(HarnessError):
    """Wrong command line, configuration or input file."""

    exit_code = 2


class MachineError(HarnessError):
    """The machine lacks a tool, a privilege, a kernel feature, memory or disk space."""

    exit_code = 3


class Interrupted(HarnessError):
    """SIGINT or SIGTERM; what was complete by then is kept and says that it is partial."""

    exit_code = 130
