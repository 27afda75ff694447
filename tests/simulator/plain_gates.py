"""Counting and gating policies for ``plain``."""

from __future__ import annotations

import math
from statistics import fmean

from tests.simulator.plain import DRAM, SSD, F, Plain, PlainPolicy, Thing


class Counting(PlainPolicy):
    """How often each object was asked for, its making included."""

    def start(self, run: Plain) -> None:
        super().start(run)
        self.asked: dict[Thing, int] = {}

    def used(self, x: Thing) -> None:
        self.asked[x] = self.asked.get(x, 0) + 1

    def created(self, x: Thing) -> None:
        Counting.used(self, x)

    def recomputed(self, x: Thing) -> None:
        Counting.used(self, x)


class Lfu(Counting):
    def key(self, queue: str, x: Thing) -> float:
        return self.asked[x]


class Gdsf(Counting):
    any_node = True

    def start(self, run: Plain) -> None:
        super().start(run)
        self.age = {DRAM: 0.0, SSD: 0.0}
        self.value: dict[tuple[str, Thing], float] = {}

    def renew(self, x: Thing, tier: str) -> None:
        chunks = 1
        if x[0] != F and self.parameters.get("cost", "prefill") == "prefill":
            chunks = self.run.depth[x[1]] + 1
        worth = self.asked[x] * chunks * self.run.size((F, 0)) / self.run.size(x)
        self.value[tier, x] = self.age[tier] + worth

    def used(self, x: Thing) -> None:
        super().used(x)
        for tier in (DRAM, SSD):
            if x in self.run.tier[tier]:
                self.renew(x, tier)

    def recomputed(self, x: Thing) -> None:
        self.used(x)

    def entered(self, x: Thing, tier: str) -> None:
        self.renew(x, tier)

    def left(self, x: Thing, tier: str) -> None:
        if not self.run.pinned(x):
            self.age[tier] = max(self.age[tier], self.value[tier, x])

    def key(self, queue: str, x: Thing) -> float:
        return self.value[SSD if queue == "evict" else DRAM, x]


class RejectX(PlainPolicy):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.history: dict[Thing, int] = {}
        fit = self.parameters.get("factor", 1.0) * (run.capacity[SSD] // run.size((F, 0)))
        self.places = int(min(fit, 2 * run.corpus.nodes))
        self.order: list[Thing | None] = []

    def demote(self, x: Thing) -> bool:
        if self.history.get(x, 0) >= self.parameters.get("refusals", 1):
            if x in self.history:
                del self.history[x]
                self.order[self.order.index(x)] = None  # its place stays taken
            return True
        if not self.places:
            return False
        if x not in self.history:
            self.order.append(x)
            if len(self.order) > self.places:
                gone = self.order.pop(0)
                if gone is not None:
                    del self.history[gone]
        self.history[x] = self.history.get(x, 0) + 1
        return False


class WriteBudget(Counting):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.threshold = 2.0**-20
        self.window = self.parameters.get("window_s", 60.0)
        self.ends, self.before = self.window, 0.0

    def begin(self, r: int) -> None:
        budget = self.parameters["bytes_s"] * self.window
        while self.run.corpus.time_s[r] >= self.ends:
            total = float(sum(self.run.count[k]["written"] * self.run.size((k, 0)) for k in (0, 1)))
            over = (total - self.before) / budget - 1.0
            step = max(-2.0, min(2.0, self.parameters.get("gain", 0.5) * over))
            self.threshold = max(2.0**-20, min(1e12, self.threshold * math.exp(step)))
            self.before, self.ends = total, self.ends + self.window

    def demote(self, x: Thing) -> bool:
        saves = 1 if x[0] == F else self.run.behind(x)
        worth = float(self.asked[x] * saves * self.run.size((F, 0))) / self.run.size(x)
        return worth >= self.threshold


class Flashield(Counting):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.hits: dict[Thing, int] = {}
        self.open: list[tuple[Thing, int, int, float]] = []
        self.judged: list[tuple[int, bool]] = []
        self.cut = 0
        self.next = 2 * self.parameters["horizon_s"]

    def used(self, x: Thing) -> None:
        super().used(x)
        self.hits[x] += 1

    def created(self, x: Thing) -> None:
        super().created(x)
        self.hits[x] = 0

    def begin(self, r: int) -> None:
        now, horizon = float(self.run.corpus.time_s[r]), self.parameters["horizon_s"]
        while self.open and self.open[0][3] + horizon <= now:
            x, hits, asked, _ = self.open.pop(0)
            self.judged.append((hits, self.asked[x] - asked > self.parameters.get("n", 0)))
        if now >= self.next:
            cuts = range(33)
            self.cut = min(cuts, key=lambda c: sum((h >= c) != good for h, good in self.judged))
            self.judged = []
            while self.next <= now:
                self.next += horizon

    def demote(self, x: Thing) -> bool:
        hits = min(self.hits[x], 31)
        if x not in (example[0] for example in self.open):
            now = float(self.run.corpus.time_s[self.run.now])
            self.open.append((x, hits, self.asked[x], now))
        return hits >= self.cut


class BaleenMl(Counting):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.hits: dict[Thing, int] = {}
        self.open: list[tuple[Thing, list[float], int, float]] = []
        self.model = [0.0] * 7
        self.models: list[list[float]] = []
        self.last: dict[int, float] = {}
        self.ends = self.at(0) + self.parameters["train_s"]

    def at(self, r: int) -> float:
        return float(self.run.corpus.time_s[r])

    def used(self, x: Thing) -> None:
        super().used(x)
        self.hits[x] += 1

    def created(self, x: Thing) -> None:
        super().created(x)
        self.hits[x] = 0

    def begin(self, r: int) -> None:
        self.last[int(self.run.corpus.session[r])] = self.at(r)
        horizon = self.parameters["horizon_s"]
        while self.open and self.open[0][3] + horizon <= self.at(r):
            if self.open[0][3] + horizon >= self.ends:
                break
            x, row, asked, _ = self.open.pop(0)
            off = float(self.asked[x] > asked) - 1.0 / (
                1.0 + math.exp(-self.score(self.model, row))
            )
            rate = self.parameters.get("rate", 0.1)
            self.model = [w + rate * off * v for w, v in zip(self.model, row, strict=True)]
            self.models.append(self.model)

    def score(self, model: list[float], row: list[float]) -> float:
        total = 0.0
        for weight, value in zip(model, row, strict=True):
            total += weight * value
        return total

    def row(self, x: Thing) -> list[float]:
        corpus, touched = self.run.corpus, self.run.stamp[x]
        idle = self.at(self.run.now) - self.last[int(corpus.session[touched])]
        size, hits = self.run.size(x), self.hits[x]
        numbers = [int(corpus.turn[touched]), self.run.depth[x[1]], size, idle, hits]
        turn, depth, size_, idle_, hits_ = (
            math.log(1.0 + n) / math.log(2.0) / 4.0 for n in numbers
        )
        return [1.0, turn, depth, size_ / 4.0, float(x[0]), idle_, hits_]

    def demote(self, x: Thing) -> bool:
        now = self.at(self.run.now)
        if now >= self.ends:
            cut = self.parameters.get("threshold", 0.5)
            average = [fmean(w) for w in zip(*self.models, strict=True)] or [0.0] * 7
            return self.score(average, self.row(x)) >= math.log(cut / (1.0 - cut))
        if x not in [example[0] for example in self.open]:
            self.open.append((x, self.row(x), self.asked[x], now))
        return True


PLAIN_GATES: dict[str, type[PlainPolicy]] = {
    "lfu": Lfu,
    "gdsf": Gdsf,
    "rejectx": RejectX,
    "write-budget": WriteBudget,
    "flashield": Flashield,
    "baleen-ml": BaleenMl,
}
