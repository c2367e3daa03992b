// What stands around the timeline.

function showVerdict(scene) {
  const { run, rank, items, now } = scene;
  const is = condition(run, rank, items, now);
  const { steps, verdict } = rank;
  const lost = lostSeconds(rank);
  const wall = rank.wall_seconds;
  const framework = [rank.framework?.name, rank.framework?.version].filter(Boolean).join(" ");
  const tiles = [
    ["productive", percent(rank.productive_seconds / wall), `${seconds(rank.productive_seconds)} of ${seconds(wall)}`, ""],
    ["lost", percent(lost / wall), `${seconds(lost)} in ${many(rank.totals.stalls, "stall")}`, lost / wall >= 0.05 ? "bad" : "good"],
    ["speed", isKnown(steps.per_second) ? `${steps.per_second.toFixed(2)} it/s` : NOTHING, `${many(steps.count, "step")}`, ""],
    ["step", seconds(steps.median_seconds), `p99 ${seconds(steps.p99_seconds)}${isKnown(steps.variation_ratio) ? `, spread ${percent(steps.variation_ratio)}` : ""}`, ""],
    ["bound by", rank.bound.by, rank.bound.why, ""],
    run.ended === null ? ["running for", seconds(now - run.started), `since ${date(run.started)} ${clock(run.started)}`, ""]
      : ["ran for", seconds(run.ended - run.started), `until ${date(run.ended)} ${clock(run.ended)}`, ""],
  ];
  fill(byId("verdict"), [is, verdict, tiles, steps.reason, run.command, rank.pid, run.user, run.labels, framework], () => [
    h("span", { class: `pill ${is.tone}${is.pulse ? " pulse" : ""}`, role: "status" }, is.word),
    h("h1", {}, capital(verdict.summary || "nothing to tell yet: a verdict needs some steps")),
    h("p", { class: "soft wrap" }, [run.command.join(" "), `pid ${rank.pid}`, framework, run.user, scheduledAs(run.labels)].filter(Boolean).join(" · ")),
    steps.source !== "autograd" && steps.reason
      ? h("p", { class: "meh" }, `${steps.count ? "steps" : "steps cannot be counted"}: ${steps.reason}`) : null,
    h("dl", { class: "tiles" }, tiles.map(([name, value, more, tone]) =>
      h("div", { class: `tile ${tone}` }, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, more) : null)))),
  ]);
  document.title = `${is.short} ${is.pulse ? is.word : `${percent(lost / wall)} lost`} · ${clean(run.run)}`;
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function showAdvice(scene) {
  const told = proposals(scene.rank).filter((one) => one.advice.length);
  fill(byId("advice"), told, () => [
    h("div", { class: "head" }, h("h2", { id: "advice-title" }, "What to change")),
    told.length ? h("div", { class: "cards" }, told.slice(0, 6).map(card))
      : h("p", { class: "empty" }, "Nothing to change: no time was lost that evidence ties to a cause."),
  ]);
}

function card(one) {
  const cost = one.fatal ? "ended the run" : one.seconds ? `${seconds(one.seconds)} lost` : "";
  return h("article", { class: "card", tone: causeTone(one.cause) },
    h("span", { class: "cost" }, cost),
    h("div", { class: "name" }, titleOf("causes", one.cause)),
    h("p", { class: "soft wrap" }, one.summary),
    h("ul", {}, one.advice.map((line) => h("li", {}, line))));
}

function showLedger(scene) {
  const parts = account(scene.rank);
  const did = states(scene.rank);
  fill(byId("ledger"), [parts, did], () => [
    h("div", { class: "head" }, h("h2", { id: "ledger-title" }, "Where the time went"),
      h("span", { class: "soft" }, `${seconds(scene.rank.wall_seconds)} in all, exactly`)),
    stack(parts, scene.rank.wall_seconds, "", "Productive time, phases and lost time by cause"),
    shareList(parts, scene.rank.wall_seconds),
    h("h3", { class: "under" }, "what the training thread did meanwhile"),
    stack(did, scene.rank.wall_seconds, "thin", "States of the training thread"),
    shareList(did, scene.rank.wall_seconds),
  ]);
}

function stack(parts, whole, kind, label) {
  const said = parts.map((part) => `${part.title} ${percent(part.value / whole)}`).join(", ");
  return h("div", { class: `stack ${kind}`, role: "img", "aria-label": `${label}: ${said}` }, parts.map((part) => {
    const pale = part.kind === "lost" ? "" : "pale";
    const words = !kind && part.value / whole > 0.09 ? `${part.title} ${percent(part.value / whole)}` : "";
    return h("span", { tone: part.tone, grow: part.value / whole, class: pale, title: `${part.title}: ${seconds(part.value)}, ${percent(part.value / whole)}` }, words);
  }));
}

function shareList(parts, whole) {
  return h("div", { class: "shares" }, parts.map((part) => h("div", {}, swatch(part.tone),
    h("span", {}, part.title, part.kind === "lost" ? h("span", { class: "soft" }, " · lost") : "", part.kind === "phase" ? h("span", { class: "soft" }, " · phase") : ""),
    h("span", { class: "dots" }), h("span", { class: "num" }, seconds(part.value)), h("span", { class: "num soft" }, percent(part.value / whole)))));
}

function showLegend(scene, hidden, onToggle) {
  const seen = [...new Set(scene.items.map((item) => item.cause))];
  const counts = Object.fromEntries(seen.map((cause) => [cause, scene.items.filter((item) => item.cause === cause).length]));
  fill(byId("legend"), [counts, [...hidden]], () => seen.map((cause) =>
    h("button", { type: "button", tone: causeTone(cause), "aria-pressed": String(!hidden.has(cause)), "data-id": cause, onclick: () => onToggle(cause) },
      swatch(causeTone(cause)), `${titleOf("causes", cause)} (${counts[cause]})`)));
}

const LISTED = 500;

function showEvents(scene, order, onOrder, onChoose) {
  const shown = scene.items.toSorted(order === "longest" ? (a, b) => (b.seconds ?? 0) - (a.seconds ?? 0) : (a, b) => b.start - a.start).slice(0, LISTED);
  const total = scene.rank.totals.stalls;
  fill(byId("events"), [order, shown.map((item) => [item.id, item.until, item.seconds, item.cause, item.summary])], () => [
    h("div", { class: "head" }, h("h2", { id: "events-title" }, "Stalls and events"),
      h("span", { class: "soft" }, scene.rank.stalls.length < total ? `the latest ${scene.rank.stalls.length} of ${total} stalls` : ""), h("span", { class: "grow" }),
      h("span", { class: "tools" }, ["longest", "latest"].map((name) => h("button", { type: "button", "data-id": name, "aria-pressed": String(order === name), onclick: () => onOrder(name) }, name)))),
    shown.length ? eventTable(shown, onChoose) : h("p", { class: "empty" }, "None so far."),
  ]);
  markChosen(scene.chosen);
}

function eventTable(shown, onChoose) {
  return h("div", { class: "scroll" }, h("table", { class: "events" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "when"), h("th", { scope: "col", class: "num" }, "lost"), h("th", { scope: "col" }, "cause"))),
    h("tbody", {}, shown.map((item) => h("tr", { tone: causeTone(item.cause), "data-item": item.id, onclick: () => onChoose(item.id) },
      h("td", { class: "num" }, clock(item.start)),
      h("td", { class: "num" }, item.kind === "event" ? "event" : seconds(item.seconds), item.open ? h("div", { class: "no" }, "open") : null),
      h("td", {}, h("button", { type: "button", "data-id": item.id, "aria-label": `${clock(item.start)}, ${titleOf("causes", item.cause)}, ${item.kind === "event" ? "event" : seconds(item.seconds)}` },
        capital(titleOf("causes", item.cause))), h("div", { class: "what" }, item.summary)))))));
}

function markChosen(id) {
  for (const row of document.querySelectorAll("#events tr[data-item]")) {
    const chosen = row.dataset.item === String(id);
    if (chosen) row.setAttribute("aria-current", "true");
    else row.removeAttribute("aria-current");
    row.classList.toggle("chosen", chosen);
  }
}

function showCheckpoints(scene) {
  const saves = scene.rank.checkpoints.toReversed().slice(0, 50);
  fill(byId("checkpoints"), saves, () => [
    h("div", { class: "head" }, h("h2", { id: "checkpoints-title" }, "Checkpoints"), h("span", { class: "soft" }, many(scene.rank.totals.checkpoints, "save"))),
    saves.length ? h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, ["when", "file", "size", "took", "blocked", "fsync", ""].map((name, place) => h("th", { scope: "col", class: place > 1 && place < 6 ? "num" : "" }, name)))),
      h("tbody", {}, saves.map((save) => h("tr", {}, h("td", { class: "num" }, clock(save.start)), h("td", { class: "wrap", title: save.path }, fileName(save.path)),
        h("td", { class: "num" }, bytes(save.bytes)), h("td", { class: "num" }, seconds(save.seconds)), h("td", { class: "num" }, seconds(save.blocked_seconds)),
        h("td", { class: "num" }, seconds(save.fsync_seconds)), h("td", { class: save.outcome === "complete" ? "ok" : "no" }, save.outcome, save.error ? ` ${save.error}` : ""))))))
      : h("p", { class: "empty" }, "None seen."),
  ]);
}

function showWorkers(scene) {
  const { workers, fds, memory } = scene.rank;
  const bad = workers.exits.filter((exit) => exit.reason !== "finished").toReversed();
  const facts = [["workers", `${number(workers.live)} live, ${number(workers.started)} started, ${number(workers.ended)} ended`],
    ["memory (PSS)", `${bytes(memory.pss_bytes)}, peak ${bytes(memory.pss_peak_bytes)}`],
    ["limit", `${bytes(memory.limit_bytes)}${memory.limit_scope ? ` of the ${memory.limit_scope}` : ""}`], ["in swap", bytes(memory.swap_bytes)],
    ["shared memory", bytes(memory.shm_bytes)], ["open files", `${number(fds.open_peak)} at most, limit ${number(fds.limit)}`]];
  fill(byId("workers"), [facts, bad], () => [
    h("div", { class: "head" }, h("h2", { id: "workers-title" }, "Workers and memory")),
    h("table", {}, h("tbody", {}, facts.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))),
    bad.length ? h("ul", {}, bad.slice(0, 10).map((exit) => h("li", { class: "no" },
      `${clock(exit.time)}: worker ${exit.pid} ${exit.reason}${exit.signal !== null ? ` by signal ${exit.signal}` : ` with code ${exit.code}`}${exit.sender_pid ? ` from pid ${exit.sender_pid}` : ""}`))) : null,
  ]);
}

function showFiles(scene) {
  const { slow_files: slow, logs } = scene.rank;
  const table = (name, rows) => (rows.length ? [h("h3", { class: "under" }, name), h("table", {}, h("tbody", {}, rows.map((row) =>
    h("tr", {}, h("td", { class: "wrap mono" }, row.path), h("td", { class: "num" }, row.reads === undefined ? `${many(row.writes, "write")}, ${bytes(row.bytes)}` : many(row.reads, "read")), h("td", { class: "num" }, seconds(row.seconds))))))] : []);
  fill(byId("files"), [slow, logs], () => [
    h("div", { class: "head" }, h("h2", { id: "files-title" }, "Files")),
    ...table("slow to read", slow.slice(0, 10)), ...table("logs", logs.slice(0, 10)),
    slow.length || logs.length ? null : h("p", { class: "empty" }, "None worth telling."),
  ]);
}

function showSources(scene) {
  const { sources, host, cost, events_lost: dropped } = scene.report;
  const rows = Object.entries(sources);
  fill(byId("sources"), [rows, host.name, dropped, Math.round(cost.cpu_seconds)], () => [
    h("div", { class: "head" }, h("h2", { id: "sources-title" }, "What could be seen"),
      h("span", { class: "soft" }, `${host.name} · Linux ${host.kernel} · ${many(host.cpus, "CPU")} · ${bytes(host.memory_bytes)}`)),
    h("table", {}, h("tbody", {}, rows.map(([name, source]) => h("tr", {}, h("th", { scope: "row" }, name),
      h("td", { class: source.state === "up" ? "ok" : source.state === "error" ? "no" : "meh" }, source.state),
      h("td", { class: "wrap" }, source.reason, source.remedy ? h("div", { class: "soft" }, `to mend it: ${source.remedy}`) : null))))),
    h("p", { class: "soft" }, `Watching cost ${seconds(cost.cpu_seconds)} of CPU${isKnown(cost.start_seconds) ? ` (${seconds(cost.start_seconds)} of it to start)` : ""}${isKnown(cost.share_of_run) ? `, ${percent(cost.share_of_run)} of one CPU since the start,` : ""} and ${bytes(cost.rss_bytes)} of memory${dropped ? `; ${many(dropped, "event")} lost` : ""}.`),
  ]);
}
