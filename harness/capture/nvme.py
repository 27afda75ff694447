"""What NVMe commands say that the block layer does not know: addresses of passthrough, placement.

A passthrough request (an ioctl, or an io_uring command) has no address of its own; its submission
queue entry does. The driver traces that entry right before it issues the request.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from harness.capture.records import KIND_SHIFT, SECTOR_MASK, Decoder, Kind, chosen
from harness.core.ops import SECTOR_BYTES, Op

# NVMe command set specification, I/O command opcodes; commands without a range stay "other".
_NO_OP = 255
_OP_OF_OPCODE = np.full(256, _NO_OP, np.uint8)
_OP_OF_OPCODE[[0x01, 0x02, 0x08]] = [Op.WRITE, Op.READ, Op.WRITE_ZEROES]

_REWRITTEN = 1
_PLACEMENT_SHIFT = np.uint32(1)


class NvmeCommands:
    """Completes issues by the commands traced before them.

    ``logical_blocks`` maps the traced devices' numbers to their logical block size.
    """

    def __init__(self, decoder: Decoder, logical_blocks: Mapping[int, int]) -> None:
        self._decoder = decoder
        self._blocks = dict(logical_blocks)
        self._left: npt.NDArray[np.void] | None = None

    def apply(self, slots: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """The events of a batch (SLOT_DTYPE, in stream order) without the commands.

        ``header`` of each then holds what ``placements`` and ``rewritten`` read.
        """
        kinds = (slots["kind_sector"] >> KIND_SHIFT).astype(np.uint8)
        is_command = kinds == Kind.NVME_COMMAND
        where = np.flatnonzero(is_command)
        commands = slots.take(where)
        if self._left is not None:
            where = np.concatenate([np.full(len(self._left), -1), where])
            commands = np.concatenate([self._left, commands])
        events = chosen(slots, ~is_command)
        events["header"] = 0
        issues = np.flatnonzero(kinds == Kind.ISSUE)
        followed, found = _next_of_same_key(commands["key"], where, slots["key"][issues], issues)
        rows = (np.cumsum(~is_command) - 1)[issues[found]]
        self._complete(commands.take(followed), events, rows)
        unused = np.delete(commands, followed)
        self._left = unused if len(unused) else None
        return events

    def _complete(
        self,
        commands: npt.NDArray[np.void],
        events: npt.NDArray[np.void],
        rows: npt.NDArray[np.int64],
    ) -> None:
        directive, specific = commands["pid"] >> np.uint32(16), commands["pid"] & np.uint32(0xFFFF)
        placement = np.where(directive != 0, specific + np.uint32(1), np.uint32(0))
        cmd_flags = events["cmd_flags"][rows]
        op = _OP_OF_OPCODE[commands["cmd_flags"] & np.uint32(0xFF)]
        passed_through = self._decoder.ops(cmd_flags) == Op.OTHER
        rewritten = passed_through & (op != _NO_OP)
        events["header"][rows] = placement << _PLACEMENT_SHIFT | rewritten.astype(np.uint32)

        places, commands, op = rows[rewritten], chosen(commands, rewritten), op[rewritten]
        blocks = np.array(
            [self._blocks.get(dev, SECTOR_BYTES) for dev in commands["dev"].tolist()], np.uint64
        )
        sectors = (commands["kind_sector"] & SECTOR_MASK) * (blocks // np.uint64(SECTOR_BYTES))
        events["kind_sector"][places] = np.uint64(int(Kind.ISSUE)) << KIND_SHIFT | sectors
        events["bytes"][places] = (commands["bytes"] + np.uint64(1)) * blocks
        high = cmd_flags[rewritten] & ~np.uint32(0xFF)
        events["cmd_flags"][places] = high | self._decoder.numbers(op)


def placements(header: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
    """Placement ids of completed events, -1 where there was none."""
    return (header >> _PLACEMENT_SHIFT).astype(np.int32) - 1


def rewritten(header: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Whether address and operation of completed events are those of an NVMe command."""
    return (header & np.uint32(_REWRITTEN)) != 0


def _next_of_same_key(
    first_keys: npt.NDArray[np.uint64],
    first_at: npt.NDArray[np.int64],
    then_keys: npt.NDArray[np.uint64],
    then_at: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs (index into ``first``, index into ``then``) that follow each other under one key."""
    keys = np.concatenate([first_keys, then_keys])
    order = np.lexsort((np.concatenate([first_at, then_at]), keys))
    is_first = order < len(first_keys)
    follows = is_first[:-1] & ~is_first[1:] & (keys[order[:-1]] == keys[order[1:]])
    at = np.flatnonzero(follows)
    return order[at], order[at + 1] - len(first_keys)
