"""Whatever is written, in whatever order: the tables agree with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.config import validate
from harness.core.ops import Op
from harness.core.profiles import DeviceProfile
from harness.ftl import Ftl
from harness.ftl.workloads import OpList
from tests.ftl.audit import audit

SIZE = 1 << 20  # namespace of the drives below: 256 pages of 4 KiB


def small(**keys: Any) -> DeviceProfile:
    base = {"nchs": 2, "luns_per_ch": 2, "pgs_per_blk": 4, "blks_per_pl": 32, "devsz_mb": 1}
    return validate({**base, **keys}, DeviceProfile, "small")


def drive(line_bytes: int = 1 << 16, **keys: Any) -> DeviceProfile:
    return small(policy="drive", drive={"line_bytes": line_bytes, **keys})


PROFILES = [
    small(gc_thres_pcent=75, gc_thres_pcent_high=95),
    small(gc_thres_pcent=90, gc_thres_pcent_high=70),
    small(nchs=3, luns_per_ch=1, pgs_per_blk=5, blks_per_pl=26, gc_thres_pcent=70,
          gc_thres_pcent_high=90),
    drive(),
    drive(victim="cost-benefit", trim=False),
    drive(line_bytes=1 << 14, streams="placement", max_streams=4, isolation="persistent"),
    drive(line_bytes=1 << 14, streams="class", max_streams=3),
]  # fmt: skip

command = st.tuples(
    st.integers(0, SIZE - 1),
    st.integers(1, 1 << 17),
    st.sampled_from([Op.WRITE] * 6 + [Op.DISCARD, Op.READ, Op.FLUSH, Op.WRITE_ZEROES]),
    st.integers(0, 5),
)


def op_list(rows: list[tuple[int, int, Op, int]], repeats: int) -> tuple[OpList, np.ndarray]:
    """Rows, clipped to the namespace and repeated; and their streams."""
    columns = [np.tile(np.array(c, np.uint64), repeats) for c in zip(*rows, strict=True)]
    offset, length, op, stream = columns
    length = np.minimum(length, np.uint64(SIZE) - offset)
    return OpList(offset, length, op.astype(np.uint8)), stream.astype(np.uint8)


lists = st.builds(op_list, st.lists(command, min_size=1, max_size=40), st.integers(1, 30))


@given(st.sampled_from(PROFILES), lists)
@settings(max_examples=150, deadline=None)
def test_tables_agree(profile: DeviceProfile, given_ops: tuple[OpList, np.ndarray]) -> None:
    ops, stream = given_ops
    ftl = Ftl(profile)
    fill = np.arange(0, SIZE, 1 << 15, dtype=np.uint64)
    ftl.apply(fill, np.full(len(fill), 1 << 15), np.full(len(fill), Op.WRITE))
    audit(ftl)
    ftl.apply(*ops, stream)
    audit(ftl)
    written = ops.length[ops.op == Op.WRITE].sum()
    assert ftl.counters().host_bytes == SIZE + int(written)
    assert ftl.counters().host_pages * 4096 >= ftl.counters().host_bytes


@given(st.sampled_from(PROFILES), lists, st.data())
@settings(max_examples=100, deadline=None)
def test_a_split_changes_nothing(
    profile: DeviceProfile, given_ops: tuple[OpList, np.ndarray], data: st.DataObject
) -> None:
    ops, stream = given_ops
    at = data.draw(st.integers(0, len(ops.op)))
    whole, parts = Ftl(profile), Ftl(profile)
    whole.apply(*ops, stream)
    parts.apply(*(column[:at] for column in ops), stream[:at])
    parts.apply(*(column[at:] for column in ops), stream[at:])
    assert parts.counters() == whole.counters()
    assert parts.state.pages.l2p.tolist() == whole.state.pages.l2p.tolist()
    assert parts.erases.tolist() == whole.erases.tolist()


@given(st.sampled_from(PROFILES), lists)
@settings(max_examples=100, deadline=None)
def test_what_is_mapped_is_what_was_written(
    profile: DeviceProfile, given_ops: tuple[OpList, np.ndarray]
) -> None:
    """Against a set of pages kept in plain Python."""
    ops, stream = given_ops
    ftl, live, page = Ftl(profile), set[int](), 4096
    ftl.apply(*ops, stream)
    for offset, length, op in zip(*(c.tolist() for c in ops), strict=True):
        touched = range(offset // page, (offset + length - 1) // page + 1)
        covered = range(-(-offset // page), (offset + length) // page)
        if op == Op.WRITE:
            live.update(touched)
        elif profile.is_femu and op == Op.DISCARD:
            live.difference_update(touched)
        elif not profile.is_femu and profile.drive.trim and op in (Op.DISCARD, Op.WRITE_ZEROES):
            live.difference_update(covered)
    pages = ftl.state.pages
    assert set(np.flatnonzero(pages.l2p != pages.const[0]).tolist()) == live


@given(st.sampled_from(PROFILES), lists)
@settings(max_examples=60, deadline=None)
def test_classes_add_up(profile: DeviceProfile, given_ops: tuple[OpList, np.ndarray]) -> None:
    """What is counted by class is all there is, and keeping classes changes nothing else."""
    ops, kind = given_ops
    plain, ftl = Ftl(profile), Ftl(profile, by_class=True)
    for drive in (plain, ftl):
        drive.apply(*ops, kind=kind)
    assert ftl.counters() == plain.counters()
    host, moved = ftl.pages_by_class.sum(axis=1).tolist()
    assert (host, moved) == (ftl.counters().host_pages, ftl.counters().gc_pages)
    pages = ops.offset // 4096, (ops.offset + ops.length - 1) // 4096
    for number in range(6):
        mine = (kind == number) & (ops.op == Op.WRITE)
        assert ftl.pages_by_class[0, number] == (pages[1] - pages[0] + 1)[mine].sum()
