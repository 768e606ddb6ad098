"""A program that uses the library and forks: the child keeps a copy of every descriptor, so that none of them ever
reads as closed when the program is killed. `host.py RUNG NOTE CMD…` writes the child's pid to NOTE, and waits.
"""

import os
import sys
import time

from quell.supervise import NULL, Zygote


def main() -> None:
    rung, note, *argv = sys.argv[1:]
    box = Zygote(rung).box()
    box.spawn(argv, stdin=NULL)
    child = os.fork()
    if child:
        with open(f"{note}.part", "w") as file:
            file.write(str(child))
        os.rename(file.name, note)
    time.sleep(1000)


if __name__ == "__main__":
    main()
