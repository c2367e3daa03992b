// What stands around the timeline.

function showVerdict(scene) {
  const { run, rank, items, now } = scene;
  const is = condition(run, rank, items, now);
  const { steps, verdict } = rank;
  const lost = lostSeconds(rank);
  const wall = rank.wall_seconds;
  const framework = [rank.framework?.name, rank.framework?.version].filter(Boolean).join(" ");
  const tiles = [
    [say("productive"), percent(rank.productive_seconds / wall), say("{part} of {whole}", { part: seconds(rank.productive_seconds), whole: seconds(wall) }), ""],
    [say("lost"), percent(lost / wall), say("{lost}, {stalls}", { lost: seconds(lost), stalls: many(rank.totals.stalls, "{number} stall", "{number} stalls") }), lost / wall >= 0.05 ? "bad" : "good"],
    [say("speed"), isKnown(steps.per_second) ? `${steps.per_second.toFixed(2)} it/s` : NOTHING, many(steps.count, "{number} step", "{number} steps"), ""],
    [say("step"), seconds(steps.median_seconds), `p99 ${seconds(steps.p99_seconds)}${isKnown(steps.variation_ratio) ? say(", variation {ratio}", { ratio: percent(steps.variation_ratio) }) : ""}`, ""],
    [say("bound by"), say(rank.bound.by), rank.bound.why, ""],
    run.ended === null ? [say("running for"), seconds(now - run.started), say("since {start}", { start: `${date(run.started)} ${clock(run.started)}` }), ""]
      : [say("ran for"), seconds(run.ended - Math.min(run.started, rank.started ?? run.started)), say("until {end}", { end: `${date(run.ended)} ${clock(run.ended)}` }), ""],
  ];
  fill(byId("verdict"), [is, verdict, tiles, steps.reason, run.command, rank.pid, run.user, run.labels, framework], () => [
    h("span", { class: `pill ${is.tone}${is.pulse ? " pulse" : ""}`, role: "status" }, is.word),
    h("h1", {}, capital(verdict.summary || say("nothing to tell yet: a verdict needs some steps"))),
    h("p", { class: "soft wrap" }, [run.command.join(" "), `pid ${rank.pid}`, framework, run.user, scheduledAs(run.labels)].filter(Boolean).join(" · ")),
    steps.source !== "autograd" && steps.reason
      ? h("p", { class: "meh" }, say(steps.count ? "steps: {reason}" : "steps cannot be counted: {reason}", { reason: steps.reason })) : null,
    h("dl", { class: "tiles" }, tiles.map(([name, value, more, tone]) =>
      h("div", { class: `tile ${tone}` }, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, more) : null)))),
  ]);
  document.title = `${is.short} ${is.pulse ? is.word : say("{share} lost", { share: percent(lost / wall) })} · ${clean(run.run)}`;
}

// The first letter of a sentence. Chinese has no capitals: where such a sentence begins with a letter, it is a name's.
function capital(text) {
  return READER === "en" ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

function showAdvice(scene) {
  const told = proposals(scene.rank).filter((one) => one.advice.length);
  fill(byId("advice"), told, () => [
    h("div", { class: "head" }, h("h2", { id: "advice-title" }, say("What to change"))),
    told.length ? h("div", { class: "cards" }, told.slice(0, 6).map(card))
      : h("p", { class: "empty" }, say("Nothing to change: no time was lost that evidence ties to a cause.")),
  ]);
}

function card(one) {
  const cost = one.fatal ? say("ended the run") : one.seconds ? say("{time} lost", { time: seconds(one.seconds) }) : "";
  return h("article", { class: "card", tone: causeTone(one.cause) },
    h("span", { class: "cost" }, cost),
    h("div", { class: "name" }, titleOf("causes", one.cause)),
    h("p", { class: "soft wrap" }, one.summary),
    h("ul", {}, one.advice.map((line) => h("li", {}, line))));
}

function showLedger(scene) {
  const parts = account(scene.rank);
  const did = states(scene.rank);
  const start = starting(scene.rank);
  const whole = sum(start.map((part) => part.value));
  const restored = scene.rank.restores ?? [];
  const job = goodput(scene.run);
  const jobWall = sum(job.map((part) => part.value));
  const attempts = scene.run.goodput?.attempt ?? 1;
  fill(byId("ledger"), [parts, did, start, restored, job, attempts], () => [
    h("div", { class: "head" }, h("h2", { id: "ledger-title" }, say("Where the time went")),
      h("span", { class: "soft" }, say("{time} in all, exactly", { time: seconds(scene.rank.wall_seconds) }))),
    stack(parts, scene.rank.wall_seconds, "", say("Productive time, phases and lost time by cause")),
    shareList(parts, scene.rank.wall_seconds),
    h("h3", { class: "under" }, say("what the training thread did meanwhile")),
    stack(did, scene.rank.wall_seconds, "thin", say("States of the training thread")),
    shareList(did, scene.rank.wall_seconds),
    ...(start.length ? [
      h("h3", { class: "under" }, say("the time to the first step: {time}", { time: seconds(whole) })),
      stack(start, whole, "thin", say("Time to the first step")),
      shareList(start, whole),
      ...restored.filter((one) => isKnown(one.seconds)).map((one) =>
        h("p", { class: "soft wrap" }, say("restoring {path}: {time}, {size} read", { path: one.path, time: seconds(one.seconds), size: bytes(one.bytes) }))),
    ] : []),
    ...(job.length ? [
      h("h3", { class: "under" }, say(attempts > 1 ? "goodput of the job over {attempts} attempts, {time} in all" : "goodput of the job, {time} in all", { attempts, time: seconds(jobWall) })),
      stack(job, jobWall, "thin", say("Goodput")),
      shareList(job, jobWall),
    ] : []),
  ]);
}

function stack(parts, whole, kind, label) {
  const said = parts.map((part) => `${part.title} ${percent(part.value / whole)}`).join(say(", "));
  return h("div", { class: `stack ${kind}`, role: "img", "aria-label": `${label}: ${said}` }, parts.map((part) => {
    const pale = part.kind === "lost" ? "" : "pale";
    const words = !kind && part.value / whole > 0.09 ? `${part.title} ${percent(part.value / whole)}` : "";
    return h("span", { tone: part.tone, grow: part.value / whole, class: pale, title: `${part.title}: ${seconds(part.value)}, ${percent(part.value / whole)}` }, words);
  }));
}

function shareList(parts, whole) {
  return h("div", { class: "shares" }, parts.map((part) => h("div", {}, swatch(part.tone),
    h("span", {}, part.title, part.kind === "lost" ? h("span", { class: "soft" }, ` · ${say("lost")}`) : "", part.kind === "phase" ? h("span", { class: "soft" }, ` · ${say("phase")}`) : ""),
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
    h("div", { class: "head" }, h("h2", { id: "events-title" }, say("Stalls and events")),
      h("span", { class: "soft" }, scene.rank.stalls.length < total ? say("the latest {shown} of {total} stalls", { shown: scene.rank.stalls.length, total }) : ""), h("span", { class: "grow" }),
      h("span", { class: "tools" }, ["longest", "latest"].map((name) => h("button", { type: "button", "data-id": name, "aria-pressed": String(order === name), onclick: () => onOrder(name) }, say(name))))),
    shown.length ? eventTable(shown, onChoose) : h("p", { class: "empty" }, say("None so far.")),
  ]);
  markChosen(scene.chosen);
}

function eventTable(shown, onChoose) {
  return h("div", { class: "scroll" }, h("table", { class: "events" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, say("when")), h("th", { scope: "col", class: "num" }, say("lost")), h("th", { scope: "col" }, say("cause")))),
    h("tbody", {}, shown.map((item) => h("tr", { tone: causeTone(item.cause), "data-item": item.id, onclick: () => onChoose(item.id) },
      h("td", { class: "num" }, clock(item.start)),
      h("td", { class: "num" }, item.kind === "event" ? say("event") : seconds(item.seconds), item.open ? h("div", { class: "no" }, say("open")) : null),
      h("td", {}, h("button", { type: "button", "data-id": item.id, "aria-label": `${clock(item.start)}, ${titleOf("causes", item.cause)}, ${item.kind === "event" ? say("event") : seconds(item.seconds)}` },
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
    h("div", { class: "head" }, h("h2", { id: "checkpoints-title" }, say("Checkpoints")), h("span", { class: "soft" }, savesAndFiles(scene.rank))),
    saves.length ? h("div", { class: "scroll" }, h("table", {},
      h("thead", {}, h("tr", {}, [say("when"), say("file"), say("size"), say("took"), say("blocked"), "fsync", ""].map((name, place) => h("th", { scope: "col", class: place > 1 && place < 6 ? "num" : "" }, name)))),
      h("tbody", {}, saves.map((save) => h("tr", {}, h("td", { class: "num" }, clock(save.start)), h("td", { class: "wrap", title: save.path }, fileName(save.path)),
        h("td", { class: "num" }, bytes(save.bytes)), h("td", { class: "num" }, seconds(save.seconds)), h("td", { class: "num" }, seconds(save.blocked_seconds)),
        h("td", { class: "num" }, seconds(save.fsync_seconds)), h("td", { class: save.outcome === "complete" ? "ok" : "no" }, say(save.outcome), save.error ? ` ${save.error}` : ""))))))
      : h("p", { class: "empty" }, say("None seen.")),
  ]);
}

function showWorkers(scene) {
  const { workers, fds, memory } = scene.rank;
  const bad = workers.exits.filter((exit) => exit.reason !== "finished").toReversed();
  const facts = [[say("workers"), say("{started} started, {ended} ended, {live} alive", { live: number(workers.live), started: number(workers.started), ended: number(workers.ended) })],
    [say("memory (PSS)"), say("{now}, {peak} at most", { now: bytes(memory.pss_bytes), peak: bytes(memory.pss_peak_bytes) })],
    [say("limit"), `${bytes(memory.limit_bytes)}${memory.limit_scope ? ` (${say(memory.limit_scope)})` : ""}`], [say("in swap"), bytes(memory.swap_bytes)],
    [say("shared memory"), bytes(memory.shm_bytes)], [say("open files"), say("{peak} at most, limit {limit}", { peak: number(fds.open_peak), limit: number(fds.limit) })]];
  fill(byId("workers"), [facts, bad], () => [
    h("div", { class: "head" }, h("h2", { id: "workers-title" }, say("Workers and memory"))),
    h("table", {}, h("tbody", {}, facts.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value))))),
    bad.length ? h("ul", {}, bad.slice(0, 10).map((exit) => h("li", { class: "no" },
      `${clock(exit.time)}: worker ${exit.pid} ${say(exit.reason)}: ${exit.signal !== null ? say("signal {signal}", { signal: exit.signal }) : say("code {code}", { code: exit.code })}${exit.sender_pid ? say(", sent by pid {pid}", { pid: exit.sender_pid }) : ""}`))) : null,
  ]);
}

function showFiles(scene) {
  const { slow_files: slow, logs } = scene.rank;
  const table = (name, rows) => (rows.length ? [h("h3", { class: "under" }, name), h("table", {}, h("tbody", {}, rows.map((row) =>
    h("tr", {}, h("td", { class: "wrap mono" }, row.path), h("td", { class: "num" }, row.reads === undefined ? `${many(row.writes, "{number} write", "{number} writes")}, ${bytes(row.bytes)}` : many(row.reads, "{number} read", "{number} reads")), h("td", { class: "num" }, seconds(row.seconds))))))] : []);
  fill(byId("files"), [slow, logs], () => [
    h("div", { class: "head" }, h("h2", { id: "files-title" }, say("Files"))),
    ...table(say("slow to read"), slow.slice(0, 10)), ...table(say("logs"), logs.slice(0, 10)),
    slow.length || logs.length ? null : h("p", { class: "empty" }, say("None worth telling.")),
  ]);
}

function showSources(scene) {
  const { sources, host, cost, events_lost: dropped } = scene.report;
  const rows = Object.entries(sources);
  fill(byId("sources"), [rows, host.name, dropped, Math.round(cost.cpu_seconds)], () => [
    h("div", { class: "head" }, h("h2", { id: "sources-title" }, say("What could be seen")),
      h("span", { class: "soft" }, `${host.name} · Linux ${host.kernel} · ${many(host.cpus, "{number} CPU", "{number} CPUs")} · ${bytes(host.memory_bytes)}`)),
    h("table", {}, h("tbody", {}, rows.map(([name, source]) => h("tr", {}, h("th", { scope: "row" }, name),
      h("td", { class: source.state === "up" ? "ok" : source.state === "error" ? "no" : "meh" }, say(source.state)),
      h("td", { class: "wrap" }, source.reason, source.remedy ? h("div", { class: "soft" }, say("to mend it: {remedy}", { remedy: source.remedy })) : null))))),
    h("p", { class: "soft" }, watching(cost, dropped)),
  ]);
}

function ofIt(cost) {
  if (!isKnown(cost.start_seconds)) return "";
  const start = seconds(cost.start_seconds);
  return cost.stacks_seconds ? say(" ({start} of it to start, {stacks} to read stacks)", { start, stacks: seconds(cost.stacks_seconds) })
    : say(" ({spent} of it to start)", { spent: start });
}

function watching(cost, dropped) {
  const parts = [
    say("{spent} of CPU", { spent: seconds(cost.cpu_seconds) }) + ofIt(cost),
    isKnown(cost.bpf_seconds) ? say("{spent} in the kernel", { spent: seconds(cost.bpf_seconds) }) : "",
    isKnown(cost.share_of_run) ? say("{share} of one CPU after the start", { share: percent(cost.share_of_run) }) : "",
    `${Math.round(cost.rss_bytes / 1e6)} MB`, dropped ? many(dropped, "{number} event lost", "{number} events lost") : "",
  ];
  return say("cost of watching: {cost}", { cost: parts.filter(Boolean).join(say(", ")) });
}
