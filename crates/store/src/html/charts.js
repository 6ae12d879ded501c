// Scales, axes and shapes. All text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, ...children) {
	const made = document.createElement(name);
	for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
	made.append(...children);
	return made;
}

function shape(name, attributes, ...children) {
	const made = document.createElementNS(SVG, name);
	for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
	made.append(...children);
	return made;
}

function drawing(width, height, title, description) {
	return shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" },
		shape("title", {}, title), shape("desc", {}, description || ""));
}

// As `dwell stack` writes it: three digits, and the unit that suits.
function latency(ns) {
	if (ns === null || ns === undefined) return "-";
	ns = Math.floor(ns);
	if (ns < 1000) return `${ns} ns`;
	for (const [unit, name] of [[1e3, "µs"], [1e6, "ms"], [1e9, "s"]]) {
		for (const [scale, decimals] of [[100, 2], [10, 1], [1, 0]]) {
			const step = unit / scale;
			const steps = Math.floor(ns / step) + (ns % step >= Math.ceil(step / 2) ? 1 : 0);
			if (steps < 1000) return `${(steps / scale).toFixed(decimals)} ${name}`;
		}
	}
	return `${Math.round(ns / 1e9)} s`;
}

// Of an axis: no more digits than it needs.
function tick(ns) {
	if (ns === 0) return "0";
	for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
		if (ns >= unit) return `${+(ns / unit).toPrecision(4)} ${name}`;
	}
	return `${+ns.toPrecision(3)} ns`;
}

function linear(most, from, to) {
	const top = most > 0 ? most : 1;
	const power = 10 ** Math.floor(Math.log10(top / 4));
	const step = [1, 2, 5, 10].map((n) => n * power).find((n) => top / n <= 4.5) || power * 10;
	const ticks = [];
	for (let value = 0; value <= top * 1.001; value += step) ticks.push(value);
	return { at: (value) => from + (Math.min(Math.max(value, 0), top) / top) * (to - from), ticks };
}

// From a round value below to one above.
function logarithmic(least, most, from, to) {
	const low = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
	const high = Math.max(10 ** Math.ceil(Math.log10(Math.max(most, 1) * 1.0001)), low * 10);
	const span = Math.log(high / low);
	const ticks = [];
	for (let value = low; value <= high * 1.001; value *= 10) ticks.push(value);
	const at = (value) => from + (Math.log(Math.max(value, low) / low) / span) * (to - from);
	return { at, ticks, low, high };
}

// Every n-th, so that labels are at least so far from each other.
function thinned(ticks, at, least) {
	const apart = ticks.length > 1 ? Math.abs(at(ticks[1]) - at(ticks[0])) : least;
	const step = Math.ceil(least / apart - 1e-6);
	return ticks.filter((_, n) => n % step === 0);
}

// A label near an edge stays inside.
function anchor(at, from, to) {
	return at < from + 20 ? "start" : at > to - 24 ? "end" : "middle";
}

// A symbol that is told from others without its colour.
function symbol(kind, x, y, size, attributes) {
	const draw = {
		circle: () => shape("circle", { cx: x, cy: y, r: size, ...attributes }),
		square: () => shape("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, ...attributes }),
		diamond: () => shape("path", { d: `M${x} ${y - size * 1.35}l${size * 1.35} ${size * 1.35}l${-size * 1.35} ${size * 1.35}l${-size * 1.35} ${-size * 1.35}z`, ...attributes }),
		triangle: () => shape("path", { d: `M${x} ${y - size * 1.2}l${size * 1.2} ${size * 2.2}h${-size * 2.4}z`, ...attributes }),
	};
	return (draw[kind] || draw.circle)();
}

const SYMBOLS = ["circle", "square", "diamond", "triangle"];

// Of things side by side, by their number: a symbol and a colour, and the drawing that explains them.
const PALETTE = ["ip-driver", "tcp-socket", "network", "driver-ip", "socket-tcp", "ip-tcp"].map((name) => `var(--c-${name})`);
const lookOf = (index) => ({ kind: SYMBOLS[index % SYMBOLS.length], colour: PALETTE[index % PALETTE.length] });

function keyOf(index) {
	const { kind, colour } = lookOf(index);
	const svg = drawing(14, 14, kind);
	svg.append(symbol(kind, 7, 7, 4.5, { style: `fill:${colour};stroke:${colour}` }));
	return svg;
}

// From the mean, which is hollow, to the p99, which is filled, if it is known.
function span(mean, p99, y, scale, { kind, colour }) {
	const hollow = symbol(kind, scale.at(mean), y, 3.6, { style: `fill:var(--page);stroke:${colour};stroke-width:1.6` });
	if (p99 === null) return [hollow];
	return [shape("line", { x1: scale.at(mean), x2: scale.at(p99), y1: y, y2: y, style: `stroke:${colour};stroke-width:1.5` }), hollow,
		symbol(kind, scale.at(p99), y, 3.6, { style: `fill:${colour};stroke:${colour}` })];
}

// Pieces of a line over time bins, broken where nothing is known.
function broken(points) {
	const pieces = [];
	points.forEach((point, n) => {
		if (n === 0 || point[0] - points[n - 1][0] > 2) pieces.push([]);
		pieces[pieces.length - 1].push(point);
	});
	return pieces;
}

// Lines over two axes: `lines` are { points: [[x, y], …] or pieces, colour, dash, name }.
function lines(options) {
	const { width, height, x, y, title, description, unit } = options;
	const svg = drawing(width, height, title, description);
	for (const value of x.ticks) {
		svg.append(shape("line", { class: "grid", x1: x.at(value), x2: x.at(value), y1: y.top, y2: y.bottom }));
		svg.append(shape("text", { x: x.at(value), y: y.bottom + 15, "text-anchor": anchor(x.at(value), 0, width) }, x.label(value)));
	}
	for (const value of y.ticks) {
		svg.append(shape("line", { class: "grid", x1: x.left, x2: x.right, y1: y.at(value), y2: y.at(value) }));
		svg.append(shape("text", { x: x.left - 6, y: y.at(value) + 4, "text-anchor": "end" }, y.label(value)));
	}
	svg.append(shape("path", { class: "axis", d: `M${x.left} ${y.top}V${y.bottom}H${x.right}` }));
	if (y.title) svg.append(shape("text", { x: 2, y: y.top - 8, class: "key" }, y.title));
	if (unit) svg.append(shape("text", { x: (x.left + x.right) / 2, y: height - 4, "text-anchor": "middle" }, unit));
	for (const line of options.lines) {
		for (const piece of line.pieces) svg.append(polyline(piece, line, x, y));
	}
	return svg;
}

// A piece of a line; a point alone is a dot.
function polyline(piece, line, x, y) {
	const at = piece.map(([px, py]) => [x.at(px).toFixed(1), y.at(py).toFixed(1)]);
	if (at.length === 1) return symbol("circle", at[0][0], at[0][1], 2, { fill: line.colour });
	return shape("polyline", {
		points: at.map((point) => point.join(",")).join(" "), fill: "none", stroke: line.colour,
		"stroke-width": line.width || 1.8, "stroke-dasharray": line.dash || "none", "stroke-linejoin": "round",
	}, shape("title", {}, line.name));
}

// How often what happened when: `cells` are { x: [from, to], y: [from, to], count, name } on two axes, darker where the
// count is greater, on a logarithmic scale; `lines` as above.
function heatmap(options) {
	const { x, y, cells, most } = options;
	const svg = lines({ ...options, lines: [] });
	const drawn = cells.map((cell) => {
		const [left, right] = cell.x.map(x.at);
		const [bottom, top] = cell.y.map(y.at);
		// A little wider than it is: between neighbours no line of the page shows.
		return shape("rect", { x: left.toFixed(1), y: top.toFixed(1), width: Math.max(right - left + 0.3, 2).toFixed(1), height: Math.max(bottom - top + 0.3, 1).toFixed(1), "fill-opacity": shade(cell.count, most).toFixed(3) },
			shape("title", {}, cell.name));
	});
	svg.append(shape("g", { class: "heat" }, ...drawn), ...options.lines.flatMap((line) => line.pieces.map((piece) => polyline(piece, line, x, y))));
	return svg;
}

// How dark a cell is: one of a single count is still seen.
function shade(count, most) {
	return most > 1 ? 0.12 + 0.88 * (Math.log(count) / Math.log(most)) : 1;
}
