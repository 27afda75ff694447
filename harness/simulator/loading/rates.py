"""How fast the hops are: from a calibration file, or the published simulator's constants by name.

Sources of the published ones: Gandalf section 5.7 (equations.md section 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.calibrate.constants import (
    SEED_B_PCIE_GBPS,
    SEED_B_SSD_GBPS,
    SEED_R_PREFILL_TOKENS_PER_S,
    SEED_WAF,
)
from harness.calibrate.reader import Calibration, MissingTerm, Value
from harness.core.errors import UsageError

Path = Literal["staged", "direct"]
"""SSD to DRAM to GPU, or SSD to GPU without a stop."""

_SEED_FIX = (
    "measure it and export the calibration again, or take the published constants: all with"
    " --constants seed, those that are missing with --constants filled"
)


@dataclass(frozen=True)
class Rates:
    """Decimal bytes and tokens a second.

    ``ssd``: float64 of one value a request (its layout and context decide). ``pcie``: of the copy
    from DRAM to the GPU. ``sources``: for each name whether it was measured, fitted, imported, or
    is the published one, with what it holds for.
    """

    ssd: NDArray[np.float64]
    pcie: float
    prefill: float
    waf: float
    sources: Mapping[str, str]


def seed_rates(requests: int, *, prefill: float | None = None, waf: float | None = None) -> Rates:
    """The published constants, except for what is given."""
    sources = dict.fromkeys(("B_ssd", "B_pcie", "R_prefill", "WAF"), "seed")
    if prefill is not None:
        sources["R_prefill"] = "given"
    if waf is not None:
        sources["WAF"] = "from this run's wear"
    return Rates(
        ssd=np.full(requests, SEED_B_SSD_GBPS * 1e9),
        pcie=SEED_B_PCIE_GBPS * 1e9,
        prefill=_positive(prefill, SEED_R_PREFILL_TOKENS_PER_S, "prefill"),
        waf=SEED_WAF if waf is None else waf,
        sources=sources,
    )


def measured_rates(
    calibration: Calibration,
    context_tokens: NDArray[np.float64],
    *,
    layout: str | None = None,
    path: Path = "staged",
    prefill: float | None = None,
    waf: float | None = None,
    fill: bool = False,
) -> Rates:
    """The rates that a calibration file holds.

    Parameters
    ----------
    calibration
        The file, opened by ``harness.calibrate.load``.
    context_tokens
        Prompt of each request: a layout's restore bandwidth depends on it.
    layout
        Store whose restores were measured; None takes the file's B_ssd for all.
    path
        ``direct`` needs a measured hop from SSD to GPU.
    prefill
        Tokens a second, a property of model and GPU that is never measured here; None takes the
        published one, and ``sources`` says so.
    waf
        Write amplification of this very run; None takes the file's.
    fill
        Take the published constant where the file has none (``sources`` says so).

    Raises
    ------
    MissingTerm
        The file lacks what is asked for, and ``fill`` is False; or it lacks the layout.
    """
    try:
        ssd, ssd_source = _ssd(calibration, context_tokens, layout, path, fill)
        pcie = calibration.constant("B_pcie", seed=fill)
        if waf is None:
            amplification = calibration.constant("WAF", seed=fill)
            waf, waf_source = amplification.value, amplification.source
        else:
            waf_source = "from this run's wear"
    except MissingTerm as error:
        raise MissingTerm(str(error), fix=_SEED_FIX) from error
    return Rates(
        ssd=ssd,
        pcie=pcie.value * 1e9,
        prefill=_positive(prefill, SEED_R_PREFILL_TOKENS_PER_S, "prefill"),
        waf=waf,
        sources={
            "B_ssd": ssd_source,
            "B_pcie": pcie.source,
            "R_prefill": "seed" if prefill is None else "given",
            "WAF": waf_source,
        },
    )


def _ssd(
    calibration: Calibration,
    context_tokens: NDArray[np.float64],
    layout: str | None,
    path: Path,
    fill: bool,
) -> tuple[NDArray[np.float64], str]:
    if path == "direct":
        hop = calibration.hop_gbps("ssd-to-gpu")
        return np.full(len(context_tokens), hop.value * 1e9), f"{hop.source}: ssd-to-gpu"
    if layout is None:
        constant = calibration.constant("B_ssd", seed=fill)
        return np.full(len(context_tokens), constant.value * 1e9), constant.source
    contexts, row = np.unique(np.maximum(context_tokens, 1.0), return_inverse=True)
    found: list[Value] = [calibration.restore_gbps(layout, tokens) for tokens in contexts.tolist()]
    gbps = np.array([value.value for value in found])
    outside = sum(value.extrapolated for value in found)
    said = f"measured: restores of {layout}"
    if outside:
        said += f" ({outside} of {len(found)} context lengths lie outside the measured range)"
    return gbps[row] * 1e9, said


def _positive(given: float | None, default: float, name: str) -> float:
    if given is not None and given <= 0:
        raise UsageError(f"{name} must be more than 0 tokens a second, not {given}")
    return default if given is None else given
