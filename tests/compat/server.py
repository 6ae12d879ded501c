"""Serves a folder, and says what was uploaded: server.py PORT FOLDER."""

import hashlib
import http.server
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments):
        super().__init__(*arguments, directory=sys.argv[2])

    def do_PUT(self):
        left, seen = int(self.headers["Content-Length"]), hashlib.sha256()
        while left > 0:
            data = self.rfile.read(min(left, 65536))
            if not data:
                return
            seen.update(data)
            left -= len(data)
        answer = (seen.hexdigest() + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
