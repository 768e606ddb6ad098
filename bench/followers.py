"""`python -m bench.followers PORT TOKEN CLIENTS STALLED EACH ID…`: they follow; a line asks how much they have read."""

import selectors
import socket
import sys

STDIN = "stdin"


def main() -> None:
    port, token, *numbers = sys.argv[1:6]
    clients, stalled, each = map(int, numbers)
    ids, heard = sys.argv[6:], 0
    ready = selectors.DefaultSelector()
    ready.register(sys.stdin, selectors.EVENT_READ, STDIN)
    kept = []
    for number in range(clients):
        mine = [ids[(number * each + more) % len(ids)] for more in range(each)]
        query = "&".join(f"session={one}" for one in mine)
        head = [f"GET /api/v1/events?{query} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}"]
        sock = socket.create_connection(("127.0.0.1", int(port)))
        sock.sendall("\r\n".join([*head, "", ""]).encode())
        kept.append(sock)
        if number >= stalled:
            ready.register(sock, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.data == STDIN:
                if not sys.stdin.readline():
                    return
                print(heard, flush=True)
            elif data := key.fileobj.recv(1 << 16):  # type: ignore[union-attr]  # only sockets are left
                heard += len(data)
            else:
                ready.unregister(key.fileobj)


if __name__ == "__main__":
    main()
