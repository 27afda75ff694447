"""Device profiles: what ``femu/devices/*.yaml`` may say, and what follows from it.

The geometry keys are FEMU's own device properties, with FEMU's own defaults, so that one file
describes both the emulator and the model of it. The rest (rated capacity, DWPD, price, P/E
cycles, the ``drive`` policy) is ours.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from harness.core.assets import asset_dir, find_yaml
from harness.core.config import Size, Strict, load_yaml, validate
from harness.core.errors import UsageError
from harness.core.units import format_size

PolicyName = Literal["femu", "femu-stock", "femu-late", "drive"]
"""``femu``: the profile's own thresholds; ``femu-stock`` 75/95 and ``femu-late`` 98/99 are
presets of it; ``drive``: separate host and GC write points, GC only when needed."""

PRESETS: dict[str, tuple[int, int]] = {"femu-stock": (75, 95), "femu-late": (98, 99)}
"""(gc_thres_pcent, gc_thres_pcent_high) of each preset."""

_AXIS_LIMITS = {
    "blks_per_pl": 1 << 16,
    "pgs_per_blk": 1 << 16,
    "secs_per_pg": 1 << 8,
    "pls_per_lun": 1 << 4,
    "luns_per_ch": 1 << 7,
    "nchs": 1 << 12,
}
FEMU_MAX_SECTORS = 2**31 - 1
"""FEMU refuses more flash sectors than this (femu.md section 1)."""

Axis = Annotated[int, Field(gt=0)]
Percent = Annotated[int, Field(ge=0, le=100)]


class DriveSettings(Strict):
    """Settings of the ``drive`` policy: a drive as sold, not FEMU."""

    line_bytes: Annotated[Size, Field(gt=0)] | None = None
    """Bytes erased together (superblock; reclaim unit under FDP). By default 1 GiB, typical of
    drives of a few TB, or a 1024th of the flash (256 pages at least) where that is less; 16 GiB
    reclaim units are sold. Lines divide the flash evenly: the true size is the nearest that
    does."""
    victim: Literal["greedy", "cost-benefit"] = "greedy"
    """Which closed line is collected: fewest valid pages, or most (1-u)·age/(2u)."""
    streams: Literal["none", "placement", "class"] = "none"
    """Host write points: one; one a placement id (FDP); one a class of write."""
    max_streams: Annotated[int, Field(ge=1, le=128)] = 8
    """Reclaim unit handles: stream ids beyond them share the last one."""
    isolation: Literal["initial", "persistent"] = "initial"
    """What GC does to streams: one shared write point, or one a stream (FDP's two kinds)."""
    trim: bool = True
    """Whether a discard frees pages."""
    spare_lines: Annotated[int, Field(ge=1)] = 1
    """GC runs only while fewer lines than this are free beyond those GC itself needs."""


class DeviceProfile(Strict):
    """One drive. Geometry alone gives counters; capacity, DWPD and years give lifetimes."""

    name: str = ""
    description: str = ""

    # FEMU's properties. A "line" is the block of one index in every LUN of every channel.
    nchs: Axis = 8
    luns_per_ch: Axis = 8
    pls_per_lun: Axis = 1
    blks_per_pl: Axis = 256
    pgs_per_blk: Axis = 256
    secs_per_pg: Axis = 8
    secsz: Axis = 512
    devsz_mb: Annotated[int, Field(gt=0)] | None = None
    op_pcent: Annotated[int, Field(ge=0)] = 0
    gc_thres_pcent: Percent | None = None
    gc_thres_pcent_high: Percent | None = None
    gc_policy: Literal["greedy"] = "greedy"
    lba_index: Annotated[int, Field(ge=0, le=5)] = 0
    pg_rd_lat: Annotated[int, Field(ge=0)] | None = None
    """Reading a page, ns. The three are for timing in FEMU alone; they change no counter."""
    pg_wr_lat: Annotated[int, Field(ge=0)] | None = None
    """Programming a page, ns."""
    blk_er_lat: Annotated[int, Field(ge=0)] | None = None
    """Erasing a block, ns."""

    # Ours.
    capacity_bytes: Annotated[Size, Field(gt=0)] | None = None
    dwpd: Annotated[float, Field(gt=0)] | None = None
    warranty_years: Annotated[float, Field(gt=0)] | None = None
    price_usd: Annotated[float, Field(gt=0)] | None = None
    pe_cycles: Annotated[int, Field(gt=0)] | None = None
    pe_source: str | None = None
    waf_rated: Annotated[float, Field(ge=1)] | None = None
    hdd_tb_per_year: Annotated[float, Field(gt=0)] = 550.0
    """Rated workload of the hard drive it is compared with: reads plus writes, decimal TB a
    year (550 is the usual figure of nearline drives)."""
    policy: PolicyName | None = None
    drive: DriveSettings = DriveSettings()

    @model_validator(mode="before")
    @classmethod
    def _expand_policy(cls, data: Any) -> Any:
        """Fill in what the policy implies: preset thresholds, FEMU's defaults."""
        if not isinstance(data, dict):
            return data
        given = dict(data)
        thresholds = [given.get("gc_thres_pcent"), given.get("gc_thres_pcent_high")]
        policy = given.get("policy")
        if policy is None:
            policy = given["policy"] = "drive" if thresholds == [None, None] else "femu"
        preset = PRESETS.get(policy) if isinstance(policy, str) else None
        if preset is not None and thresholds not in ([None, None], list(preset)):
            raise ValueError(
                f"policy {policy} has the thresholds {preset[0]}/{preset[1]}; the profile says "
                f"{thresholds[0]}/{thresholds[1]} (drop them, or use policy: femu)"
            )
        low, high = preset or PRESETS["femu-stock"]
        given["gc_thres_pcent"] = low if thresholds[0] is None else thresholds[0]
        given["gc_thres_pcent_high"] = high if thresholds[1] is None else thresholds[1]
        return given

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        if self.op_pcent and self.devsz_mb is not None:
            raise ValueError("op_pcent and devsz_mb are both given: FEMU ignores devsz_mb then")
        if (self.pe_cycles is None) != (self.pe_source is None):
            raise ValueError("pe_cycles and pe_source (source and cell mode) go together")
        if self.pe_cycles is not None and (self.tbw_bytes or 0) > self.pe_cycles * self.raw_bytes:
            raise ValueError(
                f"{self.pe_cycles} P/E cycles of {self.raw_bytes} B of flash endure "
                f"{self.pe_cycles * self.raw_bytes:.3g} B, less than the rated "
                f"{self.tbw_bytes:.3g} B"
            )
        if self.namespace_bytes > self.raw_bytes:
            raise ValueError(
                f"the namespace of {self.namespace_bytes} B ({format_size(self.namespace_bytes)}) "
                f"is larger than the raw flash of {self.raw_bytes} B "
                f"({format_size(self.raw_bytes)})"
            )
        needed = self._lines_needed()
        if self.spare_lines < needed:
            raise ValueError(self._too_few_spare_lines(needed))
        return self

    def _lines_needed(self) -> int:
        if self.is_femu:
            return self.gc_thres_lines_high + 2
        streams = 1 if self.drive.streams == "none" else self.drive.max_streams
        gc_points = streams if self.drive.isolation == "persistent" else 1
        return streams + gc_points + self.drive.spare_lines

    def _too_few_spare_lines(self, needed: int) -> str:
        used = self.lines - self.spare_lines
        why = (
            f"forced GC starts at {self.gc_thres_lines_high} free lines "
            f"(gc_thres_pcent_high {self.gc_thres_pcent_high}) and needs 2 more"
            if self.is_femu
            else f"the drive policy's write points and reserve take {needed}"
        )
        return (
            f"{self.lines} usable lines of {format_size(self.line_bytes)} minus {used} that the "
            f"namespace of {format_size(self.namespace_bytes)} fills leave {self.spare_lines} "
            f"spare, but {why}: give it at least {needed} spare lines (more over-provisioning, "
            "smaller lines, or a later threshold)"
        )

    @property
    def is_femu(self) -> bool:
        """Whether the policy is FEMU's, at whatever thresholds."""
        return self.policy != "drive"

    @property
    def page_bytes(self) -> int:
        """One NAND page, the mapping unit."""
        return self.secs_per_pg * self.secsz

    @property
    def lba_bytes(self) -> int:
        """Logical block of the namespace's LBA format."""
        return 512 << self.lba_index

    @property
    def lpn_bytes(self) -> int:
        """Bytes of address space one logical page number stands for.

        FEMU divides the LBA by secs_per_pg whatever the LBA size is, so this is the page only
        where lba_index fits secsz (femu.md 2.8, the LBA-format trap).
        """
        return self.lba_bytes * self.secs_per_pg

    @property
    def raw_pages(self) -> int:
        """NAND pages, planes included."""
        blocks = self.nchs * self.luns_per_ch * self.pls_per_lun * self.blks_per_pl
        return blocks * self.pgs_per_blk

    @property
    def raw_bytes(self) -> int:
        """All NAND bytes."""
        return self.raw_pages * self.page_bytes

    @property
    def namespace_bytes(self) -> int:
        """Bytes the host may address, by FEMU's rule or the rated capacity."""
        if self.op_pcent:
            return self.raw_bytes * 100 // (100 + self.op_pcent) // 512 * 512
        if self.devsz_mb is not None:
            return self.devsz_mb << 20
        if self.capacity_bytes is not None:
            return self.capacity_bytes // self.lba_bytes * self.lba_bytes
        return 1024 << 20  # FEMU's own default of devsz_mb

    @property
    def namespace_pages(self) -> int:
        """Logical pages of the namespace, a last partial one included."""
        return -(-self.namespace_bytes // self.lpn_bytes)

    @property
    def lines(self) -> int:
        """Lines that can hold data. FEMU only ever uses plane 0 of each LUN."""
        if self.is_femu:
            return self.blks_per_pl
        usual = min(1 << 30, max(self.raw_bytes / 1024, 256 * self.page_bytes))
        wanted = self.drive.line_bytes or usual
        return min(self.raw_pages, max(1, round(self.raw_bytes / wanted)))

    @property
    def pages_per_line(self) -> int:
        """NAND pages erased together."""
        if self.is_femu:
            return self.nchs * self.luns_per_ch * self.pgs_per_blk
        return self.raw_pages // self.lines

    @property
    def line_bytes(self) -> int:
        """Bytes erased together."""
        return self.pages_per_line * self.page_bytes

    @property
    def spare_lines(self) -> int:
        """Lines left when every logical page is mapped and packed."""
        return self.lines - -(-self.namespace_pages // self.pages_per_line)

    @property
    def gc_thres_lines(self) -> int:
        """Background GC runs while no more lines than this are free."""
        return self._threshold(self.gc_thres_pcent)

    @property
    def gc_thres_lines_high(self) -> int:
        """A write first collects until more lines than this are free."""
        return self._threshold(self.gc_thres_pcent_high)

    def _threshold(self, pcent: int | None) -> int:
        assert pcent is not None  # _expand_policy filled it in
        # In doubles and in exactly this form: 90 % of 100 lines is 9, as in FEMU, not 10.
        return int((1 - pcent / 100.0) * (self.blks_per_pl * self.pls_per_lun))

    @property
    def over_provisioning(self) -> float:
        """Usable flash beyond the namespace, as a share of the namespace."""
        return self.lines * self.pages_per_line / self.namespace_pages - 1

    @property
    def tbw_bytes(self) -> float | None:
        """Rated host writes over the warranty, C·D·365·Y (equations.md section 1)."""
        if self.capacity_bytes is None or self.dwpd is None or self.warranty_years is None:
            return None
        return self.capacity_bytes * self.dwpd * 365 * self.warranty_years

    def femu_problems(self) -> list[str]:
        """Why real FEMU cannot be started with this profile; empty if it can."""
        problems = [
            f"{key} {getattr(self, key)} exceeds {limit}"
            for key, limit in _AXIS_LIMITS.items()
            if getattr(self, key) > limit
        ]
        sectors = self.raw_bytes // self.secsz
        if sectors > FEMU_MAX_SECTORS:
            problems.append(f"{sectors} flash sectors exceed {FEMU_MAX_SECTORS}")
        if not self.is_femu:
            problems.append("policy drive is not FEMU's")
        if not self.op_pcent and self.namespace_bytes % (1 << 20):
            problems.append(
                f"the namespace of {self.namespace_bytes} B is not whole MiB (devsz_mb)"
            )
        return problems

    def with_policy(self, policy: PolicyName) -> DeviceProfile:
        """The same drive under another policy; UsageError if it cannot work under it."""
        return self.changed(policy=policy)

    def changed(self, **changes: Any) -> DeviceProfile:
        """The same drive with some keys changed, validated again.

        ``drive`` may be a partial mapping. UsageError names what cannot work.
        """
        data = self.model_dump(exclude_unset=True)
        data.update({k: v for k, v in changes.items() if k != "drive"})
        if "drive" in changes:
            data["drive"] = {**data.get("drive", {}), **changes["drive"]}
        if changes.get("policy") in PRESETS:
            data.pop("gc_thres_pcent", None)
            data.pop("gc_thres_pcent_high", None)
        return validate(data, DeviceProfile, self.name or "profile")


def load_profile(name_or_path: str) -> DeviceProfile:
    """A profile by bare name in ``femu/devices/`` or by path; UsageError names file and key."""
    path = find_yaml("femu/devices", name_or_path)
    profile = load_yaml(path, DeviceProfile)
    if profile.name:
        return profile
    return profile.model_copy(update={"name": path.stem})


def profile_names() -> list[str]:
    """Bare names of the profiles that ship with the harness."""
    names = sorted(p.stem for p in (asset_dir("femu") / "devices").glob("*.yaml"))
    if not names:
        raise UsageError("no profiles in femu/devices/")
    return names
