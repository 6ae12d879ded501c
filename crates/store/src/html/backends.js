// What the backends of balancers did, those of one VIP next to each other.

function showBackends() {
	const { shown, known, is_more: isMore } = data.backends;
	if (!shown.length) return;
	by("s-backends").hidden = false;
	const told = ["Share: of new connections, at the end. Active connections: the mean at the ends of intervals; waiting requests: the most at the end of one. The p99 (filled) is the greatest of an interval."];
	if (shown.length < known || isMore) told.push(`${counted(shown.length, "backends")} of ${isMore ? "more than " : ""}${known.toLocaleString("en-US")} are shown: those with most packets.`);
	by("backends-help").textContent = told.join(" ");
	const vips = new Map();
	for (const backend of shown) {
		const of = backend.vip === null ? "Of no VIP any more" : `VIP ${backend.vip}`;
		const title = backend.host === null ? of : `${of}, balancer ${backend.host}`;
		vips.set(title, [...(vips.get(title) || []), backend]);
	}
	by("backends").replaceChildren(...[...vips].flatMap(([title, backends]) => [
		element("h3", {}, title), element("div", { class: "scroll" }, backendTable(backends)),
		element("div", { class: "charts wide" }, ...backendCharts(title, backends)), ...changesOf(backends),
	]));
}

const BACKEND_COLUMNS = [
	["share", (backend) => `${(backend.share * 100).toFixed(1)} %`],
	["weight", (backend) => String(+backend.weight.toPrecision(4))],
	["connections", (backend) => backend.connections.toLocaleString("en-US")],
	["packets", (backend) => backend.packets.toLocaleString("en-US")],
	["active", (backend) => backend.active.toFixed(1)],
	["waiting", (backend) => backend.pending.toLocaleString("en-US")],
	["samples", (backend) => backend.count.toLocaleString("en-US")],
	["mean", (backend) => latency(backend.mean_ns)],
	["p99", (backend) => latency(backend.p99_ns)],
];

function backendTable(backends) {
	const all = backends.flatMap((backend) => [backend.mean_ns, backend.p99_ns]).filter((ns) => ns !== null);
	const scale = all.length ? logarithmic(Math.min(...all), Math.max(...all), 14, DOTS - 10) : null;
	const axis = scale ? [element("th", { scope: "col", class: "left" }, axisCell(DOTS, thinned(scale.ticks, scale.at, 66), scale.at, "mean to p99"))] : [];
	const head = element("tr", {}, element("th", {}), ...["backend", "state"].map((text) => element("th", { scope: "col", class: "left" }, text)),
		...BACKEND_COLUMNS.map(([text]) => element("th", { scope: "col" }, text)), ...axis);
	const rows = backends.map((backend, index) => element("tr", { "data-backend": backend.name },
		element("td", { class: "chart" }, keyOf(index)), element("td", { class: "name", title: backend.address }, backend.name),
		element("td", { class: "name", title: backend.why }, backend.state),
		...BACKEND_COLUMNS.map(([, text]) => element("td", {}, text(backend))),
		...(scale ? [element("td", { class: "chart" }, meanToP99(backend, index, scale))] : [])));
	return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function meanToP99(backend, index, scale) {
	const svg = drawing(DOTS, 28, `${backend.name}: mean ${latency(backend.mean_ns)}, p99 ${latency(backend.p99_ns)}`);
	for (const value of scale.ticks) svg.append(shape("line", { class: "grid", x1: scale.at(value), x2: scale.at(value), y1: 0, y2: 28 }));
	if (backend.mean_ns !== null) svg.append(...span(backend.mean_ns, backend.p99_ns, 14, scale, lookOf(index)));
	return svg;
}

// The response latency of each backend over time, and the requests that wait for it.
function backendCharts(title, backends) {
	const middle = (bin) => Math.min(data.from_ms + (bin + 0.5) * data.bin_ms, data.to_ms);
	const drawn = (what, points, scale, label, unit) => {
		const filled = backends.map((backend, index) => ({ name: backend.name, index, points: points(backend) })).filter((line) => line.points.length);
		if (!filled.length) return [];
		const [width, height, right] = [1000, 240, 800];
		const values = filled.flatMap((line) => line.points.map(([, value]) => value));
		const axis = scale(values.reduce((one, other) => Math.min(one, other)), values.reduce((one, other) => Math.max(one, other)), height - 44, 28);
		const lined = filled.map((line) => ({ name: line.name, colour: lookOf(line.index).colour, dash: line.index < 6 ? "none" : "6 3", pieces: broken(line.points).map((piece) => piece.map(([bin, value]) => [middle(bin), value])) }));
		const svg = lines({
			width, height, x: timeAxis(64, right), unit: "time of day, UTC", title: `${title}: ${what}`, lines: lined,
			description: lined.map((line) => line.name).join(", "),
			y: { title: unit, top: 28, bottom: height - 44, at: axis.at, ticks: thinned(axis.ticks, axis.at, 20), label },
		});
		lined.slice(0, 9).forEach((line, n) => svg.append(shape("line", { x1: right + 20, x2: right + 54, y1: 40 + 21 * n, y2: 40 + 21 * n, stroke: line.colour, "stroke-width": 1.8, "stroke-dasharray": line.dash }),
			shape("text", { x: right + 62, y: 44 + 21 * n, class: "key" }, line.name)));
		return [element("figure", {}, element("figcaption", {}, what), svg)];
	};
	return [
		...drawn("Response latency", (backend) => backend.times.map(([bin, , mean]) => [bin, mean]), logarithmic, tick, "mean response latency"),
		...drawn("Waiting requests", (backend) => backend.waits, (least, most, from, to) => linear(most, from, to), (value) => value.toLocaleString("en-US"), "most requests that waited"),
	];
}

// When backends changed their state, the latest first.
function changesOf(backends) {
	const changes = backends.flatMap((backend) => backend.changes.map((change) => ({ name: backend.name, ...change })));
	if (!changes.length) return [];
	changes.sort((one, other) => other.time_ms - one.time_ms);
	const known = backends.reduce((sum, backend) => sum + backend.changes_known, 0);
	const left = known > changes.length ? `, the latest ${changes.length.toLocaleString("en-US")}` : "";
	const rows = changes.map((change) => element("tr", { "data-change": change.name }, element("td", {}, time(change.time_ms, [0, 19])),
		...[change.name, change.state, change.why].map((text) => element("td", { class: "name" }, text))));
	return [element("details", {}, element("summary", {}, `${counted(known, "changes")} of state${left}`), element("table", {}, element("tbody", {}, ...rows)))];
}
