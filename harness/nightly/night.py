"""A night: hosts at once, the jobs of each in turn, every failure that of its own task."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from harness.nightly.environment import Sender
from harness.nightly.hostnight import PATIENCE_S, HostNight, Outcome, Places, Say
from harness.nightly.inventory import Inventory
from harness.nightly.plan import plan


def run_night(inventory: Inventory, places: Places, say: Say) -> list[Outcome]:
    """Do all tasks; their outcomes in the order of the plan. Ctrl-C ends remote jobs too.

    ``say`` is told host and text of what happens; a host out of reach for ``PATIENCE_S`` seconds
    in the middle of a job is given up.
    """
    started = datetime.now(UTC)
    sender = Sender(Path(inventory.wheels) if inventory.wheels else None)
    work = [
        HostNight(inventory, host, places, started, say, sender, PATIENCE_S)
        for host in inventory.hosts
    ]
    tasks = plan(inventory)
    pool = ThreadPoolExecutor(max_workers=len(work))
    try:
        futures = [pool.submit(one.run, tasks[one.host.name]) for one in work]
        return [outcome for future in futures for outcome in future.result()]
    finally:
        for one in work:
            one.stop()
        pool.shutdown(cancel_futures=True)
