"""Cases that a person can follow: unit chunks, states of ten."""

from __future__ import annotations

import pytest

from harness.simulator.engine_block import play
from harness.simulator.requestlog import SsdAction, StateFrom
from harness.simulator.run import Run
from tests.simulator.cases import BLOCK, corpus_of, run

ABCA = corpus_of([[1], [2], [3], [1]])
GROWING = corpus_of([[1], [1, 2], [1, 2, 3]], [0, 0, 0])


def actions(found: Run) -> list[tuple[int, str, int]]:
    assert found.ssd is not None
    return [(int(r["request"]), SsdAction(r["action"]).name, int(r["node"])) for r in found.ssd]


@pytest.mark.parametrize("structure", ["leaf", "free"])
def test_write_back_lru_writes_the_first_of_three(structure: str) -> None:
    found = run(ABCA, structure=structure)
    assert found.outcome.miss == 3 / 4
    assert found.outcome.full.written == 1
    assert found.outcome.full.hits_ssd == 1
    assert actions(found) == [(2, "WRITE", 0), (3, "READ", 0)]


def test_copying_a_hit_to_dram_writes_what_leaves_for_it() -> None:
    found = run(ABCA, on_ssd_hit="copy")
    assert found.outcome.full.written == 2
    assert actions(found)[-1] == (3, "WRITE", 1)
    assert found.outcome.full.resident_ssd == 2


def test_moving_a_hit_to_dram_takes_it_off_the_ssd() -> None:
    found = run(ABCA, on_ssd_hit="move")
    assert (found.outcome.full.written, found.outcome.full.invalidated) == (2, 1)
    assert found.outcome.full.resident_ssd == 1


def test_write_through_writes_all_and_evicts_the_oldest() -> None:
    found = run(ABCA, policy="write-through")
    assert found.outcome.miss == 1
    assert found.outcome.full.written == 4
    assert found.outcome.full.first_written == 3
    assert found.outcome.full.dropped == 0


def test_a_growing_conversation_hits_half_in_endless_dram() -> None:
    outcome = run(GROWING, dram_bytes=1000).outcome
    assert (outcome.references, outcome.hits, outcome.miss) == (6, 3, 0.5)


def test_its_states_are_used_once_each() -> None:
    found = run(GROWING, dram_bytes=1000, state_bytes=10)
    outcome = found.outcome
    assert outcome.state.created == 3
    assert outcome.state.hits_dram == 2
    assert found.requests["state_from"].tolist() == [0, StateFrom.DRAM, StateFrom.DRAM]
    assert found.requests["states_created"].tolist() == [1, 1, 1]


def test_a_lost_state_strands_the_chunks_before_it() -> None:
    """The second request pins F(1) and S(1): F(2) fits beside them, S(2) does not and is lost."""
    found = run(GROWING, dram_bytes=12, ssd_bytes=0, state_bytes=10)
    assert found.requests["hit"].tolist() == [0, 1, 1]
    assert found.requests["stranded"].tolist() == [0, 0, 1]
    assert found.outcome.full.refused == 1, "F(3) has no room beside the pins"
    assert found.outcome.state.refused == 2


def test_stranded_chunks_are_not_made_twice() -> None:
    from harness.simulator.objects import state_at
    from harness.simulator.policies import find_policy
    from harness.simulator.prepare import prepare
    from harness.simulator.run import sizes_of
    from harness.simulator.start import new_state
    from harness.simulator.tiers import take_dram
    from tests.simulator.cases import point_of

    point = point_of(GROWING, dram_bytes=1000, state_bytes=10)
    ready = prepare(GROWING, "end", True, False)
    state = new_state(GROWING, ready, point, sizes_of(point), find_policy("lru", {}), 0)
    play(state, 0, 1)
    take_dram(state, state_at(state, 0))  # S(1) is removed by hand
    play(state, 1, 3)
    assert state.row[:, 0].tolist() == [0, 0, 2]
    assert state.row[:, 2].tolist() == [0, 1, 0]
    assert state.total[2].tolist() == [3, 3], "F(1) is made once; S(2) is new"
    assert 1 - state.row[:, 0].sum() / 6 == pytest.approx(4 / 6)


def test_lru_2_drops_what_was_referenced_once() -> None:
    outcome = run(ABCA, policy="lru-k").outcome
    assert (outcome.full.written, outcome.hits, outcome.full.dropped) == (0, 0, 2)


def test_a_ghost_is_written_when_it_leaves_again() -> None:
    corpus = corpus_of([[1], [2], [3], [1], [4], [5]])
    assert run(corpus, policy="lru-k").outcome.full.written == 1
    assert run(corpus, policy="lru-k", parameters={"ghost": 0}).outcome.full.written == 0


def test_lru_1_is_lru() -> None:
    gated = run(ABCA, policy="lru-k", parameters={"k": 1}).outcome
    assert gated == run(ABCA).outcome


@pytest.mark.parametrize(("ssd_bytes", "structure"), [(0, "leaf"), (0, "free"), (3, "free")])
def test_a_path_leaves_deepest_first(ssd_bytes: int, structure: str) -> None:
    corpus = corpus_of([[1, 2, 3], [4], [5], [1, 2, 3]])
    found = run(corpus, dram_bytes=3, ssd_bytes=ssd_bytes, structure=structure)
    if ssd_bytes:
        assert actions(found)[:2] == [(1, "WRITE", 2), (2, "WRITE", 1)]
    else:
        assert found.requests["hit"].tolist()[-1] == 1, "only the root is left"


def test_what_moves_under_the_leaf_rule_begins_at_the_root() -> None:
    corpus = corpus_of([[1, 2, 3], [4], [5], [1, 2, 3]])
    found = run(corpus, dram_bytes=3, ssd_bytes=3)
    assert actions(found)[:2] == [(1, "WRITE", 0), (2, "WRITE", 1)]
    assert found.requests["hit"].tolist()[-1] == 3
    assert found.requests["hit_ssd"].tolist()[-1] == 2


def test_kvbm_writes_at_the_second_offer_unless_a_fall_came_between() -> None:
    def offered(*times: float) -> list[int]:
        """The same chunk made again and again, another pushing it out in between."""
        paths, clock = [], []
        for at in times:
            paths += [[1], [100 + len(paths)]]
            clock += [at, at]
        corpus = corpus_of(paths, times=clock)
        found = run(corpus, policy="kvbm", dram_bytes=1, ssd_bytes=0)
        assert found.outcome.full.written == 0, "there is no SSD"
        found = run(corpus, policy="kvbm", dram_bytes=1, ssd_bytes=9)
        return found.requests["written_full"].tolist()[::2]

    assert offered(0, 10, 700) == [0, 1, 0]
    assert offered(0, 700) == [0, 0]


def test_gandalf_moves_only_above_the_price() -> None:
    """p = 1 and n = 1: written iff the chunk's recomputation costs more than its bytes' wear."""

    def written(ssd_usd: float) -> int:
        prices = {"gpu_usd_per_hour": 3600.0, "prefill_tokens_s": BLOCK, "tbw_bytes": 1.0}
        prices |= {"ssd_usd": ssd_usd}
        return run(ABCA, policy="gandalf", parameters=prices).outcome.full.written

    assert written(0.99) == 1
    assert written(1.0) == 0, "at equality it drops"
    assert written(1.01) == 0


def test_what_fits_no_more_passes_dram_by() -> None:
    found = run(corpus_of([[1, 2, 3, 4]]), dram_bytes=2, ssd_bytes=2)
    full = found.outcome.full
    assert (full.dram_in, full.direct, full.refused) == (2, 2, 0)


def test_write_back_writes_all_but_what_dram_holds_at_the_end() -> None:
    """Equation 1: S (n k + R s) - C_dram, sessions one after another."""
    sessions, rounds, new = 5, 4, 3
    paths, owners = [], []
    for session in range(sessions):
        for turn in range(rounds):
            paths.append([session * 1000 + at for at in range((turn + 1) * new)])
            owners.append(session)
    corpus = corpus_of(paths, owners)
    found = run(corpus, dram_bytes=50, ssd_bytes=10_000, state_bytes=10).outcome
    made = sessions * (rounds * new * 1 + rounds * 10)
    held = found.full.resident_dram + 10 * found.state.resident_dram
    assert found.full.written_bytes + found.state.written_bytes == made - held
    assert 41 <= held <= 50


def test_the_last_token_is_left_to_be_computed() -> None:
    corpus = corpus_of([[1, 2], [1, 2]])
    assert run(corpus, dram_bytes=9).outcome.hits == 2
    assert run(corpus, dram_bytes=9, last_token=True).outcome.hits == 1


def test_replays_bring_fresh_keys_to_a_warm_cache() -> None:
    found = run(ABCA, dram_bytes=3, ssd_bytes=0, replays=2)
    assert [part.hits for part in found.passes] == [1, 1]
    assert found.passes[0].full.dropped == 0
    assert found.passes[1].full.dropped == 3, "the first pass is pushed out"
    assert found.outcome.requests == 8


def test_warm_up_drops_counters_but_not_contents() -> None:
    found = run(ABCA, dram_bytes=3, warmup=0.5)
    assert found.outcome.requests == 2
    assert (found.outcome.references, found.outcome.hits) == (2, 1)
    assert found.outcome.full.created == 1


def test_snapshots_add_up() -> None:
    found = run(corpus_of([[k % 7] for k in range(300)]), dram_bytes=3)
    assert len(found.snapshots) == 100
    assert found.snapshots[-1, 0, 0] == found.outcome.full.hits_dram
    assert (found.snapshots[1:] >= found.snapshots[:-1]).all()


def test_rounds_end_with_the_output_that_the_next_prompt_shows() -> None:
    corpus = corpus_of([[1, 2], [1, 2, 3, 4]], [0, 0], outputs=[BLOCK, 0])
    found = run(corpus, dram_bytes=1000, state_bytes=10, checkpoint="round")
    assert found.requests["created"].tolist() == [3, 1]
    assert found.requests["hit"].tolist() == [0, 3], "the state lies behind the output's block"
    ended = run(corpus, dram_bytes=1000, state_bytes=10, checkpoint="end")
    assert ended.requests["hit"].tolist() == [0, 2]


def test_superseded_and_used_states_are_told_apart() -> None:
    corpus = corpus_of([[1], [1, 2], [9], [8], [7]], [0, 0, 1, 2, 3])
    state = run(corpus, dram_bytes=25, ssd_bytes=1000, state_bytes=10).outcome.state
    assert state.superseded == 1
    assert state.used_before == 1
    assert state.never_again == state.written
