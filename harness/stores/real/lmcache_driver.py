"""The real LMCache on a block device, driven by a request trace: a program for its own Python.

Run as ``PYTHON lmcache_driver.py JOB.json`` by ``lmcache_store``, with the Python of the
environment that LMCache is installed in. It therefore imports nothing of the harness.

One request after the other: look up the prompt's chunks, read and check what is held, "compute" and
store the rest. Every payload is a pattern of its key and checked to the last byte when it is read.
The calls that LMCache makes on the device are logged where they are made, at its handle of the
device, with the key that each moves. Written for LMCache 0.5.6: ``_core`` of its raw_block adapter
has no public name.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["LMCACHE_TRACK_USAGE"] = "false"

sys.path.append(str(Path(__file__).parent))

import numpy as np
import torch
from lmcache.v1.distributed.api import (
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache.v1.distributed.config import parse_args
from lmcache.v1.distributed.storage_manager import StorageManager
from lmcache.v1.storage_backend.raw_block.key_codec import encode_object_key
from logged_device import LoggedDevice, Place, write_log  # type: ignore[import-not-found]

PREFETCH_TIMEOUT_S = 120.0
DRAIN_TIMEOUT_S = 60.0


@dataclass
class Done:
    """What the driver counted; ``load_s`` is how long requests with ``chunks_loaded`` from the
    device held memory for them."""

    requests: int = 0
    chunks_wanted: int = 0
    chunks_hit: int = 0
    hits_in_memory: int = 0
    chunks_stored: int = 0
    not_stored_for_want_of_memory: int = 0
    failed_puts: int = 0
    evictions: int = 0
    evicted: int = 0
    bytes_verified: int = 0
    wrong_payloads: int = 0
    prefetch_timeouts: int = 0
    chunks_loaded: int = 0
    load_s: float = 0.0
    behind_s: float = 0.0


class Driver:
    """Serves requests from one ``StorageManager``."""

    def __init__(self, job: dict[str, Any], requests: list[dict[str, Any]]) -> None:
        self._job = job
        self._shape = torch.Size(job["chunk_shape"])
        self._layout = MemoryLayoutDesc([self._shape], [torch.bfloat16])
        self._payload = int(np.prod(job["chunk_shape"])) * 2
        rng = np.random.default_rng(job["seed"])
        self._pattern = rng.integers(0, 1 << 64, self._payload // 8, np.uint64)
        self._keys: dict[int, ObjectKey] = {
            key: ObjectKey(key.to_bytes(8, "big"), "model", 0)
            for request in requests
            for key in request["hash_ids"]
        }
        config = parse_args(job["arguments"])
        config.l1_manager_config.memory_config.shm_name = ""  # memory of this process alone
        self.manager = StorageManager(config)
        self.adapter = self.manager.l2_adapters()[0][1]
        self.core = self.adapter._core
        self.place, self.done = Place(), Done()
        self.served: list[dict[str, Any]] = []
        names = {encode_object_key(name).slot_identity: key for key, name in self._keys.items()}
        self.device = LoggedDevice(
            self.core.raw_device(), self.core.data_base_offset(), self.core.slot_bytes, self.place,
            names,
        )  # fmt: skip
        self.core.set_raw_device_for_testing(self.device)
        self._count_calls()

    def _count_calls(self) -> None:
        """Count what LMCache only tells its log: puts that found no slot, and evictions."""
        put_many, delete_many = self.core.put_many, self.core.delete_many

        def put(*args: Any, **kwargs: Any) -> Any:
            result = put_many(*args, **kwargs)
            self.done.failed_puts += result.results.count(False)
            return result

        def delete(keys: Any, *args: Any, **kwargs: Any) -> Any:
            before = self.core.indexed_key_count()
            result = delete_many(keys, *args, **kwargs)
            self.done.evictions += 1
            self.done.evicted += before - self.core.indexed_key_count()
            return result

        self.core.put_many, self.core.delete_many = put, delete

    def serve(self, request: dict[str, Any]) -> None:
        """One request: read what is held, store the rest."""
        keys: list[int] = request["hash_ids"]
        self.place.session, self.place.turn = request["session_id"], request["turn"]
        hit = self._read(keys) if keys else 0
        missing = keys[hit:]
        if missing:
            self._store(missing)
        self.done.requests += 1
        self.done.chunks_wanted += len(keys)
        self.done.chunks_hit += hit

    def _read(self, keys: list[int]) -> int:
        """Load the leading chunks that are held and check them; how many."""
        names = [self._keys[key] for key in keys]
        began = time.monotonic()
        handle = self.manager.submit_prefetch_task(
            PrefetchTaskSpec([GroupedObjectKeys(names, 0, self._layout)])
        )
        if not self.manager.wait_prefetch_status(handle, PREFETCH_TIMEOUT_S):
            self.done.prefetch_timeouts += 1
            return 0
        result = self.manager.query_prefetch_status(handle)
        hit = result.hit_cells[0].count_leading_ones() if result else 0
        if hit == 0:
            return 0
        self.done.hits_in_memory += result.l1_hit_count
        with self.manager.read_prefetched_results(names[:hit]) as objects:
            if objects is None:
                return 0
            for key, held in zip(keys, objects, strict=False):
                self._check(key, held)
        self.manager.finish_read_prefetched(names[:hit])
        if result.l2_hit_count:
            self.done.chunks_loaded += result.l2_hit_count
            self.done.load_s += time.monotonic() - began
        return hit

    def _words(self, held: Any) -> Any:
        """The payload of a memory object as uint64 words, in place."""
        return np.frombuffer(held.byte_array, np.uint64, self._payload // 8)

    def _check(self, key: int, held: Any) -> None:
        if not np.array_equal(self._words(held) ^ np.uint64(key), self._pattern):
            self.done.wrong_payloads += 1
        self.done.bytes_verified += self._payload

    def _store(self, keys: list[int]) -> None:
        names = [self._keys[key] for key in keys]
        reserved = self.manager.reserve_write(names, self._layout)
        for key, name in zip(keys, names, strict=True):
            if name in reserved:
                np.bitwise_xor(self._pattern, np.uint64(key), out=self._words(reserved[name]))
                self.place.stored_by[key] = (self.place.session, self.place.turn)
        self.manager.finish_write(list(reserved))
        self.done.chunks_stored += len(reserved)
        self.done.not_stored_for_want_of_memory += len(names) - len(reserved)

    def run(self, requests: list[dict[str, Any]]) -> str:
        """Serve until the trace or the time is over; which of them it was.

        With a speed each request waits for its time of the trace; one that comes late counts.
        """
        began = time.monotonic()
        speed = self._job["speed"]
        for number, request in enumerate(requests):
            if speed is not None:
                due = began + request["timestamp"] / 1e3 / speed
                self.done.behind_s = max(self.done.behind_s, time.monotonic() - due)
                time.sleep(max(0.0, due - time.monotonic()))
            passed = time.monotonic() - began
            if self._job["seconds"] is not None and passed >= self._job["seconds"]:
                return "seconds"
            self.served.append({**request, "timestamp": round(passed * 1e3, 3)})
            self.serve(request)
            print(json.dumps({"served": number + 1, "seconds": passed}), flush=True)
            time.sleep(self._job["think_s"])
        return "requests"

    def close(self) -> dict[str, Any]:
        """Wait until what is stored is on the device, write the checkpoint; LMCache's status."""
        until = time.monotonic() + DRAIN_TIMEOUT_S
        quiet = 0
        while quiet < 10 and time.monotonic() < until:
            before = len(self.device.rows)
            time.sleep(0.1)
            idle = self.core.inflight_io_count() == 0 and len(self.device.rows) == before
            quiet = quiet + 1 if idle else 0
        status: dict[str, Any] = self.core.report_status()
        self.manager.close()
        return status


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    logging.disable(logging.INFO)
    requests = [json.loads(line) for line in Path(job["requests"]).read_text().splitlines()]
    driver = Driver(job, requests)
    began = time.monotonic()
    stopped_by = driver.run(requests)
    status = driver.close()
    duration_s = time.monotonic() - began
    write_log(Path(job["log"]), driver.device.rows)
    lines = "".join(json.dumps(request) + "\n" for request in driver.served)
    Path(job["served"]).write_text(lines)
    result = {
        **vars(driver.done),
        "stopped_by": stopped_by,
        "duration_s": duration_s,
        "lmcache": version("lmcache"),
        "raw_block_io": version("lmcache-rust-raw-block-io"),
        "status": {k: v for k, v in status.items() if isinstance(v, int | float | str | None)},
    }
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main()
