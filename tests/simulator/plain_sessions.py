"""Policies that look at sessions and requests, for ``plain``."""

from __future__ import annotations

import math

from tests.simulator.plain import DRAM, SSD, F, Plain, PlainPolicy, S, Thing
from tests.simulator.plain_policies import Frozen


class RrEvict(PlainPolicy):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.order: list[int] = []
        self.owner: dict[Thing, int] = {}
        self.turn: dict[tuple[str, int], int] = {}
        self.given: dict[tuple[str, int], int] = {}
        self.at = {DRAM: (0, 0), SSD: (0, 0)}

    def begin(self, r: int) -> None:
        session = int(self.run.corpus.session[r])
        if session not in self.order:
            self.order.append(session)

    def created(self, x: Thing) -> None:
        self.owner.setdefault(x, int(self.run.corpus.session[self.run.now]))

    def standing(self, tier: str, session: int) -> tuple[int, int]:
        return self.turn.get((tier, session), 0), self.order.index(session)

    def entered(self, x: Thing, tier: str) -> None:
        who = tier, self.owner[x]
        turn, rank = self.standing(*who)
        if turn < self.at[tier][0]:
            self.turn[who] = self.at[tier][0] + (rank <= self.at[tier][1])
            self.given[who] = 0

    def left(self, x: Thing, tier: str) -> None:
        if self.run.pinned(x):
            return
        who = tier, self.owner[x]
        self.at[tier] = self.standing(*who)
        self.given[who] = self.given.get(who, 0) + self.run.size(x)
        if self.given[who] >= self.parameters.get("chunks", 16) * self.run.size((F, 0)):
            self.turn[who], self.given[who] = self.at[tier][0] + 1, 0

    def key(self, queue: str, x: Thing) -> tuple[int, int]:
        return self.standing(SSD if queue == "evict" else DRAM, self.owner[x])

    def demote(self, x: Thing) -> bool:
        return self.parameters.get("write", "all") == "all"


class Bidaw(Frozen):
    any_node = True

    def start(self, run: Plain) -> None:
        super().start(run)
        self.last: dict[int, int] = {}
        self.gaps: list[tuple[int, float]] = []

    def begin(self, r: int) -> None:
        super().begin(r)
        corpus = self.run.corpus
        session = int(corpus.session[r])
        if session in self.last:
            before = self.last[session]
            gap = float(corpus.time_s[r]) - float(corpus.time_s[before])
            self.gaps.append((self.bucket(before), gap))
        self.last[session] = r

    def bucket(self, r: int) -> int:
        return int(math.log2(max(int(self.run.corpus.output_tokens[r]), 1)))

    def average(self, gaps: list[float]) -> float:
        value = gaps[0]
        for gap in gaps[1:]:
            value += self.parameters.get("weight", 0.2) * (gap - value)
        return value

    def score(self, queue: str, x: Thing) -> float:
        last = self.last[int(self.run.corpus.session[self.run.stamp[x]])]
        like = [gap for bucket, gap in self.gaps if bucket == self.bucket(last)]
        all_gaps = like or [gap for _, gap in self.gaps] or [0.0]
        return -(float(self.run.corpus.time_s[last]) + self.average(all_gaps))


class WorkloadAware(Frozen):
    any_node = True

    def start(self, run: Plain) -> None:
        super().start(run)
        self.asked_at: dict[Thing, int] = {}
        self.events: list[tuple[Thing, int, int | None]] = []
        self.fitted: dict[int | None, tuple[float, float]] = {}

    def begin(self, r: int) -> None:
        super().begin(r)
        if r and r % self.parameters["refit"] == 0:
            for kind in {None, *(self.kind(at) for _, at, _ in self.events)}:
                asked = [1 for _, at, _ in self.events if kind in (None, self.kind(at))]
                gaps = [
                    float(self.run.corpus.time_s[at]) - float(self.run.corpus.time_s[before])
                    for _, at, before in self.events
                    if before is not None and kind in (None, self.kind(before))
                ]
                total = 0.0
                for gap in gaps:
                    total += gap
                self.fitted[kind] = len(gaps) / len(asked), len(gaps) / max(total, 1e-9)

    def kind(self, r: int) -> int:
        return min(int(self.run.corpus.turn[r]), 10)

    def used(self, x: Thing) -> None:
        self.events.append((x, self.run.now, self.asked_at.get(x)))
        self.asked_at[x] = self.run.now

    def created(self, x: Thing) -> None:
        self.used(x)

    def recomputed(self, x: Thing) -> None:
        self.used(x)

    def score(self, queue: str, x: Thing) -> float:
        if not self.fitted:
            stamp, deep, kind = self.run.lru(x)
            return stamp * 4194304.0 + 2.0 * deep + kind
        before = self.asked_at[x]
        share, rate = self.fitted.get(self.kind(before), self.fitted[None])
        times = self.run.corpus.time_s
        age = min(rate * (float(times[self.run.now]) - float(times[before])), 700.0)
        return share * (1.0 - math.exp(-1.0)) / ((1.0 - share) * math.exp(age) + share)


class FlatCake(PlainPolicy):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.askers: dict[Thing, set[int]] = {}
        self.last: dict[int, int] = {}
        self.reply: dict[int, int] = {}

    def session(self) -> int:
        return int(self.run.corpus.session[self.run.now])

    def begin(self, r: int) -> None:
        self.last[self.session()] = r

    def used(self, x: Thing) -> None:
        self.askers.setdefault(x, set()).add(self.session())

    def created(self, x: Thing) -> None:
        self.used(x)

    def recomputed(self, x: Thing) -> None:
        self.used(x)

    def admit(self, x: Thing) -> str | None:
        run, get = self.run, self.parameters.get
        if run.taken(DRAM) + run.size(x) > run.capacity[DRAM]:
            return SSD
        if x[0] == S and get("state") == "dram":
            return DRAM
        long_context = int(run.corpus.input_tokens[run.now]) > get("agent_tokens", 32768)
        reply = self.reply.get(self.session())
        if long_context or reply is None or reply > get("long_tokens", 1024):
            return SSD
        small = reply < get("short_tokens", 256)
        return DRAM if small or len(self.askers[x]) > 1 else SSD

    def key(self, queue: str, x: Thing) -> tuple[bool, int]:
        session = int(self.run.corpus.session[self.run.stamp[x]])
        return len(self.askers[x]) > 1, self.last[session]

    def choose(self) -> tuple[Thing | None, bool]:
        return self.run.first("drop"), False

    def demote(self, x: Thing) -> bool:
        return False

    def finish(self, r: int) -> None:
        run = self.run
        self.reply[self.session()] = int(run.corpus.output_tokens[r])
        high, low = self.parameters.get("high", 0.95), self.parameters.get("low", 0.9)
        for tier, queue in ((DRAM, "drop"), (SSD, "evict")):
            capacity = run.capacity[tier]
            if run.taken(tier) <= high * capacity:
                continue
            while run.taken(tier) > int(low * capacity) and (x := run.first(queue)):
                gone = "evicted" if tier == SSD else "dropped"
                run.count[x[0]]["released" if self.copied(x, tier) else gone] += 1
                run.take(tier, x)

    def copied(self, x: Thing, tier: str) -> bool:
        return tier == DRAM and x in self.run.tier[SSD]


PLAIN_SESSIONS: dict[str, type[PlainPolicy]] = {
    "rr-evict": RrEvict,
    "bidaw": Bidaw,
    "workload-aware": WorkloadAware,
    "flatcake": FlatCake,
}
