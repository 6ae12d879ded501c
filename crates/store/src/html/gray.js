// Gray failures of a fleet, as a table.

const REASONS = {
	"recovered": "it does not differ any more",
	"gone": "nothing is known of it any more",
	"usual": "it lasted for a day, and is usual now",
	"stopped": "the collector stopped",
};

function showGray() {
	if (!data.gray.length) return;
	by("s-gray").hidden = false;
	const shown = (failure, at) => (failure.ns === null ? `${(failure.shares[at] * 100).toFixed(1)} %` : latency(failure.ns[at]));
	const rows = data.gray.map((failure) => element("tr", {},
		element("th", { scope: "row" }, failure.subject), element("td", { class: "name" }, failure.component),
		element("td", {}, time(failure.from_ms, [0, 23])),
		element("td", failure.reason === null ? {} : { title: REASONS[failure.reason] ?? failure.reason }, failure.to_ms === null ? "not known" : time(failure.to_ms, [0, 23])),
		...[0, 2, 3].map((at) => element("td", {}, shown(failure, at))),
		element("td", {}, failure.peers.toLocaleString("en-US")),
		element("td", {}, failure.paths === null ? "" : `${failure.paths[0]} of ${failure.paths[1]}`),
		element("td", {}, failure.per_week.toPrecision(1))));
	const head = ["who", "in what", "from", "to", "is", "expected", "peers' median", "peers", "paths", "by chance per week"];
	const table = element("table", {}, element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))), element("tbody", {}, ...rows));
	const more = data.gray_known > data.gray.length ? [element("p", {}, `${counted(data.gray.length, "gray failures")} of ${data.gray_known.toLocaleString("en-US")} are shown.`)] : [];
	by("gray").replaceChildren(table, ...more);
}
