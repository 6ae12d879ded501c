const data = JSON.parse(document.getElementById("data").textContent);
const by = (id) => document.getElementById(id);
const state = { place: 0, filter: "", marked: new Set() };

const segmentName = (segment) => `${segment.direction ? `${segment.direction} ` : ""}${segment.name}`;
const isTotal = (segment) => segment.name === "total" || segment.name === "end-to-end";
const flowName = (flow) => `${flow.src} → ${flow.dst}${flow.rx ? `, at its receiver ${flow.rx}` : ""}`;
const hostName = (number) => (number === null ? "(no agent)" : data.hosts[number]);
const counted = (count, what) => `${count.toLocaleString("en-US")} ${count === 1 ? what.replace(/s$/, "") : what}`;
const time = (ms, length) => new Date(ms).toISOString().slice(...length).replace("T", " ");

function placeName(place) {
	return place.host === null ? `${hostName(place.tx)} → ${hostName(place.rx)}` : `host ${hostName(place.host)}`;
}

function colour(segment) {
	const root = data.segments[segment.part_of === null ? data.segments.indexOf(segment) : segment.part_of].name;
	return `var(--c-${isTotal(segment) || root === "unexplained" ? "whole" : root})`;
}

// Figures. A quantile is the nearest rank, in the middle of its bucket, as `dwell stack` takes it.

const widthOf = (low) => {
	let width = 1;
	while (low / width >= 128) width *= 2;
	return width;
};

function quantile(cell, q) {
	const rank = Math.min(Math.max(Math.ceil(q * cell.count), 1), cell.count);
	let seen = 0;
	for (const [low, count] of cell.buckets) {
		seen += count;
		if (seen >= rank) return Math.min(Math.max(low + Math.floor(widthOf(low) / 2), cell.min), cell.max);
	}
	return null;
}

// Rows of the same segment, added up. Of the p99 in a piece of time only the greatest is known.
function merged(rows) {
	const cell = { count: 0, sum: 0, min: null, max: null, buckets: new Map(), times: new Map(), estimated: false, bound: null, clamped: 0, doubtful: 0, missing: null };
	for (const row of rows) {
		cell.estimated ||= Boolean(row.estimated);
		cell.missing ??= row.missing ?? null;
		cell.clamped += row.clamped || 0;
		cell.doubtful += row.doubtful || 0;
		if (row.bound_ns !== undefined) cell.bound = Math.max(cell.bound ?? 0, row.bound_ns);
		if (row.count === 0) continue;
		cell.count += row.count;
		cell.sum += row.sum_ns;
		cell.min = cell.min === null ? row.min_ns : Math.min(cell.min, row.min_ns);
		cell.max = Math.max(cell.max ?? 0, row.max_ns);
		for (let n = 0; n < row.buckets.length; n += 2) {
			cell.buckets.set(row.buckets[n], (cell.buckets.get(row.buckets[n]) || 0) + row.buckets[n + 1]);
		}
		for (const [bin, count, mean, p99] of row.times) {
			const there = cell.times.get(bin) || { count: 0, sum: 0, p99: 0 };
			there.count += count;
			there.sum += count * mean;
			there.p99 = Math.max(there.p99, p99);
			cell.times.set(bin, there);
		}
	}
	cell.buckets = [...cell.buckets].sort((one, other) => one[0] - other[0]);
	cell.mean = cell.count ? cell.sum / cell.count : null;
	[cell.p50, cell.p90, cell.p99] = [0.5, 0.9, 0.99].map((q) => (cell.count ? quantile(cell, q) : null));
	return cell;
}

// Flows that are chosen: those that are marked, else those that the text finds. Null: all there were.
function chosenFlows() {
	if (state.marked.size) return state.marked;
	if (!state.filter && data.has_sums) return null;
	return new Set(shownFlows());
}

function shownFlows() {
	const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
	const here = new Set(data.rows.flatMap((row) => (row.flow !== null && isShown(row.place) ? [row.flow] : [])));
	return data.flows.flatMap((flow, n) => (here.has(n) && words.every((word) => flowName(flow).toLowerCase().includes(word)) ? [n] : []));
}

// A way of which one end has no agent takes the other end's segments from what that host told.
const ownHost = (place) => (place.host === null && (place.tx === null || place.rx === null) ? place.tx ?? place.rx : null);
const isShown = (n) => n === state.place || (data.places[n].host !== null && data.places[n].host === ownHost(data.places[state.place]));

// By segment, of one place.
function cellsOf(place, flows) {
	const groups = new Map();
	for (const row of data.rows) {
		if (row.place !== place || !(flows ? flows.has(row.flow) : row.flow === null)) continue;
		if (!groups.has(row.segment)) groups.set(row.segment, []);
		groups.get(row.segment).push(row);
	}
	return new Map([...groups].sort((one, other) => one[0] - other[0]).map(([segment, rows]) => [segment, merged(rows)]));
}

function shownCells(flows) {
	const place = data.places[state.place];
	const cells = place ? cellsOf(state.place, flows) : new Map();
	if (!place || ownHost(place) === null) return cells;
	const side = place.tx === null ? "rx" : "tx";
	const own = data.places.findIndex((other) => other.host === ownHost(place));
	for (const [segment, cell] of own < 0 ? [] : cellsOf(own, flows)) {
		if (data.segments[segment].direction === side && !cells.has(segment)) cells.set(segment, cell);
	}
	return new Map([...cells].sort((one, other) => one[0] - other[0]));
}

// The waterfall: a line a segment, with its figures, its place on the way, and its tail.

function waterfall(cells) {
	const segments = [...cells.keys()].map((n) => data.segments[n]);
	const shown = [...cells].filter(([n, cell]) => cell.count || cell.missing || data.segments[n].name !== "unexplained");
	if (!shown.length) return empty("No bytes in this selection.");
	// One host has two ways, of which each begins anew.
	const isWay = segments.some((segment) => segment.name === "end-to-end" || segment.name === "network");
	const lengths = new Map(shown.map(([n, cell]) => [n, part(cells, n, cell)]));
	let at = 0, side = null;
	const starts = new Map();
	for (const [n, cell] of shown) {
		const segment = data.segments[n];
		if (!isWay && segment.direction !== side) [side, at] = [segment.direction, 0];
		if (isTotal(segment)) {
			const sameSide = ([m]) => data.segments[m].adds && data.segments[m].direction === segment.direction;
			const first = shown.find(sameSide);
			starts.set(n, segment.name === "end-to-end" || !first ? 0 : starts.get(first[0]) ?? 0);
		} else if (segment.part_of === null) {
			starts.set(n, at);
			at += lengths.get(n);
		} else {
			const [parent, begin] = [lengths.get(segment.part_of) ?? 0, starts.get(segment.part_of) ?? 0];
			const atEnd = segment.name !== "reordering";
			starts.set(n, atEnd ? begin + Math.max(parent - lengths.get(n), 0) : begin);
		}
	}
	const most = Math.max(...shown.map(([n, cell]) => starts.get(n) + lengths.get(n) + (cell.bound ?? 0)));
	const known = shown.map(([, cell]) => cell).filter((cell) => cell.count);
	const x = linear(most, 8, BAR - 8);
	const tail = logarithmic(Math.min(...known.map((cell) => cell.p50)), Math.max(...known.map((cell) => cell.p99)), 10, DOTS - 10);
	const heads = ["count", "mean", "p50", "p90", "p99", "max", "share", "clock ±"];
	const head = element("tr", {}, element("th", { scope: "col" }, "segment"),
		...heads.map((text) => element("th", { scope: "col" }, text)),
		element("th", { scope: "col", class: "left" }, axisCell(BAR, x.ticks, x.at, "mean")),
		element("th", { scope: "col", class: "left" }, axisCell(DOTS, thinned(tail.ticks, tail.at, 66), tail.at, "p50 and p99")));
	const rows = shown.map(([n, cell]) => waterfallRow(cells, n, cell, [starts.get(n), lengths.get(n)], x, tail));
	return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

// Widths of the columns that are drawn.
const [BAR, DOTS] = [250, 170];

function axisCell(width, ticks, at, title) {
	const svg = drawing(width, 30, `axis: ${title}`);
	svg.append(shape("text", { x: at(ticks[0]) - 6, y: 11, class: "key" }, title));
	for (const value of ticks) svg.append(shape("text", { x: at(value), y: 27, "text-anchor": anchor(at(value), 0, width) }, tick(value)));
	return svg;
}

// The whole of which a segment is a part: the way, else its side.
function wholeOf(cells, segment) {
	const find = (is) => [...cells].find(([n]) => is(data.segments[n]))?.[1];
	return find((other) => other.name === "end-to-end") || find((other) => other.name === "total" && other.direction === segment.direction);
}

// What a segment adds to the mean of the whole: its own mean, but where it is known of fewer bytes.
function part(cells, n, cell) {
	const whole = wholeOf(cells, data.segments[n]);
	if (!cell.count) return 0;
	return whole?.count && !cell.estimated ? cell.sum / whole.count : cell.mean;
}

function waterfallRow(cells, n, cell, place, x, tail) {
	const segment = data.segments[n];
	const name = `${segmentName(segment)}${cell.estimated ? " (estimated)" : ""}`;
	const row = element("tr", { class: isTotal(segment) ? "total" : segment.part_of === null ? "" : "part", "data-segment": segmentName(segment) },
		element("th", { scope: "row" }, element("span", { class: "mark", style: `background:${colour(segment)}` }), name));
	if (cell.missing) {
		row.append(element("td", { colspan: 10, class: "left" }, `missing: no hook for ${cell.missing} here`));
		return row;
	}
	const whole = wholeOf(cells, segment);
	const share = whole?.sum > 0 && !cell.estimated ? `${((cell.sum / whole.sum) * 100).toFixed(1)} %` : "-";
	for (const text of [cell.count.toLocaleString("en-US"), ...[cell.mean, cell.p50, cell.p90, cell.p99, cell.max].map(latency), share, cell.bound === null ? "" : latency(cell.bound)]) {
		row.append(element("td", {}, text));
	}
	row.append(element("td", { class: "chart" }, bar(segment, cell, place, x, name)), element("td", { class: "chart" }, dots(segment, cell, tail, name)));
	return row;
}

function bar(segment, cell, [start, length], x, name) {
	const svg = drawing(BAR, 28, `${name}: mean ${latency(cell.mean)}`, cell.bound === null ? "" : `give or take ${latency(cell.bound)} by the clocks`);
	for (const value of x.ticks) svg.append(shape("line", { class: "grid", x1: x.at(value), x2: x.at(value), y1: 0, y2: 28 }));
	if (!cell.count) return svg;
	const [from, to] = [x.at(start), x.at(start + length)];
	const inset = segment.part_of === null ? 5 : 9;
	const look = { x: from, y: inset, width: Math.max(to - from, 1.5), height: 28 - 2 * inset, style: `fill:${colour(segment)};stroke:${colour(segment)}` };
	// Without a measurement behind it, or counted in another already: not full.
	if (cell.estimated) Object.assign(look, { "fill-opacity": 0.15, "stroke-dasharray": "4 3" });
	else if (segment.part_of !== null || isTotal(segment)) Object.assign(look, { "fill-opacity": 0.4 });
	svg.append(shape("rect", look));
	if (cell.bound) {
		const [low, high] = [x.at(start + length - cell.bound), x.at(start + length + cell.bound)];
		svg.append(shape("path", { class: "error", d: `M${low} 14H${high}M${low} 9V19M${high} 9V19` }));
	}
	return svg;
}

function dots(segment, cell, tail, name) {
	const svg = drawing(DOTS, 28, `${name}: p50 ${latency(cell.p50)}, p99 ${latency(cell.p99)}`);
	for (const value of tail.ticks) svg.append(shape("line", { class: "grid", x1: tail.at(value), x2: tail.at(value), y1: 0, y2: 28 }));
	if (!cell.count) return svg;
	const style = `stroke:${colour(segment)};stroke-width:2`;
	svg.append(shape("line", { x1: tail.at(cell.p50), x2: tail.at(cell.p99), y1: 14, y2: 14, style }),
		symbol("circle", tail.at(cell.p50), 14, 4, { style: `${style};fill:var(--page)` }),
		symbol("circle", tail.at(cell.p99), 14, 4, { style: `${style};fill:${colour(segment)}` }));
	return svg;
}

function empty(text) {
	return element("p", { class: "empty" }, text);
}

// Each segment over time.

function timeAxis(left, right) {
	const [from, to] = [data.from_ms, Math.max(data.to_ms, data.from_ms + 1)];
	const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
	const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, ...seconds.map((s) => s * 1000)];
	const step = steps.find((ms) => (to - from) / ms <= 4) || Math.ceil((to - from) / 4 / 86400e3) * 86400e3;
	const ticks = [];
	for (let ms = Math.ceil(from / step) * step; ms <= to; ms += step) ticks.push(ms);
	const label = (ms) => (step >= 86400e3 ? time(ms, [5, 10]) : step >= 60e3 ? time(ms, [11, 16]) : time(ms, [11, step >= 1e3 ? 19 : 23]));
	return { left, right, ticks, label, at: (ms) => left + ((ms - from) / (to - from)) * (right - left) };
}

function series(n, cell) {
	const segment = data.segments[n];
	const [width, height] = [420, 170];
	const filled = [...cell.times].sort((one, other) => one[0] - other[0]);
	const means = filled.map(([bin, there]) => [bin, there.sum / there.count]);
	const p99s = filled.map(([bin, there]) => [bin, there.p99]);
	const values = (points) => points.map(([, value]) => value);
	const all = values([...means, ...p99s]);
	const scale = logarithmic(Math.min(...all), Math.max(...all), height - 40, 10);
	const x = timeAxis(58, width - 8);
	const middle = (bin) => Math.min(data.from_ms + (bin + 0.5) * data.bin_ms, data.to_ms);
	const pieces = (points) => broken(points).map((piece) => piece.map(([bin, value]) => [middle(bin), value]));
	const name = segmentName(segment);
	const svg = lines({
		width, height, x, y: { top: 10, bottom: height - 40, at: scale.at, ticks: thinned(scale.ticks, scale.at, 20), label: tick },
		title: `${name} over time`, description: `mean from ${latency(Math.min(...values(means)))} to ${latency(Math.max(...values(means)))}, greatest p99 ${latency(Math.max(...values(p99s)))}`, unit: "time of day, UTC",
		lines: [
			{ pieces: pieces(p99s), colour: "var(--faint)", dash: "5 3", width: 1.4, name: `${name}, p99` },
			{ pieces: pieces(means), colour: colour(segment), width: 2.2, name: `${name}, mean` },
		],
	});
	return element("figure", {}, element("figcaption", {}, `${name}${cell.estimated ? " (estimated)" : ""}`), svg);
}

function allSeries(cells) {
	const figures = [...cells].filter(([n, cell]) => cell.times.size && data.segments[n].name !== "unexplained").map(([n, cell]) => series(n, cell));
	return figures.length ? figures : [empty("No bytes in this selection.")];
}

// The distributions of all segments, in one chart.

// Each line has its own dashes, so that lines are told apart without their colours.
function stroke(segment, index) {
	const dash = index ? `${[3, 8, 16][index % 3]} 3${" 2 3".repeat(index / 3)}` : "none";
	return segment.name === "end-to-end" ? { colour: "var(--ink)", dash, width: 2.4 } : { dash, width: segment.name === "total" ? 2.4 : 1.8 };
}

function distributions(cells) {
	const shown = [...cells].filter(([n, cell]) => cell.count && !cell.estimated && data.segments[n].name !== "unexplained");
	if (!shown.length) return empty("No distribution: nothing in this selection was seen byte by byte.");
	const [width, height, right] = [1000, 380, 790];
	const scale = logarithmic(Math.min(...shown.map(([, cell]) => cell.min)), Math.max(...shown.map(([, cell]) => cell.max)), 58, right);
	const share = { top: 12, bottom: height - 44, ticks: [0, 0.25, 0.5, 0.75, 0.9, 1], label: (value) => `${value * 100} %` };
	share.at = (value) => share.bottom - value * (share.bottom - share.top);
	const drawn = shown.map(([n, cell], index) => {
		const segment = data.segments[n];
		let seen = 0;
		const total = cell.buckets.reduce((sum, [, count]) => sum + count, 0);
		const points = [[cell.min, 0]];
		for (const [low, count] of cell.buckets) {
			seen += count;
			points.push([Math.min(Math.max(low + widthOf(low), cell.min), cell.max), seen / total]);
		}
		return { pieces: [points], colour: colour(segment), name: segmentName(segment), ...stroke(segment, index) };
	});
	const svg = lines({
		width, height, title: "distributions of the segments", description: drawn.map((line) => line.name).join(", "), lines: drawn, unit: "time in the segment",
		x: { left: 58, right, at: scale.at, ticks: thinned(scale.ticks, scale.at, 66), label: tick }, y: share,
	});
	drawn.forEach((line, index) => {
		const y = 24 + 21 * index;
		svg.append(shape("line", { x1: right + 18, x2: right + 52, y1: y, y2: y, stroke: line.colour, "stroke-width": line.width, "stroke-dasharray": line.dash }),
			shape("text", { x: right + 60, y: y + 4, class: "key" }, line.name));
	});
	return element("figure", {}, svg);
}

// What each host says of the same segments.

function hosts(flows) {
	const places = data.places.flatMap((place, n) => (place.host === null ? [] : [{ host: place.host, cells: cellsOf(n, flows) }])).filter(({ cells }) => cells.size);
	if (places.length < 2) return empty(places.length ? `Only ${hostName(places[0].host)} has figures in this selection: nothing to compare it with.` : "No host has figures in this selection.");
	const shown = data.segments.map((segment, n) => n).filter((n) => data.segments[n].name !== "unexplained" && places.some(({ cells }) => cells.get(n)?.count));
	const all = shown.flatMap((n) => places.map(({ cells }) => cells.get(n)).filter((cell) => cell?.count));
	const scale = logarithmic(Math.min(...all.map((cell) => cell.mean)), Math.max(...all.map((cell) => cell.p99)), 14, 406);
	const names = element("tr", {}, element("th", { scope: "col", rowspan: 2 }, "segment"),
		...places.map(({ host }, index) => element("th", { scope: "colgroup", colspan: 2 }, keyOf(index), hostName(host))),
		element("th", { rowspan: 2, class: "left" }, axisCell(420, thinned(scale.ticks, scale.at, 66), scale.at, "mean (hollow) to p99 (filled)")));
	const units = element("tr", {}, ...places.flatMap(() => ["mean", "p99"].map((text) => element("th", { scope: "col" }, text))));
	const body = shown.map((n) => {
		const segment = data.segments[n];
		const row = element("tr", { class: isTotal(segment) ? "total" : segment.part_of === null ? "" : "part", "data-hosts": segmentName(segment) }, element("th", { scope: "row" }, segmentName(segment)));
		const lane = 10, height = Math.max(28, 8 + lane * places.length);
		const svg = drawing(420, height, `${segmentName(segment)} on each host`);
		for (const value of scale.ticks) svg.append(shape("line", { class: "grid", x1: scale.at(value), x2: scale.at(value), y1: 0, y2: height }));
		places.forEach(({ cells, host }, index) => {
			const cell = cells.get(n);
			row.append(element("td", {}, latency(cell?.mean)), element("td", {}, latency(cell?.p99)));
			if (!cell?.count) return;
			const y = height / 2 + lane * (index - (places.length - 1) / 2);
			svg.append(...span(cell.mean, cell.p99, y, scale, lookOf(index)));
		});
		row.append(element("td", { class: "chart" }, svg));
		return row;
	});
	return element("table", {}, element("thead", {}, names, units), element("tbody", {}, ...body));
}

function clocks() {
	if (!data.clocks.length) return empty("No clock was compared with the collector's.");
	const rows = data.clocks.map((clock) => element("tr", {}, element("th", { scope: "row" }, clock.host),
		...[latency(clock.bound_ns), String(clock.steps), clock.method].map((text) => element("td", {}, text))));
	const head = ["host", "greatest error", "jumps", "stamped by"].map((text) => element("th", { scope: "col" }, text));
	return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

const WHY = {
	"buffer-full": "the agent's buffer was full",
	"too-long": "a batch was too long to be sent",
	"rejected": "the collector rejected a batch as invalid",
	"killed": "the agent was killed, or its host",
	"gap": "not known: batch numbers have a gap",
	"elsewhere": "another collector or store has them",
	"silent": "no intervals: no agent ran, or they are lost",
};

function losses() {
	if (!data.losses.length) return empty("No measurements are known to be missing.");
	const rows = data.losses.map((loss) => element("tr", {}, element("th", { scope: "row" }, loss.host),
		...[loss.from_ms, loss.to_ms].map((ms) => element("td", {}, ms === null ? "not known" : time(ms, [0, 23]))),
		element("td", {}, loss.batches === null ? "not known" : loss.batches.toLocaleString("en-US")),
		element("td", { class: "name" }, WHY[loss.why] ?? loss.why)));
	const head = ["host", "from", "to", "batches", "why"].map((text) => element("th", { scope: "col" }, text));
	const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
	if (data.losses_known <= data.losses.length) return table;
	return element("div", {}, table, element("p", {}, `The latest ${counted(data.losses.length, "losses")} of ${data.losses_known.toLocaleString("en-US")}.`));
}

// What the figures leave out.
function notes(cells, flows) {
	const place = data.places[state.place];
	const told = [];
	const has = (name) => [...cells.keys()].some((n) => data.segments[n].name === name);
	if (!data.places.some((other) => other.tx !== null && other.rx !== null)) {
		told.push(data.hosts.length === 1 ? "No network segment was measured: only one host has an agent." : "No network segment was measured: no flow was seen on two hosts.");
	} else if (place.host !== null) told.push(`This is one host by itself. Choose a way between two hosts for the network and the end-to-end delay.`);
	if (place.host === null && (place.tx === null || place.rx === null)) {
		told.push("Only one host has an agent here. The network segment is estimated: half of the least round-trip time that TCP knew. The other host's segments are not known.");
		if (!flows) told.push(`The segments of ${hostName(place.tx ?? place.rx)} are of all its flows, also of those to other hosts.`);
	}
	const resent = data.resent.find((one) => one.place === state.place);
	if (resent && !flows) told.push(`${counted(resent.count, "bytes")} that TCP sent more than once ${resent.count === 1 ? "is" : "are"} left out: they took ${latency(resent.mean_ns)} on average.`);
	const doubtful = Math.max(0, ...[...cells].map(([, cell]) => cell.doubtful));
	if (doubtful) told.push(`Of ${counted(doubtful, "bytes")} the clocks may be wrong by more than the collector was asked to allow (--max-clock-error).`);
	const clamped = Math.max(0, ...[...cells].map(([, cell]) => cell.clamped));
	if (clamped) told.push(`The network time of ${counted(clamped, "bytes")} came out below 0, by no more than the clocks may be wrong, and is counted as 0.`);
	if (has("network") && [...cells].some(([, cell]) => cell.bound)) told.push("Brackets at the end of a bar: by how much the clocks of the two hosts may be wrong.");
	if (!data.flows.length) told.push("No flow is shown separately.");
	else if (data.flows.length < data.flows_known) {
		told.push(`${counted(data.flows.length, "flows")} of ${data.flows_known.toLocaleString("en-US")} are shown separately: those with most bytes.${data.has_sums ? " The others are in the sums of all flows." : " The others are in no figure."}`);
	}
	return told;
}

function flowRows(shown) {
	const totals = new Map();
	for (const row of data.rows) {
		const name = data.segments[row.segment].name;
		const here = isShown(row.place) && (name === "end-to-end" || name === "total");
		const known = totals.get(row.flow);
		if (here && row.flow !== null && (!known || name === "end-to-end")) totals.set(row.flow, row);
	}
	return shown.map((n) => {
		const flow = data.flows[n];
		const box = element("input", { type: "checkbox" });
		box.checked = state.marked.has(n);
		box.addEventListener("change", () => {
			if (box.checked) state.marked.add(n);
			else state.marked.delete(n);
			draw();
		});
		const cell = totals.has(n) ? merged([totals.get(n)]) : null;
		return element("tr", {}, element("td", { class: "name" }, element("label", {}, box, ` ${flowName(flow)}`)),
			...[(cell?.count ?? 0).toLocaleString("en-US"), latency(cell?.mean), latency(cell?.p99)].map((text) => element("td", {}, text)));
	});
}

function draw() {
	const flows = chosenFlows();
	const cells = shownCells(flows);
	by("chosen").textContent = flows ? `${counted(flows.size, "flows")} chosen` : "all flows";
	by("notes").replaceChildren(...notes(cells, flows).map((text) => element("li", {}, text)));
	by("waterfall").replaceChildren(waterfall(cells));
	by("series-help").textContent = `Full line: the mean; dashed: the p99${flows && flows.size > 1 ? ", of the chosen flow where it is greatest" : ""}. One value in ${latency(data.bin_ms * 1e6)}, on a logarithmic axis.`;
	by("series").replaceChildren(...allSeries(cells));
	by("cdf").replaceChildren(distributions(cells));
	by("hosts-help").textContent = flows ? "Of the chosen flows." : "Of all flows of each host.";
	by("hosts").replaceChildren(hosts(flows));
	const listed = by("list").open;
	by("flows").replaceChildren(...(listed ? flowRows(shownFlows()) : []));
	const asked = new URLSearchParams();
	if (state.filter) asked.set("flows", state.filter);
	if (state.place) asked.set("of", placeName(data.places[state.place]));
	const hash = asked.size ? `#${asked}` : "";
	if (hash !== location.hash) history.replaceState(null, "", hash || location.pathname);
}

// A link to the page may say what is chosen: #flows=TEXT&of=PLACE
function fromLink() {
	const asked = new URLSearchParams(location.hash.slice(1));
	const place = data.places.findIndex((one) => placeName(one) === asked.get("of"));
	if (place >= 0) state.place = place;
	state.filter = asked.get("flows") || "";
	by("filter").value = state.filter;
	by("place").value = String(state.place);
}

function begin() {
	const span = [data.from_ms, data.to_ms].map((ms) => time(ms, [0, 19]));
	const hosts = data.hosts.length ? `${counted(data.hosts.length, "hosts")} (${data.hosts.join(", ")}), ` : "";
	by("about").textContent = `${hosts}${data.rows.length ? `${counted(data.flows_known, "flows")}, ` : ""}from ${span[0]} to ${span[1]} UTC`;
	by("made").textContent = `Made by dwell report at ${data.made}.`;
	document.title = `dwell report${data.hosts.length ? `: ${data.hosts.join(", ")}` : ""}`;
	showVerdicts();
	showGray();
	showLatency();
	showBackends();
	if (!data.rows.length) {
		by("segments").remove();
		return;
	}
	data.places.forEach((place, n) => by("place").append(element("option", { value: n }, placeName(place))));
	by("place").addEventListener("change", () => {
		state.place = Number(by("place").value);
		draw();
	});
	by("filter").addEventListener("input", () => {
		state.filter = by("filter").value.trim();
		draw();
	});
	by("none").addEventListener("click", () => {
		state.marked.clear();
		draw();
	});
	by("list").addEventListener("toggle", draw);
	by("choose").addEventListener("submit", (event) => event.preventDefault());
	by("clocks").replaceChildren(clocks());
	by("losses").replaceChildren(losses());
	addEventListener("hashchange", () => {
		fromLink();
		draw();
	});
	fromLink();
	draw();
}

begin();
