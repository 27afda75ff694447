"""What one request costs: the published simulator's two formulas, with any constants.

Source: Gandalf section 5.7 (equations.md section 5).
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.calibrate.reader import Calibration, MissingTerm, Value


@dataclass(frozen=True)
class Constants:
    """B_ssd and B_pcie in bytes a second, R_prefill in tokens a second, WAF.

    ``sources`` says of each whether it was measured, modelled, or is the published one.
    """

    b_ssd: float
    b_pcie: float
    r_prefill: float
    waf: float
    sources: dict[str, str]


@dataclass(frozen=True)
class Work:
    """One request: bytes that come from SSD, bytes cached anywhere, tokens to recompute, bytes
    written."""

    ssd_bytes: float
    cached_bytes: float
    missed_tokens: float
    written_bytes: float


def seed_constants(calibration: Calibration) -> Constants:
    """The published simulator's constants, as the file records them."""
    seeds = {constant.name: constant.seed for constant in calibration.file.constants}
    return _constants({name: Value(seed, seed, seed, "seed") for name, seed in seeds.items()})


def measured_constants(
    calibration: Calibration, *, layout: str | None = None, context_tokens: float | None = None
) -> Constants:
    """The file's constants; what it lacks is the published one, and ``sources`` says so.

    With ``layout`` and ``context_tokens``, B_ssd is that layout's restore bandwidth.
    """
    values = {
        name: calibration.constant(name, seed=True)
        for name in ("B_ssd", "B_pcie", "WAF", "R_prefill")
    }
    if layout is not None and context_tokens is not None:
        values["B_ssd"] = calibration.restore_gbps(layout, context_tokens)
    return _constants(values)


def _constants(values: dict[str, Value]) -> Constants:
    return Constants(
        b_ssd=values["B_ssd"].value * 1e9,
        b_pcie=values["B_pcie"].value * 1e9,
        r_prefill=values["R_prefill"].value,
        waf=values["WAF"].value,
        sources={name: value.source for name, value in values.items()},
    )


def load_seconds(work: Work, constants: Constants) -> float:
    """Load latency: both hops in turn, beside the recomputation of what was missed."""
    hops = work.ssd_bytes / constants.b_ssd + work.cached_bytes / constants.b_pcie
    return max(hops, work.missed_tokens / constants.r_prefill)


def cost_usd(
    work: Work, constants: Constants, *, gpu_usd_per_s: float, usd_per_written_byte: float
) -> float:
    """GPU time of recomputed tokens plus the share of the drive that the writes use up.

    The drive is used up by NAND writes, so each host byte costs WAF times the purchase price
    over TBW (the paper's convention; with WAF 1, the published formula).
    """
    gpu = work.missed_tokens / constants.r_prefill * gpu_usd_per_s
    return gpu + work.written_bytes * constants.waf * usd_per_written_byte


def drive_price(calibration: Calibration, profile: str | None = None) -> float:
    """Dollars of drive a written byte uses up, price / TBW; MissingTerm without a price."""
    drive = calibration.endurance(profile)
    if drive.usd_per_written_byte is None:
        raise MissingTerm(f"profile {drive.profile} has no price_usd")
    return drive.usd_per_written_byte
