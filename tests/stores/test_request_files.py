"""Every request format: what is read, and what is refused with file and line."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from harness.core.errors import UsageError
from harness.stores.chunks import chunk_keys
from harness.stores.requests.form import Request, RequestBatch, Tag
from harness.stores.requests.load import detect, open_requests


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path, **options: Any) -> list[Request]:
    return [r for batch in open_requests(str(path), **options).batches() for r in batch]


def mooncake_row(time_ms: float, tokens: int, ids: list[int], output: int = 5) -> dict[str, Any]:
    return {
        "timestamp": time_ms, "input_length": tokens, "output_length": output, "hash_ids": ids,
    }  # fmt: skip


def test_mooncake_rows_new_tokens_and_inferred_sessions(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "m.jsonl",
        [
            mooncake_row(1000, 1100, [0, 1, 2]),
            mooncake_row(1500, 700, [0, 9]),
            mooncake_row(4000, 1800, [0, 1, 7, 8]),
        ],
    )
    first, other, again = read(path)
    assert (first.time_s, other.time_s, again.time_s) == (0.0, 0.5, 3.0)
    assert first.form.block_tokens == 512
    assert first.form.partial_tail
    assert [first.new_tokens, other.new_tokens, again.new_tokens] == [1105, 193, 781]
    assert (first.session, other.session, again.session) == (0, 1, 0)
    assert (again.turn, again.ids.tolist()) == (1, [0, 1, 7, 8])


def test_ids_use_all_64_bits(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "m.jsonl", [mooncake_row(0, 1024, [2**64 - 1, 2**63])])
    assert read(path)[0].ids.tolist() == [2**64 - 1, 2**63]


@pytest.mark.parametrize("bad", [-1, 2**64, 1.5, "7", None])
def test_other_ids_are_refused_with_file_and_line(tmp_path: Path, bad: Any) -> None:
    rows = [mooncake_row(0, 1024, [1]), mooncake_row(1, 1024, [2, bad])]
    path = jsonl(tmp_path / "m.jsonl", rows)
    with pytest.raises(
        UsageError, match=rf"m\.jsonl:2: hash_ids: {bad!r}".replace("1.5", r"1\.5")
    ) as caught:
        read(path)
    assert "from 0 to 2^64 - 1" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"m\.jsonl:1: the file is empty"),
        ('{"timestamp": 0, "input_length": 5, "outp', r"m\.jsonl:1: truncated or not JSON"),
        (json.dumps(mooncake_row(0, 5, [1])) + '\n{"timest', r"m\.jsonl:2: truncated"),
        (
            "\n".join(json.dumps(mooncake_row(t, 5, [1])) for t in (5, 3)),
            r"m\.jsonl:2: time goes backwards",
        ),
        (json.dumps(mooncake_row(0, 5, [1, 2])), r"m\.jsonl:1: 2 ids for 5 tokens"),
        (json.dumps(mooncake_row(-3, 5, [1])), r"m\.jsonl:1: timestamp: expected a time"),
        (json.dumps(mooncake_row(0, -5, [])), r"m\.jsonl:1: input_length: expected a number"),
        ('{"timestamp": 0, "hash_ids": 3, "input_length": 1}', r"m\.jsonl:1: output_length"),
        ('{"a": 1}', r"m\.jsonl:1: no known request format has the keys a"),
        ("[1]", "not a request trace"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        read(path)
    if any(word in message for word in ("empty", "truncated", "backwards", "no known")):
        assert caught.value.fix


def test_compressed_files_read_like_plain_ones_and_cut_ones_are_refused(tmp_path: Path) -> None:
    content = (json.dumps(mooncake_row(0, 600, [1, 2])) + "\n").encode() * 3000
    packed = tmp_path / "m.jsonl.gz"
    packed.write_bytes(gzip.compress(content))
    assert len(read(packed)) == 3000
    zstd = tmp_path / "m.jsonl.zst"
    zstd.write_bytes(pa.compress(content, codec="zstd", asbytes=True))
    assert len(read(zstd)) == 3000
    packed.write_bytes(gzip.compress(content)[:-12])
    with pytest.raises(UsageError, match="cannot be unpacked"):
        read(packed)


def test_bailian_chats_are_sessions_by_parent(tmp_path: Path) -> None:
    def row(chat: int, parent: int, time_s: float, ids: list[int], turn: int) -> dict[str, Any]:
        return {
            "chat_id": chat, "parent_chat_id": parent, "timestamp": time_s, "type": "text",
            "turn": turn, "input_length": 16 * len(ids) - 3, "output_length": 9, "hash_ids": ids,
        }  # fmt: skip

    path = jsonl(
        tmp_path / "b.jsonl",
        [
            row(10, -1, 61.25, [1, 2], 1),
            row(11, -1, 62.0, [5], 1),
            row(12, 10, 63.5, [1, 2, 3], 2),
        ],
    )
    rows = read(path)
    assert detect(path) == "bailian"
    assert [r.session for r in rows] == [0, 1, 0]
    assert [r.turn for r in rows] == [1, 1, 2]
    assert {r.tag for r in rows} == {Tag.UNTAGGED}
    assert rows[2].time_s == pytest.approx(2.25)
    assert rows[0].form.block_tokens == 16


def weka_session(relative: bool) -> dict[str, Any]:
    def request(time_s: float, tokens: int, ids: list[int]) -> dict[str, Any]:
        return {"t": time_s, "type": "n", "in": tokens, "out": 7, "hash_ids": ids}

    shift = 0.0 if relative else 20.0
    return {
        "id": "s", "block_size": 64, "hash_id_scope": "local", "tool_tokens": 1,
        "requests": [
            request(0.0, 130, [1, 2]),
            {
                "t": 20.0, "type": "subagent", "agent_id": "a", "duration_ms": 9000,
                "requests": [request(shift, 64, [8]), request(shift + 8, 128, [8, 9])],
            },
            request(25.0, 200, [1, 2, 3]),
        ],
    }  # fmt: skip


@pytest.mark.parametrize("relative", [True, False])
def test_both_dialects_of_claude_code_sessions_give_the_same_requests(
    tmp_path: Path, relative: bool
) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(weka_session(relative)))
    rows = read(path)
    assert [r.time_s for r in rows] == [0.0, 20.0, 25.0, 28.0]
    assert [r.ids.tolist() for r in rows] == [[1, 2], [8], [1, 2, 3], [8, 9]]
    assert [r.turn for r in rows] == [0, 1, 2, 3]
    assert [r.tag for r in rows] == [Tag.MAIN, Tag.SUBAGENT, Tag.MAIN, Tag.SUBAGENT]
    assert rows[2].new_tokens == 200 - 128 + 7
    forced = read(path, dialect="absolute" if relative else "relative")
    assert [r.time_s for r in forced] != [r.time_s for r in rows]


def test_sessions_come_from_lines_folders_and_archives(tmp_path: Path) -> None:
    session = weka_session(True)
    lines = jsonl(tmp_path / "s.jsonl", [session, session])
    folder = tmp_path / "folder"
    folder.mkdir()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("a", "b"):
            content = json.dumps(session).encode()
            (folder / f"{name}.json").write_bytes(content)
            info = tarfile.TarInfo(f"{name}.json")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    packed = tmp_path / "s.tar.zst"
    packed.write_bytes(pa.compress(archive.getvalue(), codec="zstd", asbytes=True))
    expected = [(r.session, r.time_s, r.ids.tolist()) for r in read(lines)]
    assert len(expected) == 8
    for path in (folder, packed):
        assert [(r.session, r.time_s, r.ids.tolist()) for r in read(path)] == expected


def test_ids_of_a_session_mean_nothing_in_another(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "s.jsonl", [weka_session(True), weka_session(True)])
    rows = read(path)
    _, keys = chunk_keys(RequestBatch.of(rows), 64)
    assert len(set(keys.tolist())) == 2 * 5


def test_lanes_play_sessions_side_by_side_with_capped_gaps(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "s.jsonl", [weka_session(True) for _ in range(3)])
    rows = read(path, lanes=2, gap_cap_s=10)
    assert [(r.session, r.time_s) for r in rows] == [
        (0, 0.0), (1, 0.0), (0, 10.0), (1, 10.0), (0, 15.0), (1, 15.0), (0, 18.0), (2, 18.0),
        (1, 18.0), (2, 28.0), (2, 33.0), (2, 36.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hash_id_scope": "global"}, "hash_id_scope 'global'"),
        ({"block_size": 128}, "block_size 128"),
        ({"requests": 3}, "not a session"),
    ],
)
def test_other_sessions_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({**weka_session(True), **change}))
    with pytest.raises(UsageError, match=message):
        read(path)


def test_aiperf_cumulative_and_delta_give_the_same_prompts(tmp_path: Path) -> None:
    cumulative = [
        {"session_id": "a", "timestamp": 0, "input_length": 1024, "output_length": 100,
         "hash_ids": [1, 2]},
        {"session_id": "a", "delay": 2000, "input_length": 1636, "output_length": 50,
         "hash_ids": [1, 2, 3]},
        {"session_id": "b", "timestamp": 1000, "input_length": 512, "output_length": 10,
         "hash_ids": [9]},
    ]  # fmt: skip
    delta = [dict(row) for row in cumulative]
    delta[1] |= {"input_length": 512, "hash_ids": [3]}
    rows = [
        [(r.session, r.turn, r.time_s, r.input_tokens, r.ids.tolist()) for r in read(path)]
        for path in (
            jsonl(tmp_path / "cumulative.jsonl", cumulative),
            jsonl(tmp_path / "delta.jsonl", delta),
        )
    ]
    assert rows[0] == rows[1]
    assert rows[0] == [
        (0, 0, 0.0, 1024, [1, 2]), (1, 0, 1.0, 512, [9]), (0, 1, 2.0, 1636, [1, 2, 3]),
    ]  # fmt: skip


def test_lengths_only_traces_share_nothing(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,200,10\n2023-11-16 18:17:04.4799600,130,8\n"
    )
    rows = read(azure)
    assert [round(r.time_s, 6) for r in rows] == [0.0, 0.5]
    assert [r.ids.tolist() for r in rows] == [[0, 1, 2], [3, 4]]
    assert [r.new_tokens for r in rows] == [210, 138]
    assert not rows[0].form.has_ids
    burst = tmp_path / "burst.csv"
    burst.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45.5,GPT-4,10,1,11,API log\n"
    )
    assert [(r.time_s, r.input_tokens) for r in read(burst)] == [(0.0, 472), (40.5, 10)]
    azure.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,200\n")
    with pytest.raises(UsageError, match=r"azure\.csv:2: truncated"):
        read(azure)


def test_oracle_general_records(tmp_path: Path) -> None:
    path = tmp_path / "t.oracleGeneral.bin"
    records = [(10, 2**64 - 1, 4096, 3), (11, 7, 4096, -1), (12, 2**64 - 1, 4096, -1)]
    path.write_bytes(b"".join(struct.pack("<IQIq", *record) for record in records))
    rows = read(path)
    assert [(r.time_s, r.ids.tolist()) for r in rows] == [
        (0.0, [2**64 - 1]), (1.0, [7]), (2.0, [2**64 - 1]),
    ]  # fmt: skip
    assert [r.new_tokens for r in rows] == [64, 64, 0]
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UsageError, match="record 2 is cut short"):
        read(path)


def test_an_unknown_name_or_format_offers_near_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean chat"):
        open_requests("chatt")
    with pytest.raises(UsageError, match=r"no such file: .*absent\.jsonl"):
        open_requests(str(tmp_path / "absent.jsonl"))
    path = jsonl(tmp_path / "m.jsonl", [mooncake_row(0, 5, [1])])
    with pytest.raises(UsageError, match="did you mean mooncake"):
        open_requests(str(path), format_name="moncake")


def test_chunks_of_blocks_and_blocks_of_chunks() -> None:
    from harness.stores.requests.form import RequestForm

    def keys(block: int, chunk: int, tokens: int, ids: list[int]) -> list[int]:
        form = RequestForm(block_tokens=block, partial_tail=True)
        request = Request(form, 0, 0, 0, tokens, 0, 0, np.array(ids, np.uint64))
        return chunk_keys(RequestBatch.of([request]), chunk)[1].tolist()

    assert keys(64, 256, 64 * 9, list(range(9))) == [3, 7]  # named by their last block
    assert len(set(keys(512, 256, 512 * 2 + 100, [1, 2, 3]))) == 4  # the partial block is left out
    with pytest.raises(UsageError, match="do not fit blocks"):
        keys(48, 256, 480, list(range(10)))
