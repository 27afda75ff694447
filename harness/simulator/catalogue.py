"""What policies there are, and what each can be told."""

from __future__ import annotations

from typing import Any

from harness.simulator.hooks import Parameters
from harness.simulator.policies import describe_policies, find_policy, load_policy


def catalogue() -> dict[str, dict[str, Any]]:
    """By name: ``label``, ``description`` (a sentence), ``parameters`` with their defaults."""
    return {
        name: {
            "label": find_policy(name, {}).label,
            "description": description,
            "parameters": defaults(name),
        }
        for name, description in describe_policies().items()
    }


def defaults(name: str) -> dict[str, Any]:
    """The parameters of a policy and their defaults; empty for one without any."""
    settings = getattr(load_policy(name), "Settings", Parameters)
    return dict(settings().model_dump(mode="json"))
