"""A server of lines, which answers some, and also speaks unasked: see talk_client.py. Usage: talk_server.py PORT"""

import asyncio
import random
import sys


async def push(writer, mean_s, is_steady):
    while not writer.is_closing():
        await asyncio.sleep(mean_s if is_steady else random.expovariate(1 / mean_s))
        writer.write(b"push " + b"p" * 40 + b"\n")


async def serve(reader, writer):
    pushes = None
    try:
        while line := await reader.readline():
            word, *rest = line.decode().split()
            if word == "push":
                pushes = asyncio.create_task(push(writer, float(rest[0]) / 1e3, rest[1] == "1"))
            elif word == "ask":
                await asyncio.sleep(float(rest[0]) / 1e3)
                writer.write(b"answer " + b"a" * int(rest[1]) + b"\n")
    except ConnectionError:
        pass
    finally:
        if pushes:
            pushes.cancel()
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", int(sys.argv[1]), limit=1 << 20)
    await server.serve_forever()


asyncio.run(main())
