// Sends a file to itself, and says what came.
const crypto = require("crypto");
const fs = require("fs");
const net = require("net");

const server = net.createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket));
server.listen(0, "127.0.0.1", () => {
	const client = net.connect({ port: server.address().port, host: "127.0.0.1", allowHalfOpen: true });
	const seen = crypto.createHash("sha256");
	client.on("data", (part) => seen.update(part));
	client.on("end", () => {
		console.log("node", seen.digest("hex"));
		server.close();
	});
	fs.createReadStream(process.argv[2]).pipe(client);
});
