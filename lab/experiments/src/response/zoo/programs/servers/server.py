"""A server of HTTP/1.1 on asyncio that takes as long for an answer as its request says. Usage: server.py PORT [CERT KEY]"""

import asyncio
import ssl
import sys
from urllib.parse import parse_qs, urlsplit

PORT, *IDENTITY = sys.argv[1:]
# Between the pieces of an answer.
GAP_S = 0.002


async def serve(reader, writer):
    port = writer.get_extra_info("peername")[1]
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            await reader.readexactly(int(headers.get("content-length", 0)))
            url = urlsplit(head[0].split(" ")[1])
            query = {name: float(values[0]) for name, values in parse_qs(url.query).items()}
            if url.path == "/events":
                await send_events(writer, query)
            await asyncio.sleep(query["ms"] / 1e3)
            await answer(writer, port, int(query["size"]), int(query["pieces"]))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def answer(writer, port, size, pieces):
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nX-Port: {port}\r\n\r\n".encode() + b"a" * (size // pieces))
    for piece in range(1, pieces):
        await asyncio.sleep(GAP_S)
        writer.write(b"a" * (size // pieces + (size % pieces if piece == pieces - 1 else 0)))
    await writer.drain()


async def send_events(writer, query):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        await asyncio.sleep(query["ms"] / 1e3)
        writer.write(b"data: " + b"e" * int(query["size"]) + b"\n\n")
        await writer.drain()


async def main():
    context = None
    if IDENTITY:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*IDENTITY)
    server = await asyncio.start_server(serve, "0.0.0.0", int(PORT), ssl=context)
    await server.serve_forever()


asyncio.run(main())
