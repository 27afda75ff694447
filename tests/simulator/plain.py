"""The simulator's rules once more, slowly, with sets and full scans: what the engine must equal.

Written from the specification, sharing nothing with the engine but the corpus and the point. An
object is (class, node). Policies are in ``plain_policies``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from harness.simulator.corpus import Corpus
from harness.simulator.point import Point

F, S = 0, 1
DRAM, SSD = "dram", "ssd"
Thing = tuple[int, int]


class Plain:
    """One run. ``policy`` has the hooks of ``PlainPolicy``."""

    def __init__(self, corpus: Corpus, point: Point, policy: Any) -> None:
        self.corpus, self.point, self.policy = corpus, point, policy
        self.parent = corpus.parent.tolist()
        self.depth = corpus.depth.tolist()
        self.kids: dict[int, list[int]] = {}
        for node, above in enumerate(self.parent):
            self.kids.setdefault(above, []).append(node)
        self.sizes = (point.chunk_bytes, point.state_bytes)
        self.capacity = {DRAM: point.dram_bytes, SSD: point.ssd_bytes}
        self.tier: dict[str, set[Thing]] = {DRAM: set(), SSD: set()}
        self.stamp: dict[Thing, int] = {}
        self.used_since: set[Thing] = set()
        self.hit_there: set[Thing] = set()
        self.ever: set[Thing] = set()
        self.asked: set[Thing] = set()
        self.old: set[Thing] = set()
        self.count: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self.rows: list[dict[str, int]] = []
        self.log: list[tuple[int, str, int, int]] = []
        self.now = -1
        self.paths = [self.path(r) for r in range(corpus.requests)]
        self.made = [self.checkpoints(r) for r in range(corpus.requests)]
        self.first_made: dict[int, int] = {}
        for r, nodes in enumerate(self.made):
            for node in nodes:
                self.first_made.setdefault(node, r)
        self.wants = [self.want(r) for r in range(corpus.requests)]
        policy.start(self)

    def path(self, r: int) -> list[int]:
        c = self.corpus
        nodes: list[int] = []
        for run in range(int(c.run_of[r]), int(c.run_of[r + 1])):
            first = int(c.run_node[run])
            nodes += range(first, first + int(c.run_length[run]))
        return nodes

    def checkpoints(self, r: int) -> list[int]:
        path, kind = self.paths[r], self.point.checkpoint
        if not path or not self.point.state_bytes:
            return []
        if kind == "end":
            return [path[-1]]
        if kind.startswith("every:"):
            return path[int(kind[6:]) - 1 :: int(kind[6:])]
        seen = {node for q in range(r) for node in self.paths[q]}
        if kind == "branch":
            shared = [node for node in path if node in seen]
            return [*shared[-1:], path[-1]] if shared and len(shared) < len(path) else [path[-1]]
        ends = {self.paths[q][-1] for q in range(r) if self.paths[q]} | {path[-1]}
        assert kind == "all-turns"
        return [node for node in path if node in ends]

    def want(self, r: int) -> int:
        there = [node for node in self.paths[r] if self.first_made.get(node, r) < r]
        return there[-1] if there else -1

    def size(self, x: Thing) -> int:
        return self.sizes[x[0]]

    def taken(self, tier: str) -> int:
        return sum(self.size(x) for x in self.tier[tier])

    def here(self, x: Thing) -> bool:
        return x in self.tier[DRAM] or x in self.tier[SSD]

    def pinned(self, x: Thing) -> bool:
        return self.stamp.get(x, -1) == self.now

    def lru(self, x: Thing) -> tuple[int, int, int]:
        """Oldest, deepest, state before chunk."""
        return self.stamp[x], -self.depth[x[1]], -x[0]

    def children(self, node: int, *tiers: str) -> bool:
        return any((F, kid) in self.tier[t] for kid in self.kids.get(node, ()) for t in tiers)

    def behind(self, x: Thing) -> int:
        """Chunks from the last resident state before a state, to it."""
        above = self.parent[x[1]]
        while above >= 0 and not (above in self.first_made and self.here((S, above))):
            above = self.parent[above]
        return self.depth[x[1]] - (self.depth[above] if above >= 0 else -1)

    # Candidates of the four queues.

    def may(self, queue: str, x: Thing) -> bool:
        kind, node = x
        if x not in self.tier[SSD if queue == "evict" else DRAM]:
            return False
        if queue.startswith("move"):
            if (queue == "move_state") != (kind == S):
                return False
            return kind == S or (F, self.parent[node]) not in self.tier[DRAM]
        if kind == S:
            return True
        if self.point.structure == "free":
            if self.policy.any_node:
                return True
            return not self.children(node, SSD if queue == "evict" else DRAM)
        if queue == "evict" and self.policy.evict_any_tier:
            return not self.children(node, SSD)
        return not self.children(node, DRAM, SSD)

    def first(self, queue: str, without: Any = ()) -> Thing | None:
        """What goes first of a queue."""
        tier = self.tier[SSD if queue == "evict" else DRAM]
        free = [x for x in tier if self.may(queue, x) and not self.pinned(x) and x not in without]
        return min(free, key=lambda x: self.rank(queue, x), default=None)

    def rank(self, queue: str, x: Thing) -> tuple[Any, ...]:
        return (self.policy.key(queue, x), self.lru(x))

    # Moving.

    def put(self, tier: str, x: Thing) -> None:
        self.tier[tier].add(x)
        self.policy.entered(x, tier)

    def take(self, tier: str, x: Thing) -> None:
        self.tier[tier].remove(x)
        if tier == SSD:
            self.log.append((self.now, "evict", *x))
        self.policy.left(x, tier)

    def write(self, x: Thing) -> bool:
        if self.size(x) > self.capacity[SSD]:
            return False
        while self.taken(SSD) + self.size(x) > self.capacity[SSD]:
            victim = self.policy.victim_ssd()
            if victim is None:
                return False
            self.count[victim[0]]["evicted"] += 1
            self.take(SSD, victim)
        count = self.count[x[0]]
        count["written"] += 1
        count["first_written"] += x not in self.ever
        count["used_before"] += x in self.used_since
        count["superseded"] += x in self.old
        later = range(self.now + 1, self.corpus.requests)
        if x[0] == F:
            count["never_again"] += not any(x[1] in self.paths[q] for q in later)
        else:
            count["never_again"] += not any(self.wants[q] == x[1] for q in later)
        self.ever.add(x)
        self.hit_there.discard(x)
        self.log.append((self.now, "write", *x))
        self.put(SSD, x)
        return True

    def copy_to_ssd(self, x: Thing) -> None:
        if self.write(x):
            self.count[x[0]]["copied"] += 1

    def make_room(self, size: int) -> bool:
        if size > self.capacity[DRAM]:
            return False
        while self.taken(DRAM) + size > self.capacity[DRAM]:
            x, write = self.policy.choose()
            if x is None:
                return False
            if x in self.tier[SSD]:
                self.count[x[0]]["released"] += 1
            elif write and self.write(x):
                self.count[x[0]]["moved"] += 1
            else:
                if self.point.structure == "leaf" and write:
                    x = self.first("drop")
                    if x is None:
                        return False
                self.count[x[0]]["released" if x in self.tier[SSD] else "dropped"] += 1
            self.take(DRAM, x)
        return True

    def default_choose(self) -> tuple[Thing | None, bool]:
        if self.point.structure == "free":
            x = self.first("drop")
            return x, x is not None and (x in self.tier[SSD] or self.policy.demote(x))
        movers = [x for q in ("move", "move_state") if (x := self.first(q)) is not None]
        m = min(movers, key=lambda x: self.rank("move_state" if x[0] else "move", x), default=None)
        if m is not None:
            if m in self.tier[SSD]:
                return m, True
            if m not in self.asked:
                if self.policy.demote(m):
                    return m, True
                self.asked.add(m)
        gone = self.first("drop")
        return (gone, False) if gone is not None else (m, m is not None)

    # One request.

    def play(self) -> Plain:
        for r in range(self.corpus.requests):
            self.serve(r)
        return self

    def serve(self, r: int) -> None:
        self.now = r
        point = self.point
        self.policy.begin(r)
        before = [c["written"] for c in self.count]
        path = self.paths[r]
        limit = len(path)
        if point.last_token:
            limit = max(int(self.corpus.input_tokens[r]) - 1, 0) // point.block_tokens
        length = 0
        while length < min(limit, len(path)) and self.here((F, path[length])):
            length += 1
        usable, state, state_from = length, None, 0
        if point.state_bytes:
            usable = length
            while usable and not self.here((S, path[usable - 1])):
                usable -= 1
            if usable:
                state = (S, path[usable - 1])
                state_from = 1 if state in self.tier[DRAM] else 2
        things = ([state] if state else []) + [(F, node) for node in path[:usable]]
        hit_ssd = 0
        for x in things:
            alone = x not in self.tier[DRAM]
            count = self.count[x[0]]
            count["hits_ssd" if alone else "hits_dram"] += 1
            hit_ssd += alone and x[0] == F
            if alone and x not in self.hit_there:
                self.hit_there.add(x)
                count["useful"] += 1
            self.used_since.add(x)
            self.asked.discard(x)
        for x in things:
            self.stamp[x] = r
        for x in things:
            self.policy.used(x)
        if point.on_ssd_hit != "stay":
            for x in things[1:] + things[:1] if state else things:
                if x not in self.tier[DRAM] and self.make_room(self.size(x)):
                    self.count[x[0]]["promoted"] += 1
                    self.count[x[0]]["dram_in"] += 1
                    self.put(DRAM, x)
                    if point.on_ssd_hit == "move":
                        self.count[x[0]]["invalidated"] += 1
                        self.take(SSD, x)
        made = [self.compute((F, node)) for node in path[usable:]]
        states = []
        for node in self.made[r]:
            if self.depth[node] >= usable:
                states.append(self.compute((S, node)))
                self.supersede(r, node)
        self.policy.finish(r)
        self.rows.append(
            {
                "hit": usable,
                "hit_ssd": hit_ssd,
                "stranded": length - usable,
                "state_from": state_from,
                "created": sum(made),
                "states_created": sum(states),
                "written_full": self.count[F]["written"] - before[F],
                "written_state": self.count[S]["written"] - before[S],
            }
        )

    def compute(self, x: Thing) -> bool:
        self.stamp[x] = self.now
        if self.here(x):
            self.asked.discard(x)
            self.policy.recomputed(x)
            return False
        for marks in (self.used_since, self.asked, self.old, self.hit_there):
            marks.discard(x)
        count = self.count[x[0]]
        count["created"] += 1
        self.policy.created(x)
        where = self.policy.admit(x)
        if self.point.structure == "leaf":
            above = (F, self.parent[x[1]]) if x[0] == F else (F, x[1])
            if above[1] >= 0 and not self.here(above):
                where = None
        if where == DRAM and self.make_room(self.size(x)):
            count["dram_in"] += 1
            self.put(DRAM, x)
            if self.policy.write_now(x):
                self.copy_to_ssd(x)
        elif (where == SSD or (where == DRAM and self.policy.demote(x))) and self.write(x):
            count["direct"] += 1
        else:
            count["refused"] += 1
        return True

    def supersede(self, r: int, node: int) -> None:
        above = self.parent[node]
        while above >= 0 and above not in self.first_made:
            above = self.parent[above]
        x = (S, above)
        owner = self.corpus.session[self.stamp[x]] if x in self.stamp else None
        if above >= 0 and owner == self.corpus.session[r]:
            self.old.add(x)

    def counters(self, kind: int) -> dict[str, int]:
        """As ``Traffic`` names them."""
        count = dict(self.count[kind])
        for tier in (DRAM, SSD):
            count[f"resident_{tier}"] = sum(1 for x in self.tier[tier] if x[0] == kind)
        return {name: value for name, value in count.items() if value}


class PlainPolicy:
    """Defaults of all hooks: LRU, written back."""

    any_node = False
    evict_any_tier = False

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters

    def start(self, run: Plain) -> None:
        self.run = run

    def begin(self, r: int) -> None: ...
    def used(self, x: Thing) -> None: ...
    def created(self, x: Thing) -> None: ...
    def recomputed(self, x: Thing) -> None: ...
    def entered(self, x: Thing, tier: str) -> None: ...
    def left(self, x: Thing, tier: str) -> None: ...
    def finish(self, r: int) -> None: ...

    def admit(self, x: Thing) -> str | None:
        return DRAM

    def write_now(self, x: Thing) -> bool:
        return False

    def key(self, queue: str, x: Thing) -> Any:
        return 0

    def choose(self) -> tuple[Thing | None, bool]:
        return self.run.default_choose()

    def demote(self, x: Thing) -> bool:
        return True

    def victim_ssd(self) -> Thing | None:
        return self.run.first("evict")
