"""HTTP clients in Python. Options: LIBRARY [close]: a connection for each request, which http.client knows."""

import ssl
from urllib.parse import urlsplit

import plan

LIBRARY, *MORE = plan.OPTIONS
CLOSE = "close" in MORE


def http_client():
    """The standard library's http.client."""
    import http.client

    server = urlsplit(plan.URL)

    def connect():
        if server.scheme == "https":
            return http.client.HTTPSConnection(server.netloc, context=ssl._create_unverified_context())
        return http.client.HTTPConnection(server.netloc)

    connection = connect()

    def send(method, target, body):
        connection.request(method, target, body)
        response = connection.getresponse()
        response.read()
        return response.headers

    def prepare():
        nonlocal connection
        if CLOSE:
            connection.close()
            connection = connect()
            connection.connect()

    return send, prepare


def requests():
    """The package requests."""
    library = plan.require("requests")
    plan.require("urllib3").disable_warnings()
    session = library.Session()
    session.verify = False
    session.trust_env = False

    return lambda method, target, body: session.request(method, plan.URL + target, data=body).headers, None


def httpx(http2=False):
    """The package httpx."""
    session = plan.require("httpx").Client(verify=False, trust_env=False, http1=not http2, http2=http2)
    return lambda method, target, body: session.request(method, plan.URL + target, content=body).headers, None


def run(send, prepare):
    """Sends the requests; what prepares a request, such as a handshake, is no part of it."""
    for request in plan.requests():
        body = b"b" * request.body if request.body else None
        sent = plan.pause(request)
        if prepare:
            prepare()
            sent = plan.now()
        headers = send("POST" if body else "GET", plan.target(request), body)
        plan.log(headers["x-port"], sent)


async def aiohttp():
    """The package aiohttp."""
    library = plan.require("aiohttp")
    async with library.ClientSession(connector=library.TCPConnector(ssl=False)) as session:
        for request in plan.requests():
            body = b"b" * request.body if request.body else None
            sent = plan.pause(request)
            async with session.request("POST" if body else "GET", plan.URL + plan.target(request), data=body) as response:
                await response.read()
            plan.log(response.headers["x-port"], sent)


if LIBRARY == "aiohttp":
    import asyncio

    asyncio.run(aiohttp())
else:
    libraries = {"http.client": http_client, "requests": requests, "httpx": httpx, "httpx-h2": lambda: httpx(http2=True)}
    run(*libraries[LIBRARY]())
plan.print_log()
