"""Receives OTLP metrics over HTTP with the messages of the opentelemetry-proto package, as the collector in this folder does:
each request becomes a line of OTLP's JSON on standard output.

Usage: receiver.py ADDRESS PORT [CERTIFICATE KEY]
"""

import http.server
import ssl
import sys

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_metrics = self.path == "/v1/metrics" and self.headers["Content-Type"] == "application/x-protobuf"
        answer = service.ExportMetricsServiceResponse().SerializeToString()
        if is_metrics:
            request = service.ExportMetricsServiceRequest.FromString(body)
            print(json_format.MessageToJson(request, indent=None), flush=True)
        self.send_response(200 if is_metrics else 404)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Receiver)
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
