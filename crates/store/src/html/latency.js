// What verbs other than the collector have stored: verdicts, latency over time, and who is slow.

// Of each kind of latency: what it is, and what its figures are counted in.
const KINDS = {
	"rtt.sample latency": ["Round trips", "round trips"],
	"rtt.aggregate latency": ["Round trips by prefix", "round trips"],
	"rtt.summary latency": ["Round trips of whole runs", "round trips"],
	"response.epoch latency": ["Response latency", "responses"],
	"run.socket sender_delay": ["Wait in the send buffer", "polls"],
	"run.socket receiver_delay": ["Wait in the receive buffer", "polls"],
	"run.socket network_rtt": ["Round trips that the kernel measured", "intervals"],
	"top.row rtt_ns": ["Round trips on the screen", "intervals"],
	"top.row response_ns": ["Response latency on the screen", "intervals"],
	"top.row send_buffer_ns": ["Wait in the send buffer, on the screen", "intervals"],
	"run.summary sender_delay": ["Wait in the send buffer, of whole runs", "polls"],
	"run.summary receiver_delay": ["Wait in the receive buffer, of whole runs", "polls"],
	"run.summary network_rtt": ["Round trips that the kernel measured, of whole runs", "runs"],
};
const kindOf = (set) => KINDS[`${set.kind} ${set.what}`] || [`${set.kind} ${set.what}`, "latencies"];
const setName = (set) => `${kindOf(set)[0]} (${set.methods.length && set.methods.length < 4 ? `${set.methods.join(", ")}; ` : ""}${set.kind})`;

const unitName = (set) => (kindOf(set)[1] === "round trips" ? "round-trip time" : kindOf(set)[0].toLowerCase());

const ranked = { set: 0, by: "flow", key: "p99_ns", down: true };
const COLUMNS = [["name", ""], ["note", "names"], ["host", "host"], ["count", "count"], ["mean_ns", "mean"], ["p50_ns", "p50"], ["p90_ns", "p90"], ["p99_ns", "p99"], ["max_ns", "max"]];
const IS_TEXT = new Set(["name", "note", "host"]);
const BY = { flow: "flows", prefix: "prefixes", peer: "peers", process: "processes" };

function showLatency() {
	if (!data.latency) return;
	by("s-latency").hidden = false;
	data.latency.sets.forEach((set, n) => by("set").append(element("option", { value: n }, setName(set))));
	by("set").addEventListener("change", () => {
		ranked.set = Number(by("set").value);
		drawLatency();
	});
	by("pick").addEventListener("submit", (event) => event.preventDefault());
	drawLatency();
}

function drawLatency() {
	const set = data.latency.sets[ranked.set];
	const [, unit] = kindOf(set);
	by("heat").replaceChildren(heat(set));
	const told = [`${set.count.toLocaleString("en-US")} ${unit}. The stronger the colour, the more ${unit} took so long at that time. Latency and colour have logarithmic scales.`];
	if (set.are_means) told.push("Means of intervals: of these no distribution is known.");
	if (set.invalid) told.push(`${counted(set.invalid, "estimates")} that should not be believed ${set.invalid === 1 ? "is" : "are"} left out.`);
	by("heat-help").textContent = told.join(" ");
	drawRanking(set);
}

// Latency over time.
function heat(set) {
	if (!set.cells.length) return empty("The summary of a run has no moment: nothing over time.");
	const [width, height, right] = [1000, 380, 800];
	const { edges } = data.latency;
	const bands = set.cells.map(([, band]) => band);
	const [first, last] = [Math.min(...bands), Math.max(...bands)];
	const scale = logarithmic(edges[first], edges[last + 1] ?? edges[last] * 2, height - 44, 28);
	const most = Math.max(...set.cells.map(([, , count]) => count));
	const x = timeAxis(64, right);
	const moment = (bin) => Math.min(data.from_ms + bin * data.bin_ms, data.to_ms);
	const cells = set.cells.map(([bin, band, count]) => {
		const [low, high] = [edges[band], edges[band + 1] ?? edges[band] * 2];
		const name = `${time(moment(bin), [11, 19])}, ${tick(low)} to ${tick(high)}: ${count.toLocaleString("en-US")}`;
		return { x: [moment(bin), moment(bin + 1)], y: [low, high], count, name };
	});
	const middle = (bin) => (moment(bin) + moment(bin + 1)) / 2;
	const pieces = (index) => broken(set.times).map((piece) => piece.map((bin) => [middle(bin[0]), bin[index]]));
	const drawn = [
		{ pieces: pieces(4), colour: "var(--mark)", dash: "6 3", width: 1.8, name: "p99" },
		{ pieces: pieces(3), colour: "var(--mark)", width: 1.8, name: "p50" },
	];
	const svg = heatmap({
		width, height, cells, most, lines: drawn, x, unit: "time of day, UTC", title: `${kindOf(set)[0]} over time`,
		description: `${set.count} ${kindOf(set)[1]} from ${latency(edges[first])} to ${latency(edges[last + 1])}`,
		y: { title: unitName(set), top: 28, bottom: height - 44, at: scale.at, ticks: thinned(scale.ticks, scale.at, 20), label: tick },
	});
	legend(svg, right + 20, drawn, most, kindOf(set)[1]);
	return element("figure", {}, svg);
}

// What lines and shades mean.
function legend(svg, left, drawn, most, unit) {
	drawn.forEach((line, index) => {
		const y = 40 + 21 * index;
		svg.append(shape("line", { x1: left, x2: left + 34, y1: y, y2: y, stroke: line.colour, "stroke-width": line.width, "stroke-dasharray": line.dash || "none" }),
			shape("text", { x: left + 42, y: y + 4, class: "key" }, line.name));
	});
	svg.append(shape("text", { x: left, y: 98, class: "key" }, `${unit} in a cell`));
	const steps = most > 1 ? [...new Set([1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8].filter((count) => count < most).concat(most))].slice(-6) : [1];
	steps.forEach((count, index) => {
		const y = 108 + 20 * index;
		svg.append(shape("g", { class: "heat" }, shape("rect", { x: left, y, width: 34, height: 16, "fill-opacity": shade(count, most).toFixed(3) })),
			shape("text", { x: left + 42, y: y + 12, class: "key" }, count.toLocaleString("en-US")));
	});
}

function drawRanking(set) {
	const kinds = Object.keys(BY).filter((name) => set.groups.some((group) => group.by === name));
	if (!kinds.includes(ranked.by)) ranked.by = kinds[0];
	by("by").replaceChildren(...kinds.map((name) => {
		const button = element("button", { type: "button", "aria-pressed": String(name === ranked.by) }, BY[name]);
		button.addEventListener("click", () => {
			ranked.by = name;
			drawRanking(set);
		});
		return button;
	}));
	const groups = set.groups.filter((group) => group.by === ranked.by);
	const told = ["Sorted by the column that is marked; click on another column's heading."];
	if (ranked.by === "flow" && groups.length < set.flows) told.push(`${counted(groups.length, "flows")} of ${set.flows.toLocaleString("en-US")} are shown: those with the greatest p99.`);
	const unranked = set.unranked[ranked.by === "prefix" ? "flow" : ranked.by];
	if (unranked) told.push(`Incomplete: ${unranked.toLocaleString("en-US")} ${kindOf(set)[1]} are of no ${ranked.by} that was kept apart.`);
	by("ranking-help").textContent = told.join(" ");
	if (!groups.length) {
		by("ranking").replaceChildren(empty("Nothing was kept apart."));
		return;
	}
	const shown = COLUMNS.filter(([key]) => !IS_TEXT.has(key) || key === "name" || groups.some((group) => group[key]));
	const compare = (one, other) => (IS_TEXT.has(ranked.key) ? String(one[ranked.key] ?? "").localeCompare(String(other[ranked.key] ?? "")) : one[ranked.key] - other[ranked.key]);
	groups.sort((one, other) => (ranked.down ? -1 : 1) * compare(one, other));
	const head = shown.map(([key, title]) => rankingHead(set, key, title || ranked.by));
	const greatest = Math.max(...groups.map((group) => group.p99_ns), 1);
	const rows = groups.map((group) => element("tr", { "data-rank": group.name }, ...shown.map(([key]) => rankingCell(group, key)), element("td", { class: "chart" }, share(group, greatest))));
	by("ranking").replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...head, element("th", { scope: "col", class: "left" }, `p50 and p99, to ${latency(greatest)}`))), element("tbody", {}, ...rows)));
}

function rankingHead(set, key, title) {
	const isSorted = ranked.key === key;
	const button = element("button", { type: "button" }, `${title}${isSorted ? (ranked.down ? " ↓" : " ↑") : ""}`);
	button.addEventListener("click", () => {
		ranked.down = isSorted ? !ranked.down : !IS_TEXT.has(key);
		ranked.key = key;
		drawRanking(set);
	});
	return element("th", { scope: "col", class: IS_TEXT.has(key) ? "left" : "", "aria-sort": isSorted ? (ranked.down ? "descending" : "ascending") : "none" }, button);
}

function rankingCell(group, key) {
	if (IS_TEXT.has(key)) return element("td", { class: "name" }, group[key] ?? "");
	return element("td", {}, key === "count" ? group.count.toLocaleString("en-US") : latency(group[key]));
}

// The p50 and the p99 of a line as a bar.
function share(group, greatest) {
	const scale = (ns) => 2 + (ns / greatest) * (BAR - 4);
	const svg = drawing(BAR, 20, `${group.name}: p50 ${latency(group.p50_ns)}, p99 ${latency(group.p99_ns)}`);
	svg.append(shape("g", { class: "heat" },
		shape("rect", { x: 2, y: 6, width: Math.max(scale(group.p99_ns) - 2, 1.5).toFixed(1), height: 8, "fill-opacity": 0.35 }),
		shape("rect", { x: 2, y: 6, width: Math.max(scale(group.p50_ns) - 2, 1.5).toFixed(1), height: 8 })));
	return svg;
}

function showVerdicts() {
	if (!data.verdicts.length) return;
	by("s-verdicts").hidden = false;
	by("verdicts").replaceChildren(...data.verdicts.map((verdict) => {
		const parts = (verdict.parts || []).filter((part) => part.share >= 0.005);
		const facts = (verdict.facts || []).map((fact) => element("li", {}, `${fact.what}: ${figure(fact)} (${fact.method})${fact.speaks_for ? "" : ", against it"}`));
		const remedies = (verdict.remedies || []).map((remedy) => element("li", {}, element("code", {}, remedy.command), ` ${remedy.effect}`));
		const sure = verdict.certainty ? `, ${verdict.certainty}` : "";
		return element("article", { class: "verdict" },
			element("p", { class: "faint" }, `${time(verdict.time_ms, [0, 19])} UTC, ${verdict.target}${verdict.host ? ` on ${verdict.host}` : ""}${sure}`),
			element("p", { class: "sentence" }, verdict.sentence),
			...(parts.length ? [partsBar(parts), element("p", { class: "faint" }, parts.map((part) => `${part.part} ${(part.share * 100).toFixed(0)} %`).join(", "))] : []),
			...(facts.length || remedies.length ? [element("details", {}, element("summary", {}, "Evidence and remedies"), element("ul", {}, ...facts), element("ul", {}, ...remedies))] : []));
	}));
	if (data.verdicts_known > data.verdicts.length) by("verdicts").append(element("p", {}, `The latest ${data.verdicts.length} of ${data.verdicts_known.toLocaleString("en-US")}.`));
}

function figure(fact) {
	if (fact.ns !== null) return latency(fact.ns);
	if (fact.share !== null) return `${(fact.share * 100).toFixed(1)} %`;
	return (fact.count ?? fact.bytes ?? "not known").toLocaleString("en-US");
}

// Where the time went, as shares of one bar.
function partsBar(parts) {
	const width = 600;
	const palette = ["socket-tcp", "tcp-ip", "ip-driver", "network", "driver-ip", "ip-tcp", "tcp-socket"].map((name) => `var(--c-${name})`);
	const svg = drawing(width, 18, parts.map((part) => `${part.part} ${(part.share * 100).toFixed(0)} %`).join(", "));
	let at = 0;
	parts.forEach((part, index) => {
		const length = part.share * width;
		svg.append(shape("rect", { x: at.toFixed(1), y: 0, width: Math.max(length - 1, 0.5).toFixed(1), height: 18, style: `fill:${palette[index % palette.length]}` }, shape("title", {}, `${part.part} ${(part.share * 100).toFixed(1)} %`)));
		at += length;
	});
	return svg;
}
