// One rank of a report -> what panels and timeline tell of it. Pure functions of the report.

const UNOPENED = say("no end yet");

// Stalls and events of a rank in the order of time. An event has no seconds; an open stall lasts until `now`.
function happenings(rank, now) {
  const stalls = rank.stalls.map((stall) => ({
    ...stall, kind: "stall", until: stall.end ?? Math.max(now, stall.start), open: stall.end === null,
  }));
  const events = rank.warnings.map((event, place) => ({
    ...event, kind: "event", id: `event-${event.cause}-${event.time}-${place}`, start: event.time, until: event.time,
    seconds: null, open: false, chain: [], shares: {}, python_stack: null, period: null,
  }));
  return [...stalls, ...events].sort((a, b) => a.start - b.start);
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function lostSeconds(rank) {
  return sum(Object.values(rank.lost));
}

// productive + phases + lost = wall, the largest first after what was productive.
function account(rank) {
  const phases = Object.entries(rank.counters?.phase_seconds ?? {}).filter(([phase]) => phase !== "train")
    .map(([key, value]) => ({ key, value, kind: "phase", title: titleOf("phases", key), tone: phaseTone(key) }));
  const lost = Object.entries(rank.lost)
    .map(([key, value]) => ({ key, value, kind: "lost", title: titleOf("causes", key), tone: causeTone(key) }));
  const productive = { key: "productive", value: rank.productive_seconds, kind: "productive", title: say("productive"), tone: "var(--productive)" };
  const rest = [...lost.sort((a, b) => b.value - a.value), ...phases.sort((a, b) => b.value - a.value)];
  return [productive, ...rest].filter((part) => part.value > 0.0005 * Math.max(rank.wall_seconds, 0.001));
}

// The time to the first step; nothing where it was not seen.
function starting(rank) {
  const known = {
    imports: [say("imports"), phaseTone("startup")], dataset: [say("data set"), causeTone("data_storage")],
    restore: [say("restore"), causeTone("checkpoint")], workers: [say("worker start"), causeTone("worker_startup")],
    compile: [say("compile"), phaseTone("compile")], other: [say("other"), stateTone("other")],
  };
  return Object.entries(known).map(([key, [title, tone]]) => ({ key, value: rank.startup?.[key] ?? 0, kind: "start", title, tone }))
    .filter((part) => part.value > 0);
}

// The goodput of the run's job over all its attempts; nothing where the report does not have it.
function goodput(run) {
  const known = {
    startup: [say("startup"), phaseTone("startup")], training_prep: [say("preparation"), causeTone("worker_startup")],
    data_loading: [say("data loading"), causeTone("data_storage")], checkpoint_save: [say("checkpoint saves"), causeTone("checkpoint")],
    checkpoint_restore: [say("checkpoint restore"), causeTone("checkpoint")], wasted_progress: [say("wasted progress"), causeTone("worker_death")],
    recovery: [say("recovery"), causeTone("suspended")], evaluation: [say("evaluation"), phaseTone("evaluation")],
    recompilation: [say("recompilation"), causeTone("recompile")], other: [say("other"), stateTone("other")],
  };
  const productive = { key: "productive", value: run.goodput?.productive_seconds ?? 0, kind: "productive", title: say("productive"), tone: "var(--productive)" };
  const bad = Object.entries(run.goodput?.badput ?? {}).filter(([key]) => key in known).sort((a, b) => b[1] - a[1])
    .map(([key, value]) => ({ key, value, kind: "badput", title: known[key][0], tone: known[key][1] }));
  return [productive, ...bad].filter((part) => part.value > 0);
}

function states(rank) {
  const wall = sum(Object.values(rank.ledger)) || 1;
  return Object.entries(rank.ledger).filter(([, value]) => value > 0.0005 * wall)
    .map(([key, value]) => ({ key, value, kind: "state", title: titleOf("states", key), tone: stateTone(key) }))
    .sort((a, b) => b.value - a.value);
}

// As the text report counts them: the files of one save belong together.
function savesAndFiles(rank) {
  const { totals, checkpoints } = rank;
  const files = totals?.checkpoints ?? checkpoints.length;
  const saves = totals?.saves || new Set(checkpoints.map((file, place) => file.save || -1 - place)).size;
  const more = saves < files ? say(", {files} files in all", { files: number(files) }) : "";
  return many(saves, "{number} save", "{number} saves") + more;
}

// What to do, by cause: the advice of its stalls, bottlenecks and events, the costliest cause first, and of each the
// summary of what cost most at once.
function proposals(rank) {
  const groups = new Map();
  for (const told of [...rank.changes ?? [], ...rank.bottlenecks, ...rank.stalls.toReversed(), ...rank.warnings.toReversed()]) {
    const group = groups.get(told.cause) ?? { cause: told.cause, lines: new Map(), summary: "", most: -1 };
    const cost = told.seconds ?? 0;
    if (told.summary && cost > group.most) Object.assign(group, { summary: told.summary, most: cost });
    told.advice.forEach((line, at) => {
      const message = JSON.stringify(told.advice_messages?.[at] ?? line);
      if (!group.lines.has(message)) group.lines.set(message, line);
    });
    groups.set(told.cause, group);
  }
  const fatal = rank.verdict.kind === "end" ? rank.verdict.cause : null;
  const weight = (group) => (group.cause === fatal ? Infinity : rank.lost[group.cause] ?? 0);
  return [...groups.values()].map(({ lines, ...group }) => ({
    ...group, advice: [...lines.values()].slice(0, 5), seconds: rank.lost[group.cause] ?? null, fatal: group.cause === fatal,
    stalls: rank.counters?.stalls?.[group.cause] ?? rank.stalls.filter((stall) => stall.cause === group.cause).length,
  })).sort((a, b) => weight(b) - weight(a));
}

// How the rank is doing, in one word and a tone: what a glance should tell.
function condition(run, rank, items, now) {
  const open = items.findLast((item) => item.open);
  const exit = rank.exit?.ending === "running" ? null : rank.exit ?? null;
  if (run.ended !== null || exit !== null) {
    const how = exit?.reason && exit.reason !== "finished" ? say("ended: {reason}", { reason: clean(exit.reason) }) : say("ended");
    return { word: how, tone: ["exception", "killed", "watchdog", "oom"].includes(exit?.ending) ? "bad" : "calm", short: "■" };
  }
  if (open) return { word: say("stalled now, for {time}", { time: seconds(now - open.start) }), tone: "bad", pulse: true, short: "▲" };
  const phase = rank.counters?.phase ?? "train";
  if (phase !== "train") return { word: titleOf("phases", phase), tone: "calm", short: "…" };
  const share = lostSeconds(rank) / Math.max(rank.wall_seconds, 1e-9);
  if (rank.warnings.length && rank.verdict.kind === "end") return { word: say("in trouble"), tone: "bad", short: "▲" };
  if (share >= 0.05) return { word: say("training, but losing time"), tone: "warn", short: "●" };
  return { word: say("training"), tone: "good", short: "●" };
}

function extent(run, rank, rows, now) {
  const starts = [run.started, ...rank.phases.map((span) => span.start), rows[0]?.start].filter(isKnown);
  const ends = [run.ended ?? now, rank.stalls.at(-1)?.end, rows.length ? rows.at(-1).start + rows.at(-1).seconds : null].filter(isKnown);
  const from = Math.min(...starts);
  return { from, to: Math.max(...ends, from + 1) };
}
