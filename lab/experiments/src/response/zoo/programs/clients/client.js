// HTTP clients in Node. Options: http1|http2|flush [workers=N]: over HTTP/2, or with headers that are flushed before the body;
// N workers that ask independently and share the connection of HTTP/2.
"use strict";
const fs = require("fs");
const http = require("http");
const http2 = require("http2");
const https = require("https");

const [library, ...more] = process.argv.slice(2);
const [url, plan, seconds] = more.slice(-3);
const workers = more.length > 3 ? Number(more[0].replace("workers=", "")) : 1;
const requests = fs.readFileSync(plan, "utf8").trim().split("\n").map((line) => line.split(" ").map(Number));
const log = [];
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const isEncrypted = url.startsWith("https:");
const module_ = isEncrypted ? https : http;
const agent = new module_.Agent({ keepAlive: true, maxSockets: 1, rejectUnauthorized: false });
const session = library === "http2" ? http2.connect(url, { rejectUnauthorized: false }) : null;

// Gives the port that the server saw, and when the request was sent if it had to wait for a new connection.
function overHttp1(path, body) {
	return new Promise((done, fail) => {
		const options = { agent, method: body ? "POST" : "GET", headers: body ? { "Content-Length": body } : {} };
		let sent;
		const request = module_.request(url + path, options, (response) => {
			response.on("data", () => {});
			response.on("end", () => done([response.headers["x-port"], sent]));
		});
		request.on("socket", (socket) => {
			if (!socket.connecting) return;
			socket.once(isEncrypted ? "secureConnect" : "connect", () => (sent = process.hrtime.bigint()));
		});
		request.on("error", fail);
		if (body && library === "flush") {
			request.flushHeaders();
			setImmediate(() => request.end(Buffer.alloc(body, "b")));
		} else {
			request.end(body ? Buffer.alloc(body, "b") : undefined);
		}
	});
}

function overHttp2(path, body) {
	return new Promise((done, fail) => {
		const request = session.request({ ":path": path, ":method": body ? "POST" : "GET" });
		let port;
		request.on("response", (headers) => (port = headers["x-port"]));
		request.on("data", () => {});
		request.on("end", () => done([port]));
		request.on("error", fail);
		request.end(body ? Buffer.alloc(body, "b") : undefined);
	});
}

async function work(send, end) {
	for (let at = 0; ; at = (at + 1) % requests.length) {
		const [think, service, answer, body, pieces] = requests[at];
		if (think) await pause(think);
		const begun = process.hrtime.bigint();
		if (begun > end) break;
		const [port, sent] = await send(`/?ms=${service}&size=${answer}&pieces=${pieces}`, body);
		log.push(`${port} ${sent ?? begun} ${process.hrtime.bigint()}\n`);
	}
}

async function main() {
	const send = session ? overHttp2 : overHttp1;
	const end = process.hrtime.bigint() + BigInt(Math.round(Number(seconds) * 1e9));
	await Promise.all(Array.from({ length: workers }, () => work(send, end)));
	process.stdout.write(log.join(""), () => process.exit());
}

main();
