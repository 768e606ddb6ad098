"""`python -m bench.crowd_server FOLDER`: a server with a model that goes on and on, as `quell serve` starts one."""

import asyncio
import sys

from bench.rows.kernel import AGENTS, GRACE, Chatty
from quell import Runtime, Settings
from quell.surfaces.http.front import Front
from quell.surfaces.http.keys import Keys
from quell.surfaces.http.sockets import LOOPBACK, hosts_of, listen_tcp, listen_unix, url_of


async def serve(folder: str) -> None:
    down = asyncio.Event()
    loop = asyncio.get_running_loop()
    tcp = listen_tcp(LOOPBACK, 0)
    port = tcp.getsockname()[1]
    async with Runtime(state_dir=folder, agents=AGENTS, plugins=[Chatty()], settings=Settings(term=GRACE)) as rt:
        front = Front(
            rt,
            tcp=tcp,
            unix=listen_unix(folder),
            keys=Keys.of(folder),
            hosts=hosts_of(LOOPBACK, port),
            url=url_of(LOOPBACK, port),
            down=lambda _: loop.call_soon_threadsafe(down.set),
        )
        await front.start()
        print(port, flush=True)
        await down.wait()
        front.finish("the bench is over")
        await rt.close(force=True)
        await front.stop()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
