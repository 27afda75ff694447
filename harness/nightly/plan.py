"""What a night will do, before anything is done: a list of tasks from the inventory."""

from __future__ import annotations

from dataclasses import dataclass

from harness.nightly.inventory import Device, Host, Inventory
from harness.nightly.kinds import Call, Job


@dataclass(frozen=True)
class Task:
    """One job on one device of one host; ``device`` is None for a job that touches none."""

    host: Host
    job: Job
    device: Device | None

    @property
    def name(self) -> str:
        """Unique in a night, fit for a file name."""
        serial = f"-{_plain(self.device.serial)}" if self.device else ""
        return f"{self.host.name}-{self.job.name}{serial}"

    @property
    def lock(self) -> str:
        """What two tasks must not hold at once on their host."""
        return self.device.serial if self.device else f"job {self.job.name} of {self.host.name}"

    def steps(self, harness: str, results: str, path: str | None) -> list[list[str]]:
        """The remote commands; ``path`` is where the device was found, such as /dev/nvme0n1."""
        serial = self.device.serial if self.device else ""
        return self.job.steps(Call(harness, results, path or "", serial))


def plan(inventory: Inventory) -> dict[str, list[Task]]:
    """Tasks by host in the order of the inventory; those of one host run in turn."""
    return {
        host.name: [
            Task(host, job, device)
            for job in inventory.jobs
            if not job.hosts or host.name in job.hosts
            for device in _devices(host, job)
        ]
        for host in inventory.hosts
    }


def _devices(host: Host, job: Job) -> list[Device | None]:
    if not job.writes:
        return [None]
    return [device for device in host.devices if device.serial in job.devices]


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text).strip("-.")
