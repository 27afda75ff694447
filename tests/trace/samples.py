"""A few hand-written lines of every text format, with the requests they say.

Written from the formats' published layouts; nothing here comes from a data set.
"""

from __future__ import annotations

from dataclasses import dataclass

R, W, D, F, Z, N = range(6)
MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """``rows`` are (ts_ns, op, lba, bytes, latency_ns or None, dev) in issue order."""

    format: str
    text: str
    rows: tuple[tuple[int, int, int, int, int | None, int], ...]


SAMPLES = [
    Sample(
        "csv",
        "timestamp,operation,LBA,size,pages\n"
        "0.000000000,W,8,4096,1\n0.000001500,R,16,8192,2\n2.5,D,0,1048576,256\n",
        (
            (0, W, 8, 4096, None, 0),
            (1500, R, 16, 8192, None, 0),
            (2_500_000_000, D, 0, MIB, None, 0),
        ),
    ),
    Sample(
        "csv",
        "100,R,8,4096,1\n250,W,1,4096,2\n",
        ((0, R, 8, 4096, None, 0), (150, W, 1, 4096, None, 0)),
    ),
    Sample(
        "oplist",
        "offset,length,op\n7,0,SNAP\n0,16384,W\n4096,4096,R\n8192,512,D\n",
        ((0, W, 0, 16384, None, 0), (1, R, 8, 4096, None, 0), (2, D, 16, 512, None, 0)),
    ),
    Sample(
        "fio",
        "fio version 3 iolog\n1000 /dev/x add\n1000 /dev/x open\n1000 /dev/x write 4096 8192\n"
        "1250 /dev/x read 0 512\n1300 /dev/x trim 1048576 4096\n2000 /dev/x datasync 0 0\n"
        "2000 /dev/x close\n",
        (
            (0, W, 8, 8192, None, 0),
            (250_000, R, 0, 512, None, 0),
            (300_000, D, 2048, 4096, None, 0),
            (1_000_000, F, 0, 0, None, 0),
        ),
    ),
    Sample(
        "fio",
        "fio version 2 iolog\na add\nb add\na open\nb open\na write 0 4096\na wait 15 0\n"
        "b read 512 512\na wait 40 0\na sync 0 0\na close\n",
        (
            (0, W, 0, 4096, None, 0),
            (15_000_000, R, 1, 512, None, 1),
            (40_000_000, F, 0, 0, None, 0),
        ),
    ),
    Sample(
        "bpftrace",
        "Attaching 2 probes...\nts_ns,event,rwbs,sector,bytes\n"
        "1000,I,WS,8,4096\n1300,C,R,64,512\n1100,I,R,64,512\n"
        "1900,C,WS,8,4096\n2000,I,FF,0,0\n2600,C,FF,18446744073709551615,0\n2700,I,RAM,8,4096\n",
        (
            (0, W, 8, 4096, 900, 0),
            (100, R, 64, 512, 200, 0),
            (1000, F, 0, 0, 600, 0),
            (1700, R, 8, 4096, None, 0),
        ),
    ),
    Sample(
        "cheops",
        "Attaching 1 probe...\n5000, RA, 131072, 2048, 256\n5100, W, 4096, 8, 8\n",
        ((0, R, 2048, 131072, None, 0), (100, W, 8, 4096, None, 0)),
    ),
    Sample(
        "msr",
        "128166372003061629,hm,1,Read,383496192,32768,413\n"
        "128166372003061639,hm,1,Write,512,512,1000\n",
        ((0, R, 749016, 32768, 41300, 1), (1000, W, 1, 512, 100_000, 1)),
    ),
    Sample(
        "alibaba",
        "device_id,opcode,offset,length,timestamp\n0,R,126703661056,4096,1577808000000046\n"
        "3,W,4096,8192,1577808000000050\n",
        ((0, R, 247468088, 4096, None, 0), (4000, W, 8, 8192, None, 3)),
    ),
    Sample(
        "tencent",
        "1538323200,12910952,128,0,1063\n1538323201,8,8,1,1283\n",
        ((0, R, 12910952, 65536, None, 1063), (10**9, W, 8, 4096, None, 1283)),
    ),
    Sample(
        "k5cloud",
        "ID,Timestamp,Type,Offset,Length\n5,0.25,W,4096,4096\n9,0.250001,R,0,512\n",
        ((0, W, 8, 4096, None, 5), (1000, R, 0, 512, None, 9)),
    ),
    Sample(
        "fiu",
        "89966 1234 kjournald 508 8 W 6 0 0123456789abcdef0123456789abcdef\n"
        "89999 77 sh 64 16 R 6 0 fedcba9876543210fedcba9876543210\n",
        ((0, W, 508, 4096, None, 6 << 20), (33, R, 64, 8192, None, 6 << 20)),
    ),
    Sample(
        "mqsim",
        "938513000 4 264719034 16 0\n938828000 3 197570570 16 1\n",
        ((0, W, 264719034, 8192, None, 4), (315_000, R, 197570570, 8192, None, 3)),
    ),
    Sample(
        "cloudphysics",
        "version,time,op,size,lbn\n1,5633898,2a,512,42932\n1,5633899,28,4096,8\n"
        "1,5633901,35,0,0\n1,5633901,12,36,0\n",
        (
            (0, W, 42932, 512, None, 0),
            (10**9, R, 8, 4096, None, 0),
            (3 * 10**9, F, 0, 0, None, 0),
            (3 * 10**9, N, 0, 36, None, 0),
        ),
    ),
    Sample(
        "blkparse",
        "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n"
        "  8,0    3        2     0.000001829   697  P   N [kjournald]\n"
        "  8,0    3        3     0.000002197   697  D   W 223490 + 8 [kjournald]\n"
        "  8,0    1        4     0.000003000   700  D  FN [fio]\n"
        "  8,0    1        5     0.000004000   700  D  RA 0 + 16 [my proc]\n"
        "  8,0    3        6     0.000008899     0  C   W 223490 + 8 [0]\n"
        "  8,0    3        7     0.000009000     0  C  FN 0 [0]\n"
        "  8,0    0        8     0.000009100     0  m   N cfq workload slice:100\n"
        "  8,0    3        9     0.000009500     0  C   R 0 + 16 [65531]\n"
        "CPU0 (sda):\n Reads Queued:           0,        0KiB\n\nTotal (sda):\n 1 2 3\n",
        (
            (0, W, 223490, 4096, 6702, 8 << 20),
            (803, F, 0, 0, 6000, 8 << 20),
            (1803, R, 0, 8192, 5500, 8 << 20),
        ),
    ),
    Sample(
        "ftrace",
        "# tracer: nop\n#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
        "     fio-16284   [001] .....  2098.217251: block_rq_issue: 7,0 R 16384 () 3936 + 32 "
        "be,0,4 [fio]\n"
        "     fio-16284   [001] .....  2098.217260: block_rq_insert: 7,0 R 16384 () 9 + 32 [fio]\n"
        "  ksoftirqd/1-22      [001] ..s..  2098.217296: block_rq_complete: 7,0 R () 3936 + 32 "
        "be,0,4 [0]\n"
        "  kworker/1:1H-44      [001] .....  2098.218000: block_rq_issue: 7,0 DS 1048576 () 0 "
        "+ 2048 none,0,0 [kworker/1:1H]\n",
        ((0, R, 3936, 16384, 45_000, 7 << 20), (749_000, D, 0, MIB, None, 7 << 20)),
    ),
    Sample(
        "ftrace",
        " kworker/1:1H-kb    44 [001]  2097.667738:    block:block_rq_issue: 254,0 WS 4096 () "
        "8 + 8 0x2,0,4 [kworker/1:1H]\n"
        " qemu-system-x86 15396 [001]  2097.667750123: block:block_rq_complete: 254,0 WS () 8 + 8 "
        "0x2,0,4 [-5]\n",
        ((0, W, 8, 4096, 12_123, 254 << 20),),
    ),
]
