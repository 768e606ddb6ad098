"""A program that appends to a log without end, and prints what it gives away and what it was told is on disk.

`shown N` is a part of a stream, seen at once; `told N` is on disk, everything up to it. Lines go out unbuffered.
"""

import asyncio
import os
import random
import sys

from quell.ports import Row
from quell.stores.sqlite import SqliteStore


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def main(path: str, seed: int, count: int) -> None:
    chance = random.Random(seed)
    store = SqliteStore(path)
    seq = await store.open(lambda word: say(f"told {word}"))
    say(f"open {seq}")
    for _ in range(count):
        for _ in range(chance.randrange(1, 6)):
            seq += 1
            durable = chance.random() < 0.5
            store.append(Row(seq, 0.0, "message.user", f"s{seq % 7}", b"x" * chance.randrange(1, 2000)), durable)
            if not durable:
                say(f"shown {seq}")
        await asyncio.sleep(chance.choice((0, 0, 0.0003)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
