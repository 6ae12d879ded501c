"""aioquic as a client of the lab's servers: handshake, 0-RTT with single-use tickets, migration.

Started by `dwell-lab quic client`, which tells address, certificate and own addresses by the environment.
"""

import asyncio
import os
import struct
import sys

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import HandshakeCompleted, StreamDataReceived

PATIENCE_S = 30
HOST, PORT = os.environ["DWELL_QUIC_SERVER"].rsplit(":", 1)
OWN = os.environ["DWELL_QUIC_OWN"].split(",")


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.handshake = asyncio.get_running_loop().create_future()
        self.answers = {}
        self.ended = set()
        self.news = asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted) and not self.handshake.done():
            self.handshake.set_result(event)
        if isinstance(event, StreamDataReceived):
            self.answers[event.stream_id] = self.answers.get(event.stream_id, b"") + event.data
            if event.end_stream:
                self.ended.add(event.stream_id)
        self.news.set()

    def ask(self, length, slow=False):
        stream = self._quic.get_next_available_stream_id()
        request = struct.pack(">QQB", 0, length, slow)
        self._quic.send_stream_data(stream, request, end_stream=True)
        self.transmit()
        return stream

    async def until(self, holds):
        while not holds():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), PATIENCE_S)


class Forward(asyncio.DatagramProtocol):
    """What comes to another socket is the same connection's."""

    def __init__(self, client):
        self.client = client

    def datagram_received(self, data, addr):
        self.client.datagram_received(data, addr)


async def connect(tickets, ticket=None):
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=["dwell-lab"],
        server_name=os.environ["DWELL_QUIC_NAME"],
        session_ticket=ticket,
    )
    configuration.load_verify_locations(os.environ["DWELL_QUIC_CERTIFICATE"])
    quic = QuicConnection(configuration=configuration, session_ticket_handler=tickets.append)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_datagram_endpoint(lambda: Client(quic), local_addr=(OWN[0], 0))
    client.connect((HOST, int(PORT)))
    return client


async def visit(tickets, ticket=None):
    """Who answered, and whether as 0-RTT data."""
    client = await connect(tickets, ticket)
    before = len(tickets)
    stream = client.ask(10)
    handshake = await asyncio.wait_for(client.handshake, PATIENCE_S)
    await client.until(lambda: stream in client.ended and len(tickets) > before)
    answer = client.answers[stream]
    assert len(answer) == 12, answer
    client.close()
    client._transport.close()
    return struct.unpack(">H", answer[:2])[0], handshake.early_data_accepted


async def move(tickets):
    client = await connect(tickets)
    await asyncio.wait_for(client.handshake, PATIENCE_S)
    length = 400_000
    stream = client.ask(length, slow=True)
    loop = asyncio.get_running_loop()
    for address in [OWN[1], OWN[2], OWN[0]]:
        have = len(client.answers.get(stream, b""))
        await client.until(lambda: len(client.answers.get(stream, b"")) > have + 50_000)
        transport, _ = await loop.create_datagram_endpoint(lambda: Forward(client), local_addr=(address, 0))
        client._transport = transport
        client.change_connection_id()
        client.transmit()
        await client.ping()
    await client.until(lambda: stream in client.ended)
    assert len(client.answers[stream]) == length + 2
    client.close()


async def main():
    tickets = []
    server, early = await visit(tickets)
    assert not early
    print(f"full handshake: server {server}")
    used = None
    for _ in range(3):
        used = tickets.pop()
        again, early = await visit(tickets, used)
        assert early, "0-RTT was refused"
        assert again == server, "another server answered"
        print(f"0-RTT: server {again}")
    again, early = await visit(tickets, used)
    assert not early, "a ticket was good twice"
    print(f"a ticket that was used is refused, and answered after a handshake: server {again}")
    await move(tickets)
    print("3 moves in the middle of an answer: all of it came")


sys.exit(asyncio.run(main()))
