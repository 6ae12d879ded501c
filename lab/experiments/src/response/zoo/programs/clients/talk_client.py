"""A client and a server that also speak unasked, in a protocol of lines. Options: [one-way=MS]: beside its requests the client
says something that has no answer; [push=MS]: so does the server; [chat]: there are no requests at all. Both speak after pauses
with these means, or with [steady] after equal ones. Words that are not asked for have 40 bytes, and those of a chat up to 200."""

import random
import socket
import threading
import time
from urllib.parse import urlsplit

import plan

OPTIONS = dict(word.partition("=")[::2] for word in plan.OPTIONS)
server = urlsplit(plan.URL)
connection = socket.create_connection((server.hostname, server.port))
connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
port = connection.getsockname()[1]
lines = connection.makefile("rb")
lock = threading.Lock()
end = time.monotonic() + float(plan.SECONDS)
is_chat = "chat" in OPTIONS


def say(text):
    with lock:
        connection.sendall(text.encode())


def speak(mean_s):
    while time.monotonic() < end:
        time.sleep(mean_s if "steady" in OPTIONS else random.expovariate(1 / mean_s))
        say("say " + "y" * (random.randint(10, 200) if is_chat else 40) + "\n")


if "push" in OPTIONS:
    say(f"push {OPTIONS['push']} {'steady' in OPTIONS:d}\n")
if is_chat:
    threading.Thread(target=speak, args=(float(OPTIONS["one-way"]) / 1e3,), daemon=True).start()
    connection.settimeout(1)
    while time.monotonic() < end:
        try:
            connection.recv(65536)
        except TimeoutError:
            pass
else:
    if "one-way" in OPTIONS:
        threading.Thread(target=speak, args=(float(OPTIONS["one-way"]) / 1e3,), daemon=True).start()
    for request in plan.requests():
        sent = plan.pause(request)
        say(f"ask {request.service_ms} {request.answer}\n")
        while not lines.readline().startswith(b"answer"):
            pass
        plan.log(port, sent)
plan.print_log()
