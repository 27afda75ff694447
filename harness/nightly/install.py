"""Texts that make a night come by itself: systemd, cron, GitHub Actions. Nothing is installed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import time

DEFAULT_START = time(1, 30)


def service(command: Sequence[str]) -> str:
    """``kvflash-nightly.service``."""
    return f"""[Unit]
Description=Nightly flash measurements
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
ExecStart={" ".join(_systemd_word(word) for word in command)}
"""


def timer(start: time) -> str:
    """``kvflash-nightly.timer``; a night that the machine slept through is made up for."""
    return f"""[Unit]
Description=Nightly flash measurements, each day at {start:%H:%M} UTC

[Timer]
OnCalendar=*-*-* {start:%H:%M}:00 UTC
Persistent=true

[Install]
WantedBy=timers.target
"""


def crontab(command: Sequence[str], start: time) -> str:
    """A line for a crontab, whose times are the machine's."""
    line = shlex.join(command).replace("%", "\\%")
    return f"{start.minute} {start.hour} * * * {line}\n"


def workflow(command: Sequence[str], start: time) -> str:
    """A GitHub Actions workflow for a runner of your own that reaches the hosts."""
    run = shlex.join(command)
    return f"""name: nightly
on:
  schedule:
    - cron: "{start.minute} {start.hour} * * *"  # UTC
  workflow_dispatch:
concurrency: nightly
permissions: {{}}
jobs:
  nightly:
    runs-on: [self-hosted, kvflash]
    timeout-minutes: 720
    steps:
      - run: |
          {run}
"""


def _systemd_word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or not word or set(" \t;'") & set(word) else word
