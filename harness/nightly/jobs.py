"""A job on a host: it runs in a session of its own there, whether anybody listens or not.

Its folder on the host holds ``job.sh`` (what runs), ``stderr`` (what it says), ``job`` (its
process), ``boot`` (the boot that it began in), ``results/``, and at the end ``code``. A connection
that breaks is made anew and goes on reading where it was; a limit of time ends the job also where
nobody comes back. ``stderr`` and ``code`` have their space reserved, so that a job that fills the
disk can still say so.
"""

from __future__ import annotations

import hashlib
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO

from harness.core.errors import MachineError, MeasurementError
from harness.nightly.kinds import CAPTURED
from harness.nightly.remote import Remote, last_line

LOCKED = 75
TIMED_OUT = (124, 137)
_GRACE_S = 120.0
_RETRY_S = 2.0
_SAID_BYTES = 1 << 16

_PREPARE = """
export LC_ALL=C
mkdir -p "$1/results" && cat /proc/sys/kernel/random/boot_id > "$1/boot" || exit
[ -s "$1/boot" ] || { echo "No space left on device" >&2; exit 1; }
for reserved in stderr=262144 job=4096 code.new=4096; do
  file=$1/${reserved%=*}
  : > "$file" || exit
  said=$(fallocate --keep-size -l "${reserved#*=}" "$file" 2>&1) || case $said in
    *"No space"*) echo "$said" >&2; exit 1;;
  esac
done
"""
# The lock is a folder: root may not open another user's file in /run/lock to lock it.
_SUPERVISE = """
mkdir -m 755 "$2" 2>/dev/null
exec </dev/null >/dev/null 2>>"$1/stderr"
flock --no-fork -n -E 75 "$2" timeout -k 30 "$3" sh "$1/job.sh" &
echo $! >> "$1/job"
wait $!
echo $? >> "$1/code.new"
mv "$1/code.new" "$1/code"
"""
_STATE = """
cd "$1" && cat /proc/sys/kernel/random/boot_id boot || exit
n=0
while [ ! -s code ] && [ $n -lt 50 ]; do
  if [ -s job ] && kill -0 "$(cat job)" 2>/dev/null; then echo running; exit; fi
  sleep 0.1; n=$((n + 1))
done
if [ -s code ]; then cat code; else echo gone; fi
"""
_REST = 'exec tail -c "+$2" "$1/stderr"'
_FOLLOW = 'exec tail -c "+$2" -f --pid="$(cat "$1/job")" "$1/stderr"'
_END = """
[ -s "$1/code" ] && exit
[ "$(cat /proc/sys/kernel/random/boot_id)" = "$(cat "$1/boot")" ] || exit
kill -TERM "$(cat "$1/job")"
n=0; while [ ! -s "$1/code" ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n + 1)); done
"""


def script(steps: list[list[str]], results: str) -> str:
    """``job.sh``: the steps one after another, until one fails."""
    lines = ["set -e"]
    for words in steps:
        if CAPTURED in words:
            lines.append(f"trace=$(ls -d {shlex.quote(results)}/*-capture-*/trace.parquet)")
        lines.append(" ".join('"$trace"' if w == CAPTURED else shlex.quote(w) for w in words))
    return "\n".join(lines) + "\n"


@dataclass
class Job:
    """A job in ``folder`` of a host, of at most ``limit_s`` seconds.

    ``patience_s`` is how long a host may be out of reach before it is given up.
    """

    folder: str
    limit_s: float
    patience_s: float
    said: bytearray = field(default_factory=bytearray)
    _heard: int = 0

    @property
    def results(self) -> str:
        """Where its run folders go, on the host."""
        return f"{self.folder}/results"

    def start(self, remote: Remote, steps: list[list[str]], lock: str) -> None:
        """Begin. Two jobs with the same ``lock`` never run at once on a host."""
        digest = hashlib.sha256(lock.encode()).hexdigest()[:16]
        remote.must(_sh(_PREPARE, self.folder), "no job can begin there", sudo=False)
        remote.send(script(steps, self.results).encode(), f"{self.folder}/job.sh")
        place, limit = f"/run/lock/kvflash-{digest}", f"{max(1.0, self.limit_s):.1f}"
        supervise = _sh(_SUPERVISE, self.folder, place, limit)
        detached = 'exec "$@" </dev/null >/dev/null 2>&1'
        begin = ["sh", "-c", detached, "sh", "setsid", "--fork", *supervise]
        remote.must(begin, "no job can begin there")

    def follow(
        self,
        connected: Callable[[], Remote],
        log: IO[bytes],
        heard: Callable[[bytes], None],
        watch: Callable[[Remote], None],
    ) -> int:
        """Listen until the job has ended; its exit code (``LOCKED``, ``TIMED_OUT``).

        ``watch`` is called at least once a second and may raise. MeasurementError where the host
        rebooted meanwhile, is out of reach for too long, or killed the job.
        """
        deadline = time.monotonic() + self.limit_s + _GRACE_S
        lost_at: float | None = None
        while True:
            try:
                remote = connected()
                lost_at = None
                state = self._state(remote)
                if state != "running":
                    rest = _sh(_REST, self.folder, str(self._heard + 1))
                    self._hear(remote.run(rest).stdout, log, heard)
                    return self._code(state)
                for piece in remote.stream(_sh(_FOLLOW, self.folder, str(self._heard + 1))):
                    self._hear(piece, log, heard)
                    watch(remote)
                    if time.monotonic() > deadline:
                        raise MeasurementError("it does not end, long past its time")
            except MachineError as error:  # all others are the job's own
                lost_at = lost_at or time.monotonic()
                away_s = time.monotonic() - lost_at
                if away_s > self.patience_s or time.monotonic() > deadline:
                    raise MeasurementError(
                        f"the host was out of reach for {away_s:.0f} s ({error}); "
                        f"what the job leaves is in {self.folder} there"
                    ) from error
                time.sleep(_RETRY_S)

    def end(self, remote: Remote) -> None:
        """Ask the job to end, and give it five seconds."""
        remote.run(_sh(_END, self.folder))

    def last_words(self) -> str:
        """What it said last."""
        return last_line(self.said.decode("utf-8", "replace"))

    def _state(self, remote: Remote) -> str:
        """``running``, ``gone``, or its exit code."""
        ended = remote.run(_sh(_STATE, self.folder))
        if ended.code != 0:
            raise MeasurementError(f"its folder is gone there: {last_line(ended.stderr)}")
        lines = ended.stdout.decode().split()
        if lines[0] != lines[1]:
            raise MeasurementError("the host rebooted in the middle of it")
        return lines[2]

    def _code(self, state: str) -> int:
        if state == "gone":
            raise MeasurementError("it was killed there, with everything around it")
        return int(state)

    def _hear(self, piece: bytes, log: IO[bytes], heard: Callable[[bytes], None]) -> None:
        if not piece:
            return
        self._heard += len(piece)
        self.said += piece
        del self.said[:-_SAID_BYTES]
        log.write(piece)
        log.flush()
        heard(piece)


def _sh(text: str, *words: str) -> list[str]:
    return ["sh", "-c", text, "sh", *words]
