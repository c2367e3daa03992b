// Puts the parts together: what is chosen, when it is asked for again, what is said when that fails.

const feed = new Feed();
const timeline = new Timeline(choose);
const shown = { run: null, rank: null, item: null, order: "longest", paused: false, scene: null, failed: 0, touched: false };
const LATE_SECONDS = 12;
const THEMES = ["", "light", "dark"];
const COLOURS = { "": word("Colours: as the system"), light: word("Colours: light"), dark: word("Colours: dark") };

function chosenRun(report) {
  return report.runs.find((run) => run.key === shown.run) ?? report.runs.findLast((run) => run.ended === null) ?? report.runs.at(-1);
}

function draw() {
  const { report } = feed;
  const run = report && chosenRun(report);
  byId("main").hidden = !run;
  if (!run) {
    if (report) trouble(say("No training has been seen yet{problems}. Start one: it is found by itself within seconds.", { problems: problemsOf(report) }));
    return;
  }
  const found = run.ranks.find((one) => one.name === shown.rank) ?? run.ranks[0];
  if (!found) return;
  const rank = { ...found, stalls: feed.stallsOf(run.key, found) };
  const fresh = shown.scene?.run.key !== run.key || shown.scene?.rank.name !== rank.name;
  Object.assign(shown, { run: run.key, rank: rank.name });
  const now = run.ended ?? report.generated;
  const items = happenings(rank, now);
  if (fresh && !shown.touched) shown.item = remarkable(items);
  const scene = { report, run, rank, items, now, rows: feed.rowsOf(run.key, rank.name), samples: feed.samplesOf(run.key, rank), chosen: shown.item };
  shown.scene = scene;
  showPickers(report, run, rank);
  showVerdict(scene);
  showAdvice(scene);
  showLedger(scene);
  showLegend(scene, timeline.hidden, toggle);
  timeline.show(scene, fresh);
  showEvents(scene, shown.order, reorder, (id) => choose(id, true));
  showDetails(scene, timeline);
  showCheckpoints(scene);
  showWorkers(scene);
  showFiles(scene);
  showSources(scene);
  showFresh();
}

// What to look at first: the open stall, else what ended the run, else the longest.
function remarkable(items) {
  const open = items.findLast((item) => item.open);
  const longest = items.filter((item) => item.kind === "stall").sort((a, b) => b.seconds - a.seconds)[0];
  return (open ?? longest ?? items.at(-1))?.id ?? null;
}

function problemsOf(report) {
  const down = Object.entries(report.sources).filter(([name, source]) => source.state === "error" || (name === "bpf" && source.state !== "up"));
  return down.length ? ` (${down.map(([name, source]) => clean(`${name}: ${source.reason}`)).join("; ")})` : "";
}

function showPickers(report, run, rank) {
  const named = report.runs.map((one) => [one.key, one.ended === null ? say("running") : say("ended {end}", { end: clock(one.ended) })]);
  fill(byId("run"), named, () => named.toReversed().map(([name, state]) => h("option", { value: name }, `${name} · ${state}`)));
  byId("run").value = run.key;
  const ranks = run.ranks.map((one) => [one.name, percent(lostSeconds(one) / Math.max(one.wall_seconds, 1e-9))]);
  fill(byId("rank"), ranks, () => ranks.map(([name, lost]) => h("option", { value: name }, `${name} · ${say("{share} lost", { share: lost })}`)));
  byId("rank").value = rank.name;
  byId("rank-pick").hidden = run.ranks.length < 2;
}

function choose(id, opens) {
  shown.item = id;
  shown.touched = true;
  const { scene } = shown;
  if (!scene) return;
  scene.chosen = id;
  timeline.select(id);
  markChosen(id);
  showDetails(scene, timeline);
  keepAddress();
  const item = scene.items.find((one) => one.id === id);
  byId("said").textContent = item ? `${clock(item.start)}: ${titleOf("causes", item.cause)}${item.kind === "stall" ? `, ${say("{time} lost", { time: seconds(item.seconds) })}` : ""}. ${clean(item.summary)}` : say("Nothing chosen.");
  if (opens && item && window.matchMedia("(max-width: 980px)").matches) byId("details").scrollIntoView({ block: "start" });
}

function toggle(cause) {
  if (!timeline.hidden.delete(cause)) timeline.hidden.add(cause);
  showLegend(shown.scene, timeline.hidden, toggle);
  timeline.plan();
}

function reorder(order) {
  shown.order = order;
  showEvents(shown.scene, order, reorder, (id) => choose(id, true));
}

// The address says what is looked at, so that it can be sent to somebody.
function keepAddress() {
  const told = new URLSearchParams({ run: shown.run ?? "", rank: shown.rank ?? "", ...(shown.item ? { stall: shown.item } : {}) });
  history.replaceState(null, "", `${location.pathname}${location.search}#${told}`);
}

function readAddress() {
  const told = new URLSearchParams(location.hash.slice(1));
  shown.run = told.get("run");
  shown.rank = told.get("rank");
  shown.item = told.get("stall");
  shown.touched = shown.item !== null;
}

async function refresh() {
  try {
    await feed.refresh();
    const run = chosenRun(feed.report);
    const rank = run?.ranks.find((one) => one.name === shown.rank) ?? run?.ranks[0];
    if (rank) await feed.history(run.key, rank.name, rank.totals.stalls, rank.stalls.length);
    shown.failed = 0;
    trouble("");
    draw();
    if (rank && await feed.refine(run.key, rank.name, timeline.axis.from)) draw();
  } catch (error) {
    shown.failed += 1;
    if (error instanceof Refused) trouble(say("The token is no longer good. Run “trainprobe page” on that host and open the address that it prints."));
    else trouble(gone(error));
    showFresh();
  }
}

// Without an answer at all there is no exporter any more, or no way to it; else it said why.
function gone(error) {
  if (error instanceof TypeError) return say("The exporter is gone, or cannot be reached. What is shown is old; trying again. On that host: systemctl status trainprobe-exporter");
  return say("No answer from the exporter ({reason}). What is shown is old; trying again.", { reason: clean(error.message).slice(0, 300) });
}

function trouble(text) {
  const place = byId("trouble");
  place.hidden = !text;
  if (place.textContent !== text) place.textContent = text;
}

function showFresh() {
  const place = byId("fresh");
  const { report } = feed;
  if (!report) return;
  const age = feed.age();
  const late = feed.isLive && (age > LATE_SECONDS || shown.failed > 0);
  place.className = `fresh ${feed.isLive && !shown.paused ? (late ? "late" : "live") : ""}`;
  const text = !feed.isLive ? say("report of {time}", { time: `${date(report.generated)} ${clock(report.generated)}` }) : shown.paused ? say("paused at {time}", { time: clock(report.generated) }) : late ? say("no news for {time}", { time: seconds(age) }) : say("live");
  if (place.textContent !== text) place.textContent = text;
}

async function keepRefreshing() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS * Math.min(2 ** shown.failed, 8)));
    if (!shown.paused && !document.hidden) await refresh();
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-label", say(COLOURS[theme]));
  byId("theme").textContent = { light: "☀", dark: "☾" }[theme] ?? "◐";
  palette.clear();
  timeline.plan();
  if (shown.scene) { byId("details").told = null; showDetails(shown.scene, timeline); }
}

function begin() {
  readAddress();
  byId("run").addEventListener("change", (event) => { Object.assign(shown, { run: event.target.value, rank: null, item: null, touched: false }); keepAddress(); draw(); refresh(); });
  byId("rank").addEventListener("change", (event) => { Object.assign(shown, { rank: event.target.value, item: null, touched: false }); keepAddress(); draw(); refresh(); });
  byId("pause").addEventListener("click", () => { shown.paused = !shown.paused; byId("pause").setAttribute("aria-pressed", String(shown.paused)); showFresh(); });
  byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "") + 1) % THEMES.length]));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(document.documentElement.dataset.theme ?? ""));
  byId("foot").textContent = say("trainprobe reads the kernel's own accounting; what was not measured is shown as –, never as 0. Times are those of this browser's time zone.");
  byId("pause").hidden = !feed.isLive;
  refresh().then(() => { performance.mark("trainprobe-drawn"); if (feed.isLive) keepRefreshing(); });
}

begin();
