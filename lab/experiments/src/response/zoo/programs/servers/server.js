// A server in Node that takes as long for an answer as its request says. Usage: server.js http1|http2 PORT [CERT KEY]
"use strict";
const fs = require("fs");
const http = require("http");
const http2 = require("http2");
const https = require("https");

const [protocol, port, cert, key] = process.argv.slice(2);
const identity = cert && { cert: fs.readFileSync(cert), key: fs.readFileSync(key) };
// Between the pieces of an answer, in milliseconds.
const GAP_MS = 2;

function serve(request, response) {
	const query = new URL(request.url, "http://zoo").searchParams;
	const [ms, size, pieces] = ["ms", "size", "pieces"].map((name) => Number(query.get(name)));
	const piece = Buffer.alloc(Math.floor(size / pieces), "a");
	const rest = Buffer.alloc(size - piece.length * pieces, "a");
	const write = (left) => {
		if (left === 1) return response.end(Buffer.concat([piece, rest]));
		response.write(piece);
		setTimeout(write, GAP_MS, left - 1);
	};
	request.on("data", () => {});
	request.on("end", () =>
		setTimeout(() => {
			response.setHeader("X-Port", request.socket.remotePort);
			response.setHeader("Content-Length", size);
			write(pieces);
		}, ms),
	);
}

const servers = {
	http1: () => (identity ? https.createServer(identity, serve) : http.createServer(serve)),
	http2: () => (identity ? http2.createSecureServer(identity, serve) : http2.createServer(serve)),
};
servers[protocol]().listen(Number(port), "0.0.0.0");
