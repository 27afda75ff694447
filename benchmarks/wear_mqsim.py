"""MQSim (https://github.com/CMU-SAFARI/MQSim) as the peer of the wear benchmark.

A sequential fill and uniform random 4 KiB writes on a drive of 1 GiB, as a trace of its own
format. Built apart from this project (``make`` in a clone); its own ``ssdconfig.xml`` is the base
of the drive, so the binary must stay beside it.
"""

from __future__ import annotations

import resource
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from harness.core.config import validate
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.ftl import Ftl
from harness.ftl.workloads import OpList, SplitMix64, commands, join, sequential

PAGE, SECTOR = 4096, 512
CHANNELS, CHIPS, PLANES, BLOCKS, BLOCK_PAGES = 4, 2, 2, 256, 64
UNITS = CHANNELS * CHIPS * PLANES
SPARE = 0.25
RAW_PAGES = UNITS * BLOCKS * BLOCK_PAGES
LOGICAL_PAGES = int(RAW_PAGES / (1 + SPARE)) // 32 * 32
WRITES = 80_000
"""Of twice as many it ended by SIGSEGV."""
MODEL_RUNS = 50
"""One takes a few milliseconds."""
# Far enough apart that its queues stay short: the simulator's speed counts, not the drive's.
FILL_GAP_NS, WRITE_GAP_NS = 2_000_000, 1_000_000

CONFIG = {
    "Flash_Channel_Count": CHANNELS, "Chip_No_Per_Channel": CHIPS, "Die_No_Per_Chip": 1,
    "Plane_No_Per_Die": PLANES, "Block_No_Per_Plane": BLOCKS, "Page_No_Per_Block": BLOCK_PAGES,
    "Page_Capacity": PAGE, "Overprovisioning_Ratio": 1 - 1 / (1 + SPARE),
    # It stops serving a plane with ten free blocks, so collection has to start above that.
    "GC_Exec_Threshold": 0.08, "GC_Block_Selection_Policy": "GREEDY",
    "Static_Wearleveling_Enabled": "false", "Ideal_Mapping_Table": "true",
    "Caching_Mechanism": "SIMPLE",
}  # fmt: skip
FLOW = {
    "Priority_Class": "HIGH", "Device_Level_Data_Caching_Mode": "TURNED_OFF",
    "Channel_IDs": "0,1,2,3", "Chip_IDs": "0,1", "Die_IDs": "0", "Plane_IDs": "0,1",
    "Initial_Occupancy_Percentage": 0, "File_Path": "writes.trace",
    "Percentage_To_Be_Executed": 100, "Relay_Count": 1, "Time_Unit": "NANOSECOND",
}  # fmt: skip


def workload() -> OpList:
    """The commands that both simulators serve."""
    fill = sequential(0, LOGICAL_PAGES * PAGE, 32 * PAGE)
    places = SplitMix64(1).picks(WRITES, LOGICAL_PAGES) * np.uint64(PAGE)
    return join([fill, commands(places, PAGE, Op.WRITE)])


def run_mqsim(binary: Path, ops: OpList) -> dict[str, float]:
    """Flash commands (a page, or a block erased, each), CPU seconds, WAF and requests served."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write_inputs(binary, ops, folder)
        before = _children_s()
        done = subprocess.run(
            [binary, "-i", "drive.xml", "-w", "load.xml"], cwd=folder, check=True, timeout=300,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        seconds = _children_s() - before
        result = ElementTree.parse(folder / "load_scenario_1.xml").getroot()
    counts = next(node.attrib for node in result.iter() if "Issued_Flash_Read_CMD" in node.attrib)
    pages = {kind: _pages(counts, kind) for kind in ("Read", "Program", "Erase")}
    served = int(done.stdout.rpartition("total requests serviced:")[2].split()[0])
    host = int(ops.length.sum()) / PAGE
    return {
        "commands": sum(pages.values()),
        "seconds": seconds,
        "waf": pages["Program"] / host,
        "served": served / len(ops.op),
    }


def _pages(counts: dict[str, str], kind: str) -> int:
    """Commands of a kind, one a plane."""
    one = int(counts[f"Issued_Flash_{kind}_CMD"])
    return one + PLANES * int(counts[f"Issued_Flash_Multiplane_{kind}_CMD"])


def _write_inputs(binary: Path, ops: OpList, folder: Path) -> None:
    base = binary.with_name("ssdconfig.xml")
    drive = ElementTree.parse(base)
    for name, value in CONFIG.items():
        node = drive.find(f".//{name}")
        if node is None:
            raise ValueError(f"{base} has no {name}")
        node.text = str(value)
    drive.write(folder / "drive.xml", encoding="us-ascii", xml_declaration=True)
    root = ElementTree.Element("MQSim_IO_Scenarios")
    scenario = ElementTree.SubElement(root, "IO_Scenario")
    flow = ElementTree.SubElement(scenario, "IO_Flow_Parameter_Set_Trace_Based")
    for name, value in FLOW.items():
        ElementTree.SubElement(flow, name).text = str(value)
    ElementTree.ElementTree(root).write(
        folder / "load.xml", encoding="us-ascii", xml_declaration=True
    )
    gap = np.where(ops.length == PAGE, WRITE_GAP_NS, FILL_GAP_NS)
    columns = np.cumsum(gap), ops.offset // SECTOR, ops.length // SECTOR
    rows = zip(*(column.tolist() for column in columns), strict=True)
    with (folder / "writes.trace").open("w") as file:
        file.writelines(f"{at} 0 {start} {size} 0\n" for at, start, size in rows)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_model(ops: OpList) -> dict[str, float]:
    """The same of our ``drive`` policy: a line is one block of every plane."""
    profile = validate(
        {
            "nchs": CHANNELS, "luns_per_ch": CHIPS * PLANES, "blks_per_pl": BLOCKS,
            "pgs_per_blk": BLOCK_PAGES, "capacity_bytes": LOGICAL_PAGES * PAGE,
            "policy": "drive", "drive": {"line_bytes": UNITS * BLOCK_PAGES * PAGE},
        },
        DeviceProfile, "1 GiB",
    )  # fmt: skip
    Ftl(profile).apply(*ops)  # compile
    drives = [Ftl(profile) for _ in range(MODEL_RUNS)]
    begin = time.process_time()
    for ftl in drives:
        ftl.apply(*ops)
    seconds = (time.process_time() - begin) / MODEL_RUNS
    counters = drives[0].counters()
    work = counters.host_pages + 2 * counters.gc_pages + UNITS * counters.erased_lines
    return {"commands": work, "seconds": seconds, "waf": counters.waf or 1.0, "served": 1.0}


def compare(binary: Path) -> dict[str, Any]:
    """Both on the same commands; printed and returned."""
    ops = workload()
    try:
        peer = run_mqsim(binary.resolve(), ops)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"MQSim: skipped: {error}")
        return {"skipped": str(error)}
    found = {"MQSim": peer, "model": run_model(ops)}
    for name, row in found.items():
        print(
            f"{name:>8}: {row['commands'] / row['seconds'] / 1e6:8.3f} M flash commands/s "
            f"({row['commands']:,.0f} in {row['seconds']:.3f} s of CPU, WAF {row['waf']:.2f}, "
            f"{row['served']:.1%} of the requests served)"
        )
    theirs, ours = (row["commands"] / row["seconds"] for row in found.values())
    print(f"{'ratio':>8}: {ours / theirs:,.0f}", flush=True)
    return {**found, "ratio": ours / theirs}
