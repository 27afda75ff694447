"""Policies that score objects once a request, for ``plain``."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist, fmean, pvariance

from tests.simulator.plain import DRAM, SSD, F, Plain, S, Thing
from tests.simulator.plain_policies import Frozen


class Times(Frozen):
    """When each object was asked for."""

    any_node = True

    def start(self, run: Plain) -> None:
        super().start(run)
        self.asked: dict[Thing, list[int]] = {}

    def used(self, x: Thing) -> None:
        self.asked.setdefault(x, []).append(self.run.now)

    def created(self, x: Thing) -> None:
        self.used(x)

    def recomputed(self, x: Thing) -> None:
        self.used(x)

    def at(self, r: int) -> float:
        return float(self.run.corpus.time_s[r])


class Tenure(Times):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.last: dict[int, int] = {}
        self.gaps: dict[int, list[float]] = {}
        self.ends: dict[Thing, float] = {}

    def turn(self, r: int) -> int:
        return min(int(self.run.corpus.turn[r]), 10)

    def begin(self, r: int) -> None:
        super().begin(r)
        session = int(self.run.corpus.session[r])
        if session in self.last:
            before = self.last[session]
            self.gaps.setdefault(self.turn(before), []).append(self.at(r) - self.at(before))
        self.last[session] = r

    def used(self, x: Thing) -> None:
        gaps = sorted(self.gaps.get(self.turn(self.run.now), []))
        lease = 0.0
        if gaps:
            most = gaps[math.ceil(self.parameters.get("quantile", 0.9) * len(gaps)) - 1]
            lease = 2.0 ** max(math.ceil(math.log2(most)), 0) if most > 0 else 1.0
        self.ends[x] = self.at(self.run.now) + lease

    def score(self, queue: str, x: Thing) -> float:
        if self.ends[x] > self.at(self.run.now):
            return self.ends[x]
        stamp, deep, kind = self.run.lru(x)
        return stamp * 4194304.0 + 2.0 * deep + kind - 1e15


class PlacementStudy(Times):
    def score(self, queue: str, x: Thing) -> float:
        tau = self.parameters.get("tau_s", 600.0)
        times = [self.at(r) for r in self.asked[x]]
        rate = 0.0
        for before, after in pairwise(times):
            rate += 0.2 * (tau / max(after - before, tau) - rate)
        recent = math.exp(-(self.at(self.run.now) - times[-1]) / tau)
        return recent + rate + math.log(1.0 + len(times))


class PrefixShield(Times):
    def score(self, queue: str, x: Thing) -> float:
        tier = self.run.tier[SSD if queue == "evict" else DRAM]
        mine = self.owner(x)
        return -float(sum(self.run.size(other) for other in tier if self.owner(other) == mine))

    def owner(self, x: Thing) -> int:
        return int(self.run.corpus.session[self.asked[x][0]])


class Marconi(Times):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.stamps: dict[Thing, int] = {}
        self.found: list[Thing] = []
        self.ranges: dict[str, tuple[float, float, float, float]] = {}
        self.measured: set[str] = set()

    def begin(self, r: int) -> None:
        super().begin(r)
        self.found, self.measured = [], set()

    def used(self, x: Thing) -> None:
        self.found.append(x)

    def created(self, x: Thing) -> None:
        self.stamps[x] = self.run.now

    def recomputed(self, x: Thing) -> None: ...

    def finish(self, r: int) -> None:
        for kind in (0, 1):
            like = [x for x in self.found if x[0] == kind]
            if like:
                self.stamps[max(like, key=lambda x: self.run.depth[x[1]])] = r

    def flops(self, blocks: int) -> float:
        d, n = 4096.0, 128.0
        linear = 4 * 8 * d * d + 28 * 16 * d * d + 24 * (12 * d * d + 16 * d * n + 10 * d)
        tokens = self.run.point.block_tokens
        return linear * tokens * blocks + 4 * 4 * d * tokens * tokens * blocks * blocks

    def worth(self, x: Thing) -> float:
        run, blocks = self.run, self.run.depth[x[1]] + 1
        if x[0] == F:
            return (self.flops(blocks) - self.flops(blocks - 1)) / run.size(x)
        saved = self.flops(blocks) - self.flops(blocks - run.behind(x))
        return saved / (run.size(x) + blocks * run.size((F, 0)))

    def recent(self, x: Thing) -> float:
        return 1.0 / max(self.run.now - self.stamps[x], 1)

    def measure(self, queue: str) -> None:
        if queue in self.measured:
            return
        self.measured.add(queue)
        tier = self.run.tier[SSD if queue == "evict" else DRAM]
        there = [x for x in tier if self.run.may(queue, x) and not self.run.pinned(x)]
        worth = [self.worth(x) for x in there] or [0.0]
        recent = [self.recent(x) for x in there] or [0.0]
        self.ranges[queue] = min(worth), max(worth), min(recent), max(recent)

    def score(self, queue: str, x: Thing) -> float:
        low, high, old, new = self.ranges[queue]
        worth = (self.worth(x) - low) / (high - low) if high > low else 1.0
        recent = (self.recent(x) - old) / (new - old) if new > old else 1.0
        return self.parameters.get("alpha", 1.0) * worth + recent

    def choose(self) -> tuple[Thing | None, bool]:
        for queue in ("drop", "move", "move_state"):
            self.measure(queue)
        return self.run.default_choose()

    def victim_ssd(self) -> Thing | None:
        self.measure("evict")
        return self.run.first("evict")


class Lpc(Times):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.model = [0.0] * 4
        self.last: dict[int, int] = {}
        self.seen: dict[int, float] = {}
        self.judged = 0

    def features(self, r: int) -> list[float]:
        corpus = self.run.corpus
        numbers = [int(corpus.turn[r]), int(corpus.input_tokens[r]), int(corpus.output_tokens[r])]
        return [1.0, *(math.log(1.0 + n) / math.log(2.0) / 16.0 for n in numbers)]

    def chance(self, r: int) -> float:
        total = 0.0
        for weight, value in zip(self.model, self.features(r), strict=True):
            total += weight * value
        return 1.0 / (1.0 + math.exp(-total))

    def learn(self, r: int, truth: float) -> None:
        step = self.parameters.get("rate", 0.1) * (truth - self.chance(r))
        values = self.features(r)
        self.model = [w + step * v for w, v in zip(self.model, values, strict=True)]

    def begin(self, r: int) -> None:
        super().begin(r)
        sessions = [int(session) for session in self.run.corpus.session]
        if sessions[r] in self.last:
            self.learn(self.last[sessions[r]], 1.0)
        self.last[sessions[r]] = r
        while self.at(r) - self.at(self.judged) > self.parameters.get("silent_s", 3600.0):
            if self.last[sessions[self.judged]] == self.judged:
                self.learn(self.judged, 0.0)
            self.judged += 1
        self.seen[sessions[r]] = self.chance(r)

    def score(self, queue: str, x: Thing) -> float:
        session = int(self.run.corpus.session[self.run.stamp[x]])
        silence = self.at(self.run.now) - self.at(self.last[session])
        return self.seen[session] * math.exp(-silence / self.parameters.get("tau_s", 600.0))


class Pred(Frozen):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.hit = 0
        self.start_s = self.free_s = 0.0

    def arrival(self, r: int) -> float:
        return float(self.run.corpus.time_s[r]) / self.parameters.get("speed", 1.0)

    def begin(self, r: int) -> None:
        super().begin(r)
        self.hit = 0
        self.start_s = max(self.arrival(r), self.free_s)
        self.waited_for = set()
        for q in range(r + 1, self.run.corpus.requests):
            if self.arrival(q) <= self.start_s:
                self.waited_for |= {(F, node) for node in self.run.paths[q]}
                self.waited_for.add((S, self.run.wants[q]))

    def used(self, x: Thing) -> None:
        self.hit += x[0] == F

    def finish(self, r: int) -> None:
        missed = int(self.run.corpus.input_tokens[r]) - self.hit * self.run.point.block_tokens
        self.free_s = self.start_s + missed / self.parameters.get("prefill_tokens_s", 60000.0)

    def key(self, queue: str, x: Thing) -> tuple[bool, int]:  # type: ignore[override]
        return x in self.waited_for, self.run.stamp[x]


class SaeCache(Times):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.kind: dict[Thing, str] = {}
        self.owner: dict[Thing, int] = {}
        self.gaps: dict[str, list[float]] = {}
        self.times: dict[str, int] = {}
        self.left_kind: list[str] = []
        self.again_kind: list[str] = []
        self.gone: set[Thing] = set()

    def used(self, x: Thing) -> None:
        session = int(self.run.corpus.session[self.run.now])
        if x not in self.kind:
            self.owner[x] = session
            self.kind[x] = "response" if self.is_response(x, session) else "prompt"
        else:
            gap = self.at(self.run.now) - self.at(self.asked[x][-1])
            self.gaps.setdefault(self.kind[x], []).append(math.log(max(gap, 1e-3)))
            if session != self.owner[x]:
                self.kind[x] = "shared"
        super().used(x)
        self.times[self.kind[x]] = self.times.get(self.kind[x], 0) + 1

    def is_response(self, x: Thing, session: int) -> bool:
        corpus = self.run.corpus
        earlier = [q for q in range(self.run.now) if corpus.session[q] == session]
        if not earlier:
            return False
        prompt, reply = (int(a[earlier[-1]]) for a in (corpus.input_tokens, corpus.output_tokens))
        return prompt <= self.run.depth[x[1]] * self.run.point.block_tokens < prompt + reply

    def created(self, x: Thing) -> None:
        if x in self.gone:
            self.gone.remove(x)
            self.again_kind.append(self.kind[x])
        self.used(x)

    def left(self, x: Thing, tier: str) -> None:
        if not self.run.here(x) and not self.run.pinned(x):
            self.gone.add(x)
            self.left_kind.append(self.kind[x])

    def score(self, queue: str, x: Thing) -> float:
        kind = self.kind[x]
        weight = (self.again_kind.count(kind) + 1) / (self.left_kind.count(kind) + 1)
        gaps, chance = self.gaps.get(kind, []), 1.0
        if len(gaps) > 1:
            age = math.log(max(self.at(self.run.now) - self.at(self.asked[x][-1]), 1e-3))
            normal = NormalDist(fmean(gaps), math.sqrt(max(pvariance(gaps), 1e-6)))
            share, longer = min(len(gaps) / self.times[kind], 1.0), 1.0 - normal.cdf(age)
            chance = share * longer / (1.0 - share + share * longer + 1e-300)
        half = self.parameters.get("half_chunks", 1024.0)
        return weight * chance * 2.0 ** (-self.run.depth[x[1]] / half)


PLAIN_SCORES = {
    "tenure": Tenure,
    "placement-study": PlacementStudy,
    "prefixshield": PrefixShield,
    "marconi": Marconi,
    "lpc": Lpc,
    "pred": Pred,
    "saecache": SaeCache,
}
