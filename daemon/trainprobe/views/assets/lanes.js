// What each lane of the timeline draws. A lane gets a painter (canvas, axis, its own top and height) and the scene
// (run, rank, items, rows, samples); it draws only what can be seen.

const PAD = 4;

class Painter {
  constructor(context, axis, top, height) {
    Object.assign(this, { context, axis, top, height, bottom: top + height });
  }

  bar(from, to, top, height, tone, least = 0) {
    const left = Math.max(this.axis.x(from), -2);
    const right = Math.min(Math.max(this.axis.x(to), left + least), this.axis.width + 2);
    if (right < 0 || left > this.axis.width) return null;
    this.context.fillStyle = colour(tone);
    this.context.fillRect(left, top, Math.max(right - left, 0.5), height);
    return { left, right };
  }

  text(words, x, y, tone = "var(--soft)", size = 11, align = "left") {
    this.context.font = `${size}px Inter, system-ui, sans-serif`;
    this.context.textAlign = align;
    this.context.fillStyle = colour(tone);
    this.context.fillText(words, x, y);
  }

  // The same on a ground of its own: above bars.
  note(words, x, y) {
    this.context.font = "11px Inter, system-ui, sans-serif";
    this.context.fillStyle = colour("var(--panel)");
    this.context.fillRect(x - 4, y - 12, this.context.measureText(words).width + 8, 17);
    this.text(words, x, y);
  }

  fitted(words, place, y, tone) {
    const room = place.right - Math.max(place.left, 0) - 10;
    if (room < 24) return;
    this.context.font = "600 11px Inter, system-ui, sans-serif";
    let shown = words;
    const whole = this.context.measureText(words).width;
    if (whole > room) shown = `${words.slice(0, Math.floor((words.length * room) / whole) - 1)}…`;
    if (shown.length < 4) return;
    this.context.textAlign = "left";
    this.context.fillStyle = colour(tone);
    this.context.fillText(shown, Math.max(place.left, 0) + 5, y);
  }

  line(y, tone, dash = []) {
    this.context.strokeStyle = colour(tone);
    this.context.lineWidth = 1;
    this.context.setLineDash(dash);
    this.context.beginPath();
    this.context.moveTo(0, Math.round(y) + 0.5);
    this.context.lineTo(this.axis.width, Math.round(y) + 0.5);
    this.context.stroke();
    this.context.setLineDash([]);
  }

  // A curve through [time, value or null]; an unknown value interrupts it. A count jumps, a size glides.
  curve(points, toY, tone, { filled = false, jumps = false } = {}) {
    const { context, axis } = this;
    const runs = [];
    let now = null;
    for (const [time, value] of points) {
      if (!isKnown(value)) { now = null; continue; }
      if (!now) runs.push((now = []));
      if (jumps && now.length) now.push([axis.x(time), now.at(-1)[1]]);
      now.push([axis.x(time), toY(value)]);
    }
    context.strokeStyle = colour(tone);
    context.lineWidth = 1.5;
    for (const run of runs) {
      context.beginPath();
      run.forEach(([x, y], place) => (place ? context.lineTo(x, y) : context.moveTo(x, y)));
      if (run.length === 1) context.lineTo(run[0][0] + 2, run[0][1]);
      context.stroke();
      if (!filled) continue;
      context.lineTo(run.at(-1)[0], this.bottom);
      context.lineTo(run[0][0], this.bottom);
      context.fillStyle = colour("var(--fill)");
      context.fill();
    }
  }
}

// The first place in time-ordered rows that ends after `time`. Rows do not overlap.
function firstAfter(rows, time) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].start + rows[middle].seconds < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function visible(rows, axis) {
  const first = firstAfter(rows, axis.from);
  let last = firstAfter(rows, axis.to);
  while (last < rows.length && rows[last].start < axis.to) last++;
  return rows.slice(Math.max(first - 1, 0), last + 1);
}

const lanes = [
  {
    id: "stalls", title: say("Stalls"), height: 34,
    says: (scene) => many(scene.shown.filter((item) => item.kind === "stall").length, "{number} stall", "{number} stalls"),
    draw(painter, scene) {
      for (const item of scene.shown) {
        if (item.until < painter.axis.from || item.start > painter.axis.to) continue;
        if (item.kind === "event") drawFlag(painter, item);
        else drawStall(painter, item, scene.chosen === item.id);
      }
    },
  },
  { id: "steps", title: say("Step time"), height: 132, says: saysSteps, draw: drawSteps },
  { id: "states", title: say("Where it went"), height: 62, says: (scene) => (scene.rows.length ? say("share of each step") : ""), draw: drawStates },
  {
    id: "phases", title: say("Phases"), height: 20, says: (scene) => titleOf("phases", scene.rank.counters?.phase ?? "train"),
    draw(painter, scene) {
      for (const span of scene.rank.phases) {
        const place = painter.bar(span.start, span.end ?? scene.now, painter.top + 2, painter.height - 4, phaseTone(span.phase), 2);
        if (place) painter.fitted(titleOf("phases", span.phase), place, painter.top + 14, "var(--ink)");
      }
    },
  },
  {
    id: "checkpoints", title: say("Checkpoints"), height: 26,
    says: (scene) => savesAndFiles(scene.rank),
    draw(painter, scene) {
      for (const save of scene.rank.checkpoints) drawCheckpoint(painter, save, save.end ?? scene.now);
    },
  },
  { id: "workers", title: say("Workers"), height: 40, says: saysWorkers, draw: drawWorkers },
  { id: "memory", title: say("Memory"), height: 52, says: saysMemory, draw: drawMemory },
  { id: "gpu", title: say("GPU"), height: 44, says: saysGpu, draw: drawGpu },
];

function drawStall(painter, item, chosen) {
  const place = painter.bar(item.start, item.until, painter.top + 3, painter.height - 6, causeTone(item.cause), 3);
  if (!place) return;
  painter.fitted(`${seconds(item.seconds)} ${item.cause}`, place, painter.top + 21, "light-dark(#fff, #0b1015)");
  if (!chosen) return;
  painter.context.strokeStyle = colour("var(--ink)");
  painter.context.lineWidth = 2;
  painter.context.strokeRect(place.left - 1, painter.top + 2, place.right - place.left + 2, painter.height - 4);
}

function drawFlag(painter, item) {
  const { context, axis, top, bottom } = painter;
  const x = axis.x(item.start);
  context.fillStyle = colour(causeTone(item.cause));
  context.beginPath();
  context.moveTo(x - 7, top + 2);
  context.lineTo(x + 7, top + 2);
  context.lineTo(x, top + 15);
  context.fill();
  context.fillRect(x - 0.75, top + 2, 1.5, bottom - top - 2);
}

function saysSteps(scene) {
  const { median_seconds: median } = scene.rank.steps;
  const words = isKnown(median) ? [say("median {time}", { time: seconds(median) })] : [];
  if (!scene.rows.length) words.push(say("no history of steps here: stalls and the median step are drawn"));
  return words.join("; ");
}

// The scale of the step lane: logarithmic, so that 40 ms and 40 s are both to be seen.
function stepScale(painter, scene) {
  const usual = scene.rank.counters?.baseline_seconds ?? scene.rank.steps.median_seconds;
  const longest = Math.max(...scene.seen.map((row) => row.max), ...scene.shownStalls.map((s) => s.until - s.start), usual ? usual * 3 : 0, 1e-3);
  const shortest = Math.min(...scene.seen.map((row) => Math.max(row.min, 1e-4)), usual ? usual / 2 : 1, longest / 4);
  const low = Math.log10(shortest * 0.8);
  const high = Math.log10(longest * 1.4);
  return (value) => painter.bottom - PAD - ((Math.log10(Math.max(value, 1e-5)) - low) / (high - low)) * (painter.height - 2 * PAD);
}

function drawSteps(painter, scene) {
  const toY = stepScale(painter, scene);
  for (let power = -4; power <= 4; power++) {
    const y = toY(10 ** power);
    if (y < painter.top + 8 || y > painter.bottom - 2) continue;
    painter.line(y, "var(--grid)");
    painter.text(seconds(10 ** power), painter.axis.width - 4, y - 3, "var(--soft)", 10, "right");
  }
  const usual = scene.rank.counters?.baseline_seconds ?? scene.rank.steps.median_seconds;
  if (!scene.seen.length) for (const stall of scene.shownStalls) stallWithoutRows(painter, stall, toY, usual);
  if (isKnown(usual)) painter.line(toY(usual), "var(--accent)", [5, 4]);
  if (scene.seen.length) (scene.seen.length > painter.axis.width ? drawEnvelope : drawEach)(painter, scene.seen, toY);
  else if (scene.rows.length) painter.note(say("no steps in this part"), 8, painter.top + 16);
}

function stallWithoutRows(painter, stall, toY, usual) {
  const y = toY((usual ?? 0) + stall.seconds / Math.max(stall.steps, 1));
  painter.bar(stall.start, stall.until, y, painter.bottom - y, causeTone(stall.cause), 2);
}

function drawEach(painter, rows, toY) {
  const { context, axis } = painter;
  context.fillStyle = colour("var(--line)");
  for (const row of rows) {
    const left = axis.x(row.start);
    const width = Math.max(axis.x(row.start + row.seconds) - left - 0.5, 1.5);
    const top = toY(row.max);
    if (row.count > 1) {
      context.globalAlpha = 0.35;
      context.fillRect(left, top, width, Math.max(toY(row.min) - top, 1));
      context.globalAlpha = 1;
    }
    const mean = toY(row.seconds / row.count);
    context.fillRect(left, mean - 1, width, 2);
    if (row.count === 1) {
      context.globalAlpha = 0.18;
      context.fillRect(left, mean, width, painter.bottom - mean);
      context.globalAlpha = 1;
    }
  }
}

// More rows than pixels: per pixel the shortest, the longest and the mean.
function drawEnvelope(painter, rows, toY) {
  const { context, axis } = painter;
  const columns = new Map();
  for (const row of rows) {
    const x = Math.floor(axis.x(row.start));
    const column = columns.get(x);
    if (!column) columns.set(x, { min: row.min, max: row.max, seconds: row.seconds, count: row.count });
    else {
      column.min = Math.min(column.min, row.min);
      column.max = Math.max(column.max, row.max);
      column.seconds += row.seconds;
      column.count += row.count;
    }
  }
  context.fillStyle = colour("var(--line)");
  context.globalAlpha = 0.4;
  for (const [x, column] of columns) context.fillRect(x, toY(column.max), 1.2, Math.max(toY(column.min) - toY(column.max), 1));
  context.globalAlpha = 1;
  for (const [x, column] of columns) context.fillRect(x, toY(column.seconds / column.count) - 1, 1.2, 2);
}

const COLUMN = 2; // pixels

function drawStates(painter, scene) {
  if (!scene.seen.length) return;
  const { axis, context } = painter;
  const order = Object.keys(LOOK.states);
  const columns = Math.ceil(axis.width / COLUMN);
  const shares = new Float64Array(columns * order.length);
  const place = Object.fromEntries(order.map((state, index) => [state, index]));
  for (const row of scene.seen) addShares(shares, columns, order.length, place, row, axis);
  const top = painter.top + 2;
  const height = painter.height - 4;
  const tops = new Float64Array(columns);
  order.forEach((state, index) => {
    context.fillStyle = colour(stateTone(state));
    for (let column = 0; column < columns; column++) {
      const base = column * order.length;
      if (!shares[base + index]) continue;
      let total = 0;
      for (let i = 0; i < order.length; i++) total += shares[base + i];
      const part = (shares[base + index] / total) * height;
      context.fillRect(column * COLUMN, top + height - tops[column] - part, COLUMN, part + 0.3);
      tops[column] += part;
    }
  });
}

function addShares(shares, columns, states, place, row, axis) {
  const first = Math.max(Math.floor(axis.x(row.start) / COLUMN), 0);
  const last = Math.min(Math.max(Math.ceil(axis.x(row.start + row.seconds) / COLUMN) - 1, first), columns - 1);
  for (const [state, spent] of Object.entries(row.states)) {
    const index = place[state];
    if (index === undefined || !(spent > 0)) continue;
    for (let column = first; column <= last; column++) shares[column * states + index] += spent / (last - first + 1);
  }
}

function drawCheckpoint(painter, save, end) {
  const failed = save.outcome === "error" || save.outcome === "unsafe";
  const tone = failed ? "var(--bad)" : causeTone("checkpoint");
  const blocks = save.blocked_seconds > 0;
  painter.context.globalAlpha = blocks ? 1 : 0.4;
  const place = painter.bar(save.start, end, painter.top + (blocks ? 3 : 8), painter.height - (blocks ? 6 : 11), tone, 2);
  painter.context.globalAlpha = 1;
  if (place) painter.fitted(`${failed ? "✕ " : ""}${clean(fileName(save.path))} ${bytes(save.bytes)}`, place, painter.top + 17, "light-dark(#fff, #0b1015)");
}

function saysWorkers(scene) {
  const { workers } = scene.rank;
  return workers.started ? say("{live} alive, {started} started", { live: number(workers.live), started: number(workers.started) }) : say("none seen");
}

function drawWorkers(painter, scene) {
  const { context, axis } = painter;
  const most = Math.max(...scene.samples.map((sample) => sample.workers), scene.rank.workers.live, 1);
  const toY = (value) => painter.bottom - PAD - (value / most) * (painter.height - 3 * PAD);
  painter.curve(scene.samples.map((sample) => [sample.time, sample.workers]), toY, "var(--line)", { filled: true, jumps: true });
  for (const exit of scene.rank.workers.exits) {
    const x = axis.x(exit.time);
    if (x < -8 || x > axis.width + 8) continue;
    if (exit.reason === "finished") {
      context.fillStyle = colour("var(--soft)");
      context.fillRect(x, painter.bottom - 9, 1.5, 7);
    } else {
      painter.text("✕", x, painter.top + 16, "var(--bad)", 15, "center");
    }
  }
}

function saysMemory(scene) {
  const { pss_bytes: used, limit_bytes: limit, limit_scope: scope } = scene.rank.memory;
  if (!isKnown(used)) return say("not measured");
  if (!isKnown(limit)) return bytes(used);
  const told = used > limit ? `${bytes(used)} · ${say("limit")} ${bytes(limit)}` : say("{part} of {whole}", { part: bytes(used), whole: bytes(limit) });
  return told + (scope ? ` (${say(scope)})` : "");
}

function drawMemory(painter, scene) {
  const { limit_bytes: limit, pss_peak_bytes: peak } = scene.rank.memory;
  const highest = Math.max(...scene.samples.map((sample) => sample.pss ?? 0), peak ?? 0, 1);
  const nearLimit = isKnown(limit) && limit < 2.5 * highest;
  const top = nearLimit ? Math.max(limit, highest) : highest;
  const toY = (value) => painter.bottom - PAD - (value / (top * 1.08)) * (painter.height - 2 * PAD);
  painter.curve(scene.samples.map((sample) => [sample.time, sample.pss]), toY, "var(--line)", { filled: true });
  if (scene.samples.some((sample) => sample.swap > 0)) {
    painter.curve(scene.samples.map((sample) => [sample.time, sample.swap]), toY, causeTone("swap"));
  }
  if (nearLimit) painter.line(toY(limit), "var(--limit)", [3, 3]);
  if (isKnown(peak)) {
    painter.line(toY(peak), "var(--grid)", [2, 4]);
    painter.text(say("peak {size}", { size: bytes(peak) }), 4, toY(peak) + 11, "var(--soft)", 10);
  }
}

function saysGpu(scene) {
  const { gpus } = scene.rank;
  if (!gpus.length) return say("none seen");
  const states = scene.run.ended === null ? gpuStates(scene.report, scene.rank) : [];
  return gpus.map((gpu) => {
    const now = states.find((state) => state.uuid === gpu.uuid);
    const trouble = now && now.state !== "up" ? [say(now.state)] : now && isKnown(now.utilization) ? [say("{share} now", { share: percent(now.utilization) })] : [];
    const memory = now && isKnown(now.memory_used_bytes) && isKnown(now.memory_total_bytes) ? [say("{part} of {whole}", { part: bytes(now.memory_used_bytes), whole: bytes(now.memory_total_bytes) })] : [];
    const mean = isKnown(gpu.utilization_mean) ? [say("{share} in all", { share: percent(gpu.utilization_mean) })] : [];
    return `${gpus.length > 1 ? `${gpu.index}: ` : ""}${[...trouble, ...mean, ...memory].join(say(", ")) || say("not measured")}`;
  }).join(" · ");
}

function drawGpu(painter, scene) {
  if (!scene.rank.gpus.length) {
    const reason = scene.report.sources?.nvml?.reason;
    if (reason) painter.text(say("not measured: {reason}", { reason: clean(reason) }), 8, painter.top + 20);
    return;
  }
  const toY = (value) => painter.bottom - PAD - value * (painter.height - 2 * PAD);
  painter.curve(scene.samples.map((sample) => [sample.time, sample.used]), toY, causeTone("gpu_throttle"), { filled: true });
  if (scene.rank.gpus.length < 2) return;
  for (const gpu of scene.rank.gpus) {
    const points = scene.samples.map((sample) => [sample.time, sample.gpus.find((one) => one.index === gpu.index)?.used]);
    painter.curve(points, toY, "var(--soft)");
  }
}
