"""Controls for ``plain``, each from its paper's pseudo-code, on Python lists, oldest first."""

from __future__ import annotations

from tests.simulator.plain import DRAM, SSD, Plain, PlainPolicy, Thing

TIERS = (DRAM, SSD)


class OwnOrder(PlainPolicy):
    """A policy that finds victims by itself."""

    def victim(self, tier: str) -> Thing | None:
        raise NotImplementedError

    def choose(self) -> tuple[Thing | None, bool]:
        x = self.victim(DRAM)
        if x is None:
            return None, False
        return x, x in self.run.tier[SSD] or self.demote(x)

    def victim_ssd(self) -> Thing | None:
        return self.victim(SSD)

    def bytes_of(self, things: list[Thing]) -> int:
        return sum(self.run.size(x) for x in things)

    def oldest_of(self, things: list[Thing]) -> Thing | None:
        """The oldest that is not in use; those in use start again."""
        for _ in range(len(things)):
            if not self.run.pinned(things[0]):
                return things[0]
            things.append(things.pop(0))
        return None


class WithGhosts(OwnOrder):
    """An object that was a ghost when it was asked for is one no longer, before room is made."""

    def start(self, run: Plain) -> None:
        super().start(run)
        self.ghost: dict[str, list[Thing]] = {tier: [] for tier in TIERS}
        self.returning: dict[tuple[str, Thing], bool] = {}

    def coming(self, x: Thing, tier: str) -> None:
        self.returning[tier, x] = x in self.ghost[tier]
        if x in self.ghost[tier]:
            self.ghost[tier].remove(x)

    def created(self, x: Thing) -> None:
        self.coming(x, DRAM)

    def used(self, x: Thing) -> None:
        if x not in self.run.tier[DRAM] and self.run.point.on_ssd_hit != "stay":
            self.coming(x, DRAM)

    def demote(self, x: Thing) -> bool:
        self.coming(x, SSD)
        return True


class Sieve(OwnOrder):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.queue: dict[str, list[Thing]] = {tier: [] for tier in TIERS}
        self.seen: dict[str, set[Thing]] = {tier: set() for tier in TIERS}
        self.hand: dict[str, int] = dict.fromkeys(TIERS, 0)

    def used(self, x: Thing) -> None:
        for tier in TIERS:
            if x in self.queue[tier]:
                self.seen[tier].add(x)

    def entered(self, x: Thing, tier: str) -> None:
        if self.hand[tier] >= len(self.queue[tier]):
            self.hand[tier] = 0
        # A hand past the newest starts again at the oldest, even if one comes before it looks.
        self.queue[tier].append(x)

    def left(self, x: Thing, tier: str) -> None:
        at = self.queue[tier].index(x)
        self.queue[tier].pop(at)
        self.seen[tier].discard(x)
        if at < self.hand[tier]:
            self.hand[tier] -= 1

    def victim(self, tier: str) -> Thing | None:
        queue, at = self.queue[tier], self.hand[tier]
        for _ in range(2 * len(queue)):
            at %= len(queue)
            x = queue[at]
            if x not in self.seen[tier] and not self.run.pinned(x):
                self.hand[tier] = at
                return x
            self.seen[tier].discard(x)
            at += 1
        return None


class S3Fifo(WithGhosts):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.small: dict[str, list[Thing]] = {tier: [] for tier in TIERS}
        self.main: dict[str, list[Thing]] = {tier: [] for tier in TIERS}
        self.filling = dict.fromkeys(TIERS, True)
        self.uses: dict[tuple[str, Thing], int] = {}
        share = self.parameters.get("small", 0.1)
        self.limit = {tier: int(run.capacity[tier] * share) for tier in TIERS}

    def used(self, x: Thing) -> None:
        super().used(x)
        for tier in TIERS:
            if x in self.run.tier[tier]:
                self.uses[tier, x] = min(self.uses[tier, x] + 1, 3)

    def entered(self, x: Thing, tier: str) -> None:
        self.uses[tier, x] = 0
        full = self.bytes_of(self.small[tier]) >= self.limit[tier]
        large = self.run.size(x) > self.limit[tier]
        if self.returning[tier, x] or large or (full and self.filling[tier]):
            self.main[tier].append(x)
        else:
            self.small[tier].append(x)

    def left(self, x: Thing, tier: str) -> None:
        if x in self.main[tier]:
            self.main[tier].remove(x)
            return
        self.small[tier].remove(x)
        if not self.run.pinned(x):
            self.ghost[tier].append(x)
        while self.bytes_of(self.ghost[tier]) > self.run.capacity[tier] - self.limit[tier]:
            self.ghost[tier].pop(0)

    def from_main(self, tier: str) -> Thing | None:
        main = self.main[tier]
        for _ in range(4 * len(main)):
            x = main[0]
            if self.uses[tier, x] == 0 and not self.run.pinned(x):
                return x
            self.uses[tier, x] = max(self.uses[tier, x] - 1, 0)
            main.append(main.pop(0))
        return None

    def from_small(self, tier: str) -> Thing | None:
        small, main = self.small[tier], self.main[tier]
        for _ in range(len(small)):
            x = small[0]
            if self.run.pinned(x):
                small.append(small.pop(0))
            elif self.uses[tier, x] < self.parameters.get("uses", 2):
                return x
            else:
                main.append(small.pop(0))
                self.uses[tier, x] = 0
                full = self.bytes_of(main) > self.run.capacity[tier] - self.limit[tier]
                if full and (gone := self.from_main(tier)):
                    return gone
        return None

    def victim(self, tier: str) -> Thing | None:
        self.filling[tier] = False
        if self.bytes_of(self.small[tier]) >= self.limit[tier]:
            return self.from_small(tier) or self.from_main(tier)
        return self.from_main(tier) or self.from_small(tier)

    def demote(self, x: Thing) -> bool:
        kept = self.parameters.get("writes", "all") == "all" or x in self.main[DRAM]
        return kept and super().demote(x)


class TwoQ(WithGhosts):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.fifo: dict[str, list[Thing]] = {tier: [] for tier in TIERS}
        self.often: dict[str, list[Thing]] = {tier: [] for tier in TIERS}

    def used(self, x: Thing) -> None:
        super().used(x)
        for tier in TIERS:
            if x in self.often[tier]:
                self.often[tier].remove(x)
                self.often[tier].append(x)

    def entered(self, x: Thing, tier: str) -> None:
        if self.returning[tier, x]:
            self.often[tier].append(x)
        else:
            self.fifo[tier].append(x)

    def left(self, x: Thing, tier: str) -> None:
        if x in self.often[tier]:
            self.often[tier].remove(x)
            return
        self.fifo[tier].remove(x)
        if not self.run.pinned(x):
            self.ghost[tier].append(x)
        ghosts = int(self.run.capacity[tier] * self.parameters.get("ghosts", 0.5))
        while self.bytes_of(self.ghost[tier]) > ghosts:
            self.ghost[tier].pop(0)

    def victim(self, tier: str) -> Thing | None:
        share = int(self.run.capacity[tier] * self.parameters.get("first", 0.25))
        order = [self.often[tier], self.fifo[tier]]
        if self.bytes_of(self.fifo[tier]) > share:
            order.reverse()
        return self.oldest_of(order[0]) or self.oldest_of(order[1])


class Arc(OwnOrder):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.t1, self.t2, self.b1, self.b2 = (
            {tier: list[Thing]() for tier in TIERS} for _ in range(4)
        )
        self.p: dict[str, float] = dict.fromkeys(TIERS, 0.0)
        self.in_b2: dict[str, bool] = dict.fromkeys(TIERS, False)

    def coming(self, x: Thing, tier: str) -> None:
        b1, b2 = self.b1[tier], self.b2[tier]
        self.in_b2[tier] = x in b2
        size, c = self.run.size(x), self.run.capacity[tier]
        if x in b1:
            more = max(self.bytes_of(b2) / self.bytes_of(b1), 1.0)
            self.p[tier] = min(float(c), self.p[tier] + size * more)
        if x in b2:
            more = max(self.bytes_of(b1) / self.bytes_of(b2), 1.0)
            self.p[tier] = max(0.0, self.p[tier] - size * more)

    def created(self, x: Thing) -> None:
        self.coming(x, DRAM)

    def used(self, x: Thing) -> None:
        for tier in TIERS:
            for held in (self.t1[tier], self.t2[tier]):
                if x in held:
                    held.remove(x)
                    self.t2[tier].append(x)
                    break
        if x not in self.run.tier[DRAM] and self.run.point.on_ssd_hit != "stay":
            self.coming(x, DRAM)

    def entered(self, x: Thing, tier: str) -> None:
        t1, t2, b1, b2 = self.t1[tier], self.t2[tier], self.b1[tier], self.b2[tier]
        c = self.run.capacity[tier]
        if x in b1 or x in b2:
            (b1 if x in b1 else b2).remove(x)
            t2.append(x)
        else:
            t1.append(x)
        while b1 and self.bytes_of(t1 + b1) > c:
            b1.pop(0)
        while b2 and self.bytes_of(t1 + t2 + b1 + b2) > 2 * c:
            b2.pop(0)

    def left(self, x: Thing, tier: str) -> None:
        for held, ghosts in (
            (self.t1[tier], self.b1[tier]),
            (self.t2[tier], self.b2[tier]),
        ):
            if x in held:
                held.remove(x)
                if not self.run.pinned(x):
                    ghosts.append(x)
                return

    def victim(self, tier: str) -> Thing | None:
        t1, t2 = self.t1[tier], self.t2[tier]
        once, p = self.bytes_of(t1), self.p[tier]
        if once > p or (once == p and self.in_b2[tier]):
            return self.oldest_of(t1) or self.oldest_of(t2)
        return self.oldest_of(t2) or self.oldest_of(t1)

    def demote(self, x: Thing) -> bool:
        self.coming(x, SSD)
        return True


class WTinyLfu(OwnOrder):
    def start(self, run: Plain) -> None:
        super().start(run)
        self.window, self.waiting, self.protected = (
            {tier: list[Thing]() for tier in TIERS} for _ in range(3)
        )
        self.asked: dict[Thing, int] = {}
        self.since = 0
        chunk = run.size((0, 0))
        self.small = {
            t: max(int(run.capacity[t] * self.share("window", 0.01)), chunk) for t in TIERS
        }
        self.main = {t: max(run.capacity[t] - self.small[t], 0) for t in TIERS}
        places = sum(run.capacity[t] // chunk for t in TIERS)
        self.sample = self.parameters.get("sample", 10) * max(places, 1)

    def share(self, name: str, usual: float) -> float:
        return float(self.parameters.get(name, usual))

    def ask(self, x: Thing) -> None:
        self.asked[x] = min(self.asked.get(x, 0) + 1, 15)
        self.since += 1
        if self.since == self.sample:
            self.since = 0
            self.asked = {y: n // 2 for y, n in self.asked.items()}

    created = recomputed = ask

    def used(self, x: Thing) -> None:
        self.ask(x)
        for tier in TIERS:
            waiting, protected = self.waiting[tier], self.protected[tier]
            if x in self.window[tier]:
                self.window[tier].remove(x)
                self.window[tier].append(x)
            elif x in waiting or x in protected:
                (waiting if x in waiting else protected).remove(x)
                protected.append(x)
                most = int(self.main[tier] * self.share("protected", 0.8))
                while self.bytes_of(protected) > most:
                    waiting.append(protected.pop(0))

    def entered(self, x: Thing, tier: str) -> None:
        window, waiting = self.window[tier], self.waiting[tier]
        window.append(x)
        while self.bytes_of(window) > self.small[tier]:
            if self.bytes_of([*waiting, *self.protected[tier], window[0]]) > self.main[tier]:
                return
            waiting.append(window.pop(0))

    def left(self, x: Thing, tier: str) -> None:
        for held in (self.window[tier], self.waiting[tier], self.protected[tier]):
            if x in held:
                held.remove(x)

    def victim(self, tier: str) -> Thing | None:
        window, waiting = self.window[tier], self.waiting[tier]
        loser = self.oldest_of(waiting) or self.oldest_of(self.protected[tier])
        if loser and self.bytes_of(window) < self.small[tier]:
            return loser
        candidate = self.oldest_of(window)
        if not loser or not candidate:
            return loser or candidate
        if self.asked.get(candidate, 0) <= self.asked.get(loser, 0):
            return candidate
        window.remove(candidate)
        waiting.append(candidate)
        return loser


PLAIN_CONTROLS: dict[str, type[PlainPolicy]] = {
    "sieve": Sieve,
    "s3-fifo": S3Fifo,
    "two-q": TwoQ,
    "arc": Arc,
    "w-tinylfu": WTinyLfu,
}
