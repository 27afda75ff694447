"""Short steps that Ctrl-C, SIGTERM and a closed terminal must not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put SIGINT, SIGTERM and SIGHUP off until the block has ended.

    For steps that take and give back what outlives the process, and end soon by themselves. In
    other threads than the main one, which get no signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    before: dict[signal.Signals, Any] = {}

    def remember(number: int, frame: FrameType | None) -> None:
        came.append((number, frame))

    try:
        for number in _SIGNALS:
            before[number] = signal.signal(number, remember)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number_came, frame in came[:1]:
            handler = before[signal.Signals(number_came)]
            if callable(handler):
                handler(number_came, frame)
            elif handler == signal.SIG_DFL:
                signal.raise_signal(number_came)
