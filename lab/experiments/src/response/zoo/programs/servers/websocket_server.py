"""A server of web sockets that takes as long for an answer as its message says. Usage: websocket_server.py PORT"""

import asyncio
import sys

try:
    from websockets.asyncio.server import serve
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(69)


async def answer(connection):
    async for message in connection:
        service_ms, size = message.split(" ")[:2]
        await asyncio.sleep(float(service_ms) / 1e3)
        await connection.send("a" * int(size))


async def main():
    async with serve(answer, "0.0.0.0", int(sys.argv[1]), compression=None) as server:
        await server.serve_forever()


asyncio.run(main())
