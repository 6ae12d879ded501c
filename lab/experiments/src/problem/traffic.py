"""The services and clients of pages: HTTP/1.1 over kept connections, until they are ended.

serve PORT   answers each request after a time of work, and asks another service first if it is told to
ask HOST:PORT...   sends one request after the other on each connection
"""

import argparse
import random
import selectors
import socket
import ssl
import threading
import time


def message(stream):
    """A request or an answer with its body, or nothing where the connection ended."""
    text = b""
    while b"\r\n\r\n" not in text:
        part = stream.recv(65536)
        if not part:
            return None
        text += part
    head, body = text.split(b"\r\n\r\n", 1)
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    while len(body) < int(lengths[0]) if lengths else False:
        part = stream.recv(65536)
        if not part:
            return None
        body += part
    return head


def connect(place):
    host, port = place.rsplit(":", 1)
    while True:
        try:
            stream = socket.create_connection((host, int(port)))
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return stream
        except OSError:
            time.sleep(0.1)


def answer(stream, options):
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.tls)
        stream = context.wrap_socket(stream, server_side=True)
    behind = connect(options.behind) if options.behind else None
    while message(stream):
        if behind:
            behind.sendall(b"GET /row HTTP/1.1\r\nHost: db\r\n\r\n")
            message(behind)
        work(options)
        stream.sendall(response(options))


def work(options):
    time.sleep(random.uniform(*options.work) / 1000)


def response(options):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % options.bytes + bytes(options.bytes)


def answer_in_turn(listener, options):
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ready.register(stream, selectors.EVENT_READ)
            elif message(key.fileobj):
                work(options)
                key.fileobj.sendall(response(options))
            else:
                ready.unregister(key.fileobj)


def serve(options):
    listener = socket.create_server(("", options.port), backlog=100)
    if options.one_thread:
        answer_in_turn(listener, options)
    while True:
        stream, _ = listener.accept()
        threading.Thread(target=answer, args=(stream, options), daemon=True).start()


def ask_one(place, options):
    stream = connect(place)
    if options.tls:
        context = ssl._create_unverified_context()
        stream = context.wrap_socket(stream)
    while True:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: service\r\n\r\n")
        if not message(stream):
            return
        time.sleep(random.uniform(0, 2 * options.pause) / 1000)


def ask(options):
    threads = [
        threading.Thread(target=ask_one, args=(place, options))
        for place in options.places
        for _ in range(options.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser()
    roles = parser.add_subparsers(required=True)
    role = roles.add_parser("serve")
    role.add_argument("port", type=int)
    role.add_argument("--work", type=float, nargs=2, default=[0, 0], help="the least and the most, in milliseconds")
    role.add_argument("--one-thread", action="store_true", help="one request at a time, of all connections")
    role.add_argument("--behind", help="ask HOST:PORT about each request")
    role.add_argument("--bytes", type=int, default=1000)
    role.add_argument("--tls", help="a file with certificate and key")
    role.set_defaults(run=serve)
    role = roles.add_parser("ask")
    role.add_argument("places", nargs="+")
    role.add_argument("--connections", type=int, default=1)
    role.add_argument("--pause", type=float, default=0, help="mean time between an answer and the next request, in milliseconds")
    role.add_argument("--tls", action="store_true")
    role.set_defaults(run=ask)
    options = parser.parse_args()
    options.run(options)


main()
