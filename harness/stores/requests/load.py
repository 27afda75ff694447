"""Opening a request trace: a synthetic specification by name, or a file by its format."""

from __future__ import annotations

from harness.core.config import load_yaml
from harness.stores.names import workload_yaml
from harness.stores.requests.form import RequestSource
from harness.stores.requests.synthetic import SyntheticRequests, SyntheticSpec


def open_requests(name_or_path: str, *, seed: int = 0) -> RequestSource:
    """The traffic of ``workloads/requests/NAME.yaml`` or of a YAML file like those.

    ``seed`` makes synthetic traffic; UsageError offers the nearest names.
    """
    path = workload_yaml("requests", name_or_path)
    return SyntheticRequests(load_yaml(path, SyntheticSpec), seed, name=path.stem)
