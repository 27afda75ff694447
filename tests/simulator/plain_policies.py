"""Policies for ``plain``, from their rules, without any of the engine's shortcuts."""

from __future__ import annotations

import math
from typing import Any

from tests.simulator.plain import DRAM, SSD, F, Plain, PlainPolicy, S, Thing


class WriteThrough(PlainPolicy):
    def write_now(self, x: Thing) -> bool:
        return True

    def demote(self, x: Thing) -> bool:
        return x not in self.run.tier[DRAM]


class TypeAware(PlainPolicy):
    def admit(self, x: Thing) -> str:
        return DRAM if x[0] == S else SSD

    def demote(self, x: Thing) -> bool:
        return False


class LruK(PlainPolicy):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.seen: dict[Thing, int] = {}
        self.k = self.parameters.get("k", 2)
        held = run.point.dram_bytes / run.point.chunk_bytes
        most = self.parameters.get("ghost", 10.0) * held
        self.places = int(min(most, 2 * run.corpus.nodes))
        self.made: dict[tuple[int, int], list[Thing]] = {}
        self.ghosts: dict[int, list[Thing]] = {F: [], S: []}

    def bump(self, x: Thing) -> None:
        self.seen[x] = self.seen.get(x, 0) + 1

    def used(self, x: Thing) -> None:
        if self.parameters.get("count") != "path":
            self.bump(x)
        elif x[0] == F:
            self.bump(x)
            if self.run.here((S, x[1])):
                self.bump((S, x[1]))

    def created(self, x: Thing) -> None:
        if self.places == 0:
            self.seen[x] = 0
        self.bump(x)
        session = int(self.run.corpus.session[self.run.now])
        self.made.setdefault((session, x[0]), []).append(x)

    def demote(self, x: Thing) -> bool:
        if self.parameters.get("gate") != "session":
            return self.seen[x] >= self.k
        session = int(self.run.corpus.session[self.run.stamp[x]])
        made = self.made.get((session, x[0]), [])
        return len(made) >= self.k and made[-self.k] in self.run.tier[DRAM]

    def left(self, x: Thing, tier: str) -> None:
        places = self.places
        if places == 0 or self.run.here(x):
            return
        line = self.ghosts[x[0]]
        line.append(x)
        if len(line) > places:
            gone = line[-places - 1]
            if gone not in line[-places:] and not self.run.here(gone):
                self.seen[gone] = 0


class Kvbm(PlainPolicy):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.counts: dict[Thing, int] = {}
        self.interval = self.parameters.get("interval_s", 600.0)
        self.next = self.interval

    def begin(self, r: int) -> None:
        while self.run.corpus.time_s[r] >= self.next:
            self.next += self.interval
            self.fall()
            while len(self.counts) > self.parameters.get("max_entries", 1_000_000):
                self.fall()

    def fall(self) -> None:
        self.counts = {x: c - 1 for x, c in self.counts.items() if c > 1}

    def offer(self, x: Thing) -> bool:
        self.counts[x] = 2 * self.counts[x] if x in self.counts else 1
        return self.counts[x] >= self.parameters.get("threshold", 2)

    def write_now(self, x: Thing) -> bool:
        return self.offer(x)

    def again(self, x: Thing) -> None:
        if x in self.run.tier[DRAM] and self.offer(x) and x not in self.run.tier[SSD]:
            self.run.copy_to_ssd(x)

    def recomputed(self, x: Thing) -> None:
        self.again(x)

    def used(self, x: Thing) -> None:
        if self.parameters.get("offer") == "hit":
            self.again(x)

    def demote(self, x: Thing) -> bool:
        return False


class Frozen(PlainPolicy):
    """Scores that hold for a request: computed when a queue is first asked, or on joining it."""

    def start(self, run: Plain) -> None:
        super().start(run)
        self.frozen: dict[tuple[str, Thing], float] = {}
        self.asked_queues: set[str] = set()

    def begin(self, r: int) -> None:
        self.frozen.clear()
        self.asked_queues.clear()

    def key(self, queue: str, x: Thing) -> float:
        if queue not in self.asked_queues:
            self.asked_queues.add(queue)
            self.catch_up()
        if (queue, x) not in self.frozen:
            self.frozen[queue, x] = self.score(queue, x)
        return self.frozen[queue, x]

    def catch_up(self) -> None:
        for queue in self.asked_queues:
            for x in self.run.tier[SSD if queue == "evict" else DRAM]:
                if (queue, x) not in self.frozen and self.run.may(queue, x):
                    self.frozen[queue, x] = self.score(queue, x)

    def entered(self, x: Thing, tier: str) -> None:
        self.catch_up()

    def left(self, x: Thing, tier: str) -> None:
        self.catch_up()

    def score(self, queue: str, x: Thing) -> float:
        raise NotImplementedError


class Idleness:
    """p(a) from all gaps so far, looked at one by one."""

    def __init__(self, sessions: Any) -> None:
        self.sessions = [int(x) for x in sessions]
        self.last: dict[int, int] = {}
        self.gaps: list[int] = []
        self.away: set[int] = set()
        self.cursor = 0

    def arrive(self, r: int) -> None:
        session = self.sessions[r]
        if session in self.last:
            self.gaps.append(r - self.last[session])
            self.away.discard(session)
        self.last[session] = r
        if self.gaps:
            buckets = sorted(int(math.log2(gap)) for gap in self.gaps)
            median = 2 ** buckets[(len(buckets) - 1) // 2]
            # Only moves on: who was taken to be away when the median was small stays away.
            while self.cursor < r - 20 * median:
                silent = self.sessions[self.cursor]
                if self.last[silent] == self.cursor:
                    self.away.add(silent)
                self.cursor += 1

    def share(self, wait: int) -> float:
        bucket = int(math.log2(max(wait, 1)))
        back = sum(1 for gap in self.gaps if int(math.log2(gap)) >= bucket)
        return (back + 1.0) / (back + len(self.away) + 1.0)


class Gandalf(Frozen):
    evict_any_tier = True

    def start(self, run: Plain) -> None:
        super().start(run)
        self.idle = Idleness(run.corpus.session)
        get = self.parameters.get
        self.alpha = get("alpha", 1.0)
        self.chunk_usd = (
            run.point.block_tokens / get("prefill_tokens_s", 60000.0) / 3600
            * get("gpu_usd_per_hour", 2.29)
        )  # fmt: skip
        self.tbw = get("tbw_bytes", 1825e12)
        self.byte_usd = get("ssd_usd", 1655.0) / self.tbw

    def begin(self, r: int) -> None:
        super().begin(r)
        self.idle.arrive(r)

    def wait(self, x: Thing) -> int:
        session = int(self.run.corpus.session[self.run.stamp[x]])
        return self.run.now - self.idle.last[session]

    def below(self, node: int) -> int:
        return sum(
            (1 if self.run.here((F, kid)) else 0) + self.below(kid)
            for kid in self.run.kids.get(node, ())
        )

    def loss(self, x: Thing) -> float:
        run = self.run
        if x[0] == F:
            leaf = not run.children(x[1], DRAM, SSD)
            chunks = 1 if leaf else 1 + self.below(x[1])
            return self.idle.share(self.wait(x)) * chunks * self.chunk_usd
        if x in run.used_since or x in run.old:
            return 0.0
        share = 1.0
        if self.parameters.get("state_hits") == "predicted":
            share = self.idle.share(self.wait(x))
        return share * run.behind(x) * self.chunk_usd

    def score(self, queue: str, x: Thing) -> float:
        wait = float(max(self.wait(x), 1))
        return -wait if queue.startswith("move") else self.loss(x) / (self.run.size(x) * wait)

    def charge(self, size: int) -> float:
        run = self.run
        free = run.capacity[SSD] - run.taken(SSD)
        if free >= size:
            return 0.0
        taken: list[Thing] = []
        while free < size:
            x = run.first("evict", taken)
            if x is None:
                return math.inf
            if self.parameters.get("charge") != "sum":
                return self.loss(x)
            taken.append(x)
            free += run.size(x)
        total = 0.0
        for x in taken:
            total += self.loss(x)
        return total

    def mu(self) -> float:
        days = self.parameters.get("target_days")
        elapsed = float(self.run.corpus.time_s[self.run.now])
        if not days or elapsed <= 0:
            return 1.0
        written = float(sum(self.run.count[k]["written"] * self.run.sizes[k] for k in (F, S)))
        return written * (days * 86400) / (self.tbw * elapsed)

    def advantage(self, x: Thing, dropped: Thing | None) -> float:
        size = self.run.size(x)
        wait = float(max(self.wait(x), 1))
        cost = self.alpha * (self.mu() * self.byte_usd * size + self.charge(size))
        gain = self.loss(x)
        if self.parameters.get("gate") == "cross" and dropped is not None:
            waited = float(self.run.size(dropped)) * max(self.wait(dropped), 1)
            if not self.loss(dropped) / waited > cost / (size * wait):
                return -1.0
        elif not gain > cost:
            return -1.0
        return gain / cost if cost > 0 else math.inf

    def choose(self) -> tuple[Thing | None, bool]:
        dropped = self.run.first("drop")
        best, most = None, -1.0
        for queue in ("move", "move_state"):
            tried: list[Thing] = []
            for _ in range(self.parameters.get("candidates", 1)):
                x = self.run.first(queue, tried)
                if x is None:
                    break
                tried.append(x)
                on_ssd = x in self.run.tier[SSD]
                value = math.inf if on_ssd else self.advantage(x, dropped)
                if value >= 0 and value > most:
                    best, most = x, value
        return (best, True) if best else (dropped, False)

    def demote(self, x: Thing) -> bool:
        return self.advantage(x, None) >= 0


class Future(Frozen):
    """What asks for an object from now on."""

    def asks(self, x: Thing) -> list[int]:
        run = self.run
        later = range(run.now + 1, run.corpus.requests)
        if x[0] == F:
            return [q for q in later if x[1] in run.paths[q]]
        return [q for q in later if run.wants[q] == x[1]]


class BeladyLeaf(Future):
    def following(self, x: Thing) -> float:
        asks = self.asks(x)
        return asks[0] if asks else math.inf

    def score(self, queue: str, x: Thing) -> float:
        return -self.following(x)

    def demote(self, x: Thing) -> bool:
        run = self.run
        if self.following(x) == math.inf:
            return False
        if run.taken(SSD) + run.size(x) <= run.capacity[SSD]:
            return True
        victim = run.first("evict")
        return victim is not None and self.following(x) < self.following(victim)


class OracleGreedy(Future):
    def worth(self, x: Thing) -> float:
        left = float(len(self.asks(x)))
        return left if x[0] == F else left * self.run.behind(x)

    def score(self, queue: str, x: Thing) -> float:
        return -self.worth(x) if queue.startswith("move") else self.worth(x)

    def gain(self, x: Thing) -> float:
        run = self.run
        value = self.worth(x) - self.parameters.get("hits_a_gb", 1330.0) / 1e9 * run.size(x)
        if value <= 0:
            return value
        free, total, taken = run.capacity[SSD] - run.taken(SSD), 0.0, []
        while free < run.size(x) and total <= value:
            victim = run.first("evict", taken)
            if victim is None:
                return -math.inf
            taken.append(victim)
            total += self.worth(victim)
            free += run.size(victim)
        return value - total

    def demote(self, x: Thing) -> bool:
        return self.gain(x) > 0

    def choose(self) -> tuple[Thing | None, bool]:
        best, most = None, 0.0
        for queue in ("move", "move_state"):
            x = self.run.first(queue)
            if x is None:
                continue
            if x in self.run.tier[SSD]:
                return x, True
            if x not in self.run.asked and self.gain(x) > most:
                best, most = x, self.gain(x)
        return (best, True) if best else (self.run.first("drop"), False)


PLAIN: dict[str, type[PlainPolicy]] = {
    "lru": PlainPolicy,
    "write-through": WriteThrough,
    "type-aware": TypeAware,
    "lru-k": LruK,
    "kvbm": Kvbm,
    "gandalf": Gandalf,
    "belady-leaf": BeladyLeaf,
    "oracle-greedy": OracleGreedy,
}
