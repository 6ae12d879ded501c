"""A client by hand that pipelines requests of HTTP/1.1. Options: [split=BYTES] [together]: each request goes in two packets, the
first of that many bytes; or the requests of a burst go in one."""

import socket
import threading
import time
from urllib.parse import urlsplit

import plan

SPLIT = next((int(word.removeprefix("split=")) for word in plan.OPTIONS if word.startswith("split=")), 0)
server = urlsplit(plan.URL)
connection = socket.create_connection((server.hostname, server.port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
port = connection.getsockname()[1]
answers = connection.makefile("rb")


def read_answer():
    length = 0
    while (line := answers.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    answers.read(length)


def write(request):
    method = "POST" if request.body else "GET"
    text = f"{method} {plan.target(request)} HTTP/1.1\r\nHost: zoo\r\nContent-Length: {request.body}\r\n\r\n".encode()
    text += b"b" * request.body
    if "together" in plan.OPTIONS:
        burst.append(text)
    elif SPLIT:
        connection.sendall(text[:SPLIT])
        time.sleep(50e-6)
        connection.sendall(text[SPLIT:])
    else:
        connection.sendall(text)


def finish():
    """Sends what is held back, then reads all outstanding answers."""
    if burst:
        connection.sendall(b"".join(burst))
        burst.clear()
    while outstanding:
        read_answer()
        plan.log(port, outstanding.pop(0))


outstanding, burst = [], []
for request in plan.requests():
    if not request.together:
        finish()
    outstanding.append(plan.pause(request))
    write(request)
finish()
plan.print_log()
