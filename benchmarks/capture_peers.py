"""Other ways to trace, for ``benchmarks/capture.py``; runs under the system's Python with bcc.

    capture_peers.py count|callback MAJOR:MINOR

Prints "ready", then after a line on standard input the number of events that it saw.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ebpf"))

import headers

# As little as a probe on the same two tracepoints can do.
_COUNT = """
BPF_PERCPU_ARRAY(seen, u64, 1);
static int one_more(void) {
    u32 slot = 0;
    u64 *value = seen.lookup(&slot);
    if (value)
        *value += 1;
    return 0;
}
RAW_TRACEPOINT_PROBE(block_rq_issue) { return one_more(); }
RAW_TRACEPOINT_PROBE(block_rq_complete) { return one_more(); }
"""

# The usual bcc tool: tracepoint arguments into a ring buffer, a Python callback for each.
_CALLBACK = """
struct event { u64 ts, sector; u32 dev, sectors; };
BPF_RINGBUF_OUTPUT(ring, 8192);
static int emit(u32 dev, u64 sector, u32 sectors) {
    if (dev != DEVICE)
        return 0;
    struct event *event = ring.ringbuf_reserve(sizeof(struct event));
    if (!event)
        return 0;
    event->ts = bpf_ktime_get_ns();
    event->sector = sector;
    event->dev = dev;
    event->sectors = sectors;
    ring.ringbuf_submit(event, 0);
    return 0;
}
TRACEPOINT_PROBE(block, block_rq_issue) { return emit(args->dev, args->sector, args->nr_sector); }
TRACEPOINT_PROBE(block, block_rq_complete) {
    return emit(args->dev, args->sector, args->nr_sector);
}
"""


def main() -> None:
    """Trace until a line arrives on standard input."""
    kind, numbers = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="kvflash-headers-") as folder:
        tree = headers.find_headers(folder)
        if tree:
            os.environ["BCC_KERNEL_SOURCE"] = tree
        _trace(kind, numbers)


def _trace(kind: str, numbers: str) -> None:
    from bcc import BPF

    if kind == "count":
        bpf = BPF(text=_COUNT)
        print("ready", flush=True)
        sys.stdin.readline()
        table = bpf["seen"]
        print(sum(table[table.Key(0)]))
        return
    major, minor = numbers.split(":")
    bpf = BPF(text=_CALLBACK.replace("DEVICE", str(int(major) << 20 | int(minor))))
    seen, stop = [0], threading.Event()

    def callback(context: object, data: object, size: int) -> None:
        bpf["ring"].event(data)
        seen[0] += 1

    bpf["ring"].open_ring_buffer(callback)
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    print("ready", flush=True)
    while not stop.is_set():
        bpf.ring_buffer_poll(100)
    bpf.ring_buffer_consume()
    print(seen[0])


if __name__ == "__main__":
    main()
