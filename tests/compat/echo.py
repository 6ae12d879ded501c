"""Sends a file to itself by threads and by asyncio, and says what came."""

import asyncio
import hashlib
import socket
import sys
import threading

data = open(sys.argv[1], "rb").read()


def threads():
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listener.accept()
        with connection:
            while part := connection.recv(65536):
                connection.sendall(part)

    server = threading.Thread(target=serve)
    server.start()
    client = socket.create_connection(listener.getsockname())
    writer = threading.Thread(target=lambda: (client.sendall(data), client.shutdown(socket.SHUT_WR)))
    writer.start()
    seen = hashlib.sha256()
    while part := client.recv(65536):
        seen.update(part)
    writer.join()
    server.join()
    print("threads", seen.hexdigest())


async def loop():
    async def serve(reader, writer):
        while part := await reader.read(65536):
            writer.write(part)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())

    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    print("asyncio", hashlib.sha256(await reader.read()).hexdigest())
    await sending
    writer.close()
    server.close()


threads()
asyncio.run(loop())
