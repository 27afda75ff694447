"""vLLM on the CPU with dummy weights, its KV cache offloaded through the real ``lmcache server``.

The inference path itself: 5 to 10 s for a prompt of one to two thousand tokens on two cores, so a
short run to look at, not a source of load. The model is made up: 4 layers, 8 KV heads of 128, which
is 16 KiB a token, 4 MiB a chunk. Left in the folder is what ``lmcache_store`` leaves, and
``vllm.log``; sessions and turns are not in the log, since the server is not told them.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from harness.core.errors import UsageError
from harness.core.progress import Progress, quiet
from harness.stores.emit import EmitResult
from harness.stores.lmcache_raw_block import LmcacheRawBlock, RawBlockStore
from harness.stores.real.lmcache_store import RealRun, arguments, result, tell
from harness.stores.real.program import child, end, failure, result_of
from harness.stores.real.workload import scale_factor, write_scaled
from harness.stores.registry import load_store_spec

_FOLDER = Path(__file__).parent
_TOKEN_BYTES = 16384
_MAX_TOKENS = 8192
_MOST_CHUNKS = 28
_PROMPT_CHUNKS = 12
_VOCABULARY = 1024
_START_S = 300.0
_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": _MAX_TOKENS,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def run_vllm(run: RealRun, progress: Progress = quiet) -> EmitResult:
    """Serve requests from vLLM; payloads are compared with what was written, by checksum.

    Raises what ``run_lmcache`` raises; UsageError also for another model than its own.
    """
    run.store.need()
    if run.model.token_bytes != _TOKEN_BYTES or run.model.state_bytes:
        raise UsageError(
            f"vLLM runs a made-up model of {_TOKEN_BYTES} bytes a token, not {run.model.name}",
            fix="give --model llama-3.1-8b-tp8, which has as many",
        )
    if run.pace:
        raise UsageError("vLLM is far slower than any trace: there is no --timed for it")
    spec = load_store_spec(run.store.model_of_it)
    assert isinstance(spec, LmcacheRawBlock)
    chunk = run.model.chunk_bytes(spec.chunk_tokens)
    slots = RawBlockStore(spec, run.capacity_bytes, run.model).slots
    factor = scale_factor(run.requests, spec.chunk_tokens, min(slots, 16 * _PROMPT_CHUNKS))
    run.folder.mkdir(parents=True, exist_ok=True)
    plan = run.folder / "requests-planned.jsonl"
    model = run.folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(_MODEL), encoding="utf-8")
    scaled = write_scaled(
        run.requests, plan, chunk_tokens=spec.chunk_tokens, factor=factor, limit=run.most,
        most_chunks=_MOST_CHUNKS,
    )  # fmt: skip
    port, http = _free_ports(2)
    job = {
        "model": str(model),
        "port": port,
        "seconds": run.seconds,
        "requests": str(plan),
        "served": str(run.folder / "requests.jsonl"),
        "chunk_tokens": spec.chunk_tokens,
        "max_tokens": _MAX_TOKENS,
        "vocabulary": _VOCABULARY,
    }
    job_path, counts = run.folder / "job.json", run.folder / "server.json"
    job_path.write_text(json.dumps(job), encoding="utf-8")
    server_log = run.folder / "lmcache.log"
    python = str(run.store.python)
    server_words = [
        python, "-P", str(_FOLDER / "lmcache_server.py"), str(run.folder / "calls.npz"),
        str(counts), "--host", "127.0.0.1", "--port", str(port), "--http-host", "127.0.0.1",
        "--http-port", str(http), "--chunk-size", str(spec.chunk_tokens),
        "--supported-transfer-mode", "engine_driven", *arguments(spec, run.device, chunk),
    ]  # fmt: skip
    try:
        with child(server_words, server_log) as server:
            _wait_for(server, port, server_log)
            done = result_of(
                run.store.name, [python, "-P", str(_FOLDER / "vllm_driver.py"), str(job_path)],
                run.folder / "vllm.log", lambda said: tell(progress, said, run, scaled),
            )  # fmt: skip
            end(server)
        if not counts.exists():
            raise failure("lmcache server", "left no log of its calls", server_log)
        done |= json.loads(counts.read_text())
    finally:
        for path in (plan, job_path, counts, model / "config.json"):
            path.unlink(missing_ok=True)
        model.rmdir()
    return result(run, spec, scaled, done)


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on at this moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _wait_for(server: Any, port: int, log: Path) -> None:
    """Until the server listens; MeasurementError if it ends or takes too long."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if server.poll() is not None:
            raise failure("lmcache server", f"ended with status {server.returncode}", log)
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise failure("lmcache server", f"does not listen after {_START_S:.0f} s", log)
