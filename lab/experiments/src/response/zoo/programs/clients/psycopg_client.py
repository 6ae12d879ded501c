"""psycopg. A request is a query that sleeps at the server and gives a text."""

import os
import socket
from urllib.parse import urlsplit

import plan

server = urlsplit(plan.URL)
psycopg = plan.require("psycopg")
connection = psycopg.connect(
    host=server.hostname, port=server.port, user="zoo", dbname="postgres", autocommit=True, sslmode="disable"
)
with socket.socket(fileno=os.dup(connection.fileno())) as own:
    port = own.getsockname()[1]
for request in plan.requests():
    sent = plan.pause(request)
    query = "select pg_sleep(%s), repeat('a', %s)"
    connection.execute(query, (request.service_ms / 1e3, request.answer)).fetchall()
    plan.log(port, sent)
plan.print_log()
