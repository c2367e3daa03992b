// The timeline: an overview of the whole run, and the lanes of the part that is looked at.

const OVERVIEW = 34;
const AXIS_HEIGHT = 20;
const GAP = 6;
const FLAT = 30; // lanes lower than this have their name and what they say in one line
const DRAG = 5; // pixels: less is a click
const NEAR = 6; // pixels from a region that still mean it
const SPANS = [[say("All"), null], ["6 h", 21600], ["1 h", 3600], ["15 min", 900], ["5 min", 300], ["1 min", 60]];

class Timeline {
  constructor(onChoose) {
    this.axis = new Axis();
    this.onChoose = onChoose;
    this.canvas = byId("canvas");
    this.overview = byId("overview");
    this.scene = null;
    this.hidden = new Set(); // causes that are switched off
    this.pointer = null;
    this.drag = null;
    this.waiting = false;
    this.listen();
  }

  // A new scene; `fresh`: another run or rank, so the view begins anew.
  show(scene, fresh) {
    this.scene = scene;
    this.sift();
    const all = extent(scene.run, scene.rank, scene.rows, scene.now);
    if (fresh) {
      this.axis.all = all;
      this.axis.set(all.from, all.to);
      if (scene.run.ended === null && all.to - all.from > 1800) this.axis.set(all.to - 900, all.to);
    } else this.axis.grow(all);
    this.select(scene.chosen, false);
    this.tellSpans();
    this.plan();
  }

  select(id, moves = true) {
    if (!this.scene) return;
    this.scene.chosen = id;
    const item = this.scene.items.find((one) => one.id === id);
    if (item && moves && (item.start < this.axis.from || item.until > this.axis.to)) {
      const span = Math.max(this.axis.span, 1.5 * (item.until - item.start));
      const middle = (item.start + item.until) / 2;
      this.axis.set(middle - span / 2, middle + span / 2);
      this.axis.follows = false;
    }
    this.plan();
  }

  lookAt(item) {
    const span = Math.max(8 * (item.until - item.start), 20);
    this.axis.set(item.start - span * 0.4, item.until + span * 0.4);
    this.plan();
  }

  // Many changes, one drawing.
  plan() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; if (this.scene) this.draw(); });
  }

  draw() {
    const width = Math.max(byId("plot").clientWidth, 50);
    this.axis.width = width;
    const scene = this.scene;
    this.sift();
    const height = lanes.reduce((total, lane) => total + lane.height + GAP, AXIS_HEIGHT);
    const context = sized(this.canvas, width, height);
    this.drawAxis(context, height);
    this.drawRegions(context, height);
    let top = AXIS_HEIGHT;
    for (const lane of lanes) {
      const painter = new Painter(context, this.axis, top, lane.height);
      painter.line(top - GAP / 2, "var(--edge)");
      context.save();
      context.beginPath();
      context.rect(0, top, width, lane.height);
      context.clip();
      lane.draw(painter, scene);
      context.restore();
      top += lane.height + GAP;
    }
    this.drawCursor(context, height);
    this.drawOverview(width);
    this.tellLanes();
  }

  // What of the scene is to be seen: causes that are not hidden, steps and stalls of this part of the time.
  sift() {
    const { scene, axis } = this;
    scene.shown = scene.items.filter((item) => !this.hidden.has(item.cause));
    scene.shownStalls = scene.shown.filter((item) => item.kind === "stall" && item.until >= axis.from && item.start <= axis.to);
    scene.seen = visible(scene.rows, axis);
  }

  drawAxis(context, height) {
    const painter = new Painter(context, this.axis, 0, AXIS_HEIGHT);
    for (const { time, label } of this.axis.ticks()) {
      const x = Math.round(this.axis.x(time));
      context.fillStyle = colour("var(--grid)");
      context.fillRect(x, AXIS_HEIGHT - 4, 1, height);
      painter.text(label, x + 3, 12);
    }
  }

  // Stalls as coloured regions through all lanes, the chosen one stronger.
  drawRegions(context, height) {
    const painter = new Painter(context, this.axis, 0, height);
    for (const item of this.scene.shownStalls) {
      context.globalAlpha = item.id === this.scene.chosen ? 0.34 : 0.15;
      painter.bar(item.start, item.until, AXIS_HEIGHT, height, causeTone(item.cause), 1.5);
    }
    context.globalAlpha = 1;
  }

  drawCursor(context, height) {
    if (!this.pointer || this.drag) return;
    context.fillStyle = colour("var(--soft)");
    context.fillRect(this.pointer.x, AXIS_HEIGHT, 1, height);
  }

  drawOverview(width) {
    const context = sized(this.overview, width, OVERVIEW);
    const whole = Object.assign(new Axis(), { from: this.axis.all.from, to: this.axis.all.to, width });
    const painter = new Painter(context, whole, 4, OVERVIEW - 10);
    context.fillStyle = colour("var(--grid)");
    context.fillRect(0, 4, width, OVERVIEW - 10);
    for (const span of this.scene.rank.phases) painter.bar(span.start, span.end ?? this.scene.now, 4, OVERVIEW - 10, phaseTone(span.phase));
    for (const item of this.scene.shown) painter.bar(item.start, item.until, 4, OVERVIEW - 10, causeTone(item.cause), item.kind === "event" ? 2 : 1.5);
    const left = whole.x(this.axis.from);
    const right = Math.max(whole.x(this.axis.to), left + 3);
    context.fillStyle = colour("light-dark(#ffffffb0, #0e1216b0)");
    context.fillRect(0, 0, left, OVERVIEW);
    context.fillRect(right, 0, width, OVERVIEW);
    context.strokeStyle = colour("var(--accent)");
    context.lineWidth = 2;
    context.strokeRect(left + 1, 2, Math.max(right - left - 2, 2), OVERVIEW - 6);
  }

  tellLanes() {
    const rows = lanes.map((lane) => [lane.title, lane.says(this.scene), lane.height]);
    fill(byId("gutter"), [rows, this.axis.width > 0], () => [
      spacer(OVERVIEW, say("Whole run")), spacer(AXIS_HEIGHT - GAP / 2, ""),
      ...rows.map(([title, says, height]) => {
        const label = h("div", { class: height < FLAT ? "flat" : "" }, h("b", {}, title), h("span", {}, says));
        label.style.height = `${height + GAP}px`;
        return label;
      }),
    ]);
    const { from, to } = this.axis;
    const here = this.scene.shownStalls.length;
    Object.assign(byId("timeline").dataset, { from, to, rows: this.scene.rows.length });
    byId("timeline").setAttribute("aria-label", say("Timeline from {from} to {to}: {here} in view, {all} in all", {
      from: clock(from), to: clock(to), here: many(here, "{number} stall", "{number} stalls"), all: many(this.scene.items.length, "{number} stall or event", "{number} stalls and events"),
    }));
  }

  tellSpans() {
    const whole = this.axis.all.to - this.axis.all.from;
    const offered = SPANS.filter(([, span]) => span === null || span < whole);
    fill(byId("spans"), [offered, this.scene.run.ended === null], () => offered.map(([name, span]) =>
      h("button", { type: "button", onclick: () => this.span(span) }, span === null || this.scene.run.ended !== null ? name : say("last {time}", { time: name }))));
  }

  span(wanted) {
    const { from, to } = this.axis.all;
    this.axis.set(wanted === null ? from : to - wanted, to);
    this.axis.follows = true;
    this.plan();
  }

  // The item below the pointer: among those that are near, the shortest.
  at(x) {
    const slack = (NEAR / this.axis.width) * this.axis.span;
    const time = this.axis.time(x);
    const near = this.scene.shown.filter((item) => item.start - slack <= time && time <= item.until + slack);
    return near.sort((a, b) => a.until - a.start - (b.until - b.start))[0] ?? null;
  }

  listen() {
    const { canvas, overview } = this;
    canvas.addEventListener("pointerdown", (event) => this.begin(event));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerup", (event) => this.finish(event));
    canvas.addEventListener("pointercancel", () => this.cancel());
    canvas.addEventListener("pointerleave", () => { this.pointer = null; byId("tip").hidden = true; this.plan(); });
    canvas.addEventListener("dblclick", () => this.span(null));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); this.centre(event); });
    overview.addEventListener("pointermove", (event) => { if (event.buttons) this.centre(event); });
    byId("timeline").addEventListener("keydown", (event) => this.key(event));
    byId("zoom-in").addEventListener("click", () => this.zoom(0.5));
    byId("zoom-out").addEventListener("click", () => this.zoom(2));
    byId("previous").addEventListener("click", () => this.step(-1));
    byId("next").addEventListener("click", () => this.step(1));
    new ResizeObserver(() => this.plan()).observe(byId("plot"));
  }

  begin(event) {
    if (event.button !== 0 || !this.scene) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { from: event.offsetX, pans: event.shiftKey, left: this.axis.from };
    byId("tip").hidden = true;
  }

  hover(event) {
    if (!this.scene) return;
    this.pointer = { x: event.offsetX, y: event.offsetY };
    if (!this.drag) {
      this.tip(event.offsetX, event.offsetY);
      this.plan();
      return;
    }
    const moved = event.offsetX - this.drag.from;
    if (this.drag.pans) {
      const span = this.axis.span;
      const from = this.drag.left - (moved / this.axis.width) * span;
      this.axis.set(from, from + span);
      this.plan();
      return;
    }
    const band = byId("band");
    band.hidden = Math.abs(moved) < DRAG;
    band.style.left = `${Math.min(this.drag.from, event.offsetX)}px`;
    band.style.width = `${Math.abs(moved)}px`;
    band.style.top = `${this.canvas.offsetTop}px`;
    band.style.height = `${this.canvas.clientHeight}px`;
  }

  finish(event) {
    const drag = this.drag;
    this.cancel();
    if (!drag || !this.scene || drag.pans) return;
    const to = event.offsetX;
    if (Math.abs(to - drag.from) >= DRAG) {
      this.axis.set(this.axis.time(Math.min(drag.from, to)), this.axis.time(Math.max(drag.from, to)));
      this.plan();
    } else {
      const item = this.at(to);
      if (item) this.onChoose(item.id, true);
    }
  }

  cancel() {
    this.drag = null;
    byId("band").hidden = true;
  }

  wheel(event) {
    if (!this.scene) return;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      event.preventDefault();
      this.axis.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 240))), this.axis.time(event.offsetX));
    } else if (event.deltaX || event.shiftKey) {
      event.preventDefault();
      this.axis.move(((event.deltaX || event.deltaY) / this.axis.width) * this.axis.span);
    } else return;
    this.plan();
  }

  centre(event) {
    const { from, to } = this.axis.all;
    const middle = from + (event.offsetX / this.axis.width) * (to - from);
    const span = this.axis.span;
    this.axis.set(middle - span / 2, middle + span / 2);
    this.plan();
  }

  zoom(factor) {
    const item = this.scene?.items.find((one) => one.id === this.scene.chosen);
    const seen = item && item.start >= this.axis.from && item.start <= this.axis.to;
    this.axis.zoom(factor, seen ? (item.start + item.until) / 2 : undefined);
    this.plan();
  }

  step(by) {
    const shown = this.scene?.items.filter((item) => !this.hidden.has(item.cause)) ?? [];
    if (!shown.length) return;
    const now = shown.findIndex((item) => item.id === this.scene.chosen);
    const wanted = now < 0 && by === -1 ? shown.length - 1 : now + by;
    const place = Math.min(Math.max(wanted, 0), shown.length - 1);
    this.onChoose(shown[place].id, false);
  }

  key(event) {
    const shift = event.shiftKey;
    const actions = {
      ArrowLeft: () => (shift ? this.axis.move(-this.axis.span / 5) : this.step(-1)),
      ArrowRight: () => (shift ? this.axis.move(this.axis.span / 5) : this.step(1)),
      Home: () => this.step(-Infinity),
      End: () => this.step(Infinity),
      "+": () => this.zoom(0.5),
      "=": () => this.zoom(0.5),
      "-": () => this.zoom(2),
      0: () => this.span(null),
      Enter: () => byId("details").focus(),
      Escape: () => this.onChoose(null, false),
    };
    const action = actions[event.key];
    if (!action || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    action();
    this.plan();
  }

  tip(x, y) {
    const tip = byId("tip");
    const item = this.at(x);
    tip.replaceChildren(...(item ? tipOfItem(item) : tipOfTime(this.scene, this.axis.time(x))));
    tip.hidden = false;
    const room = byId("plot").clientWidth;
    const left = x + 18 + tip.offsetWidth > room ? x - tip.offsetWidth - 18 : x + 18;
    tip.style.left = `${Math.max(left, 0)}px`;
    tip.style.top = `${this.canvas.offsetTop + Math.min(y + 14, this.canvas.clientHeight - 40)}px`;
  }
}

function spacer(height, title) {
  const made = h("div", {}, h("b", {}, title));
  made.style.height = `${height}px`;
  return made;
}

function sized(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const TIP_LINES = 6;

function tipOfItem(item) {
  const what = item.kind === "stall" ? `${titleOf("causes", item.cause)} · ${seconds(item.seconds)}` : titleOf("causes", item.cause);
  const lines = item.evidence.slice(0, TIP_LINES).map((one) => h("tr", {}, h("td", {}, one.what), h("td", { class: "num" }, measured(one.value, one.unit))));
  return [
    h("div", { class: "name" }, swatch(causeTone(item.cause)), h("span", {}, what)),
    h("div", { class: "soft" }, `${clock(item.start, 1)}${item.open ? `, ${say("still open")}` : ""} · ${say("click for advice")}`),
    h("div", { class: "wrap" }, item.summary),
    lines.length ? h("table", {}, h("tbody", {}, lines)) : "",
  ];
}

function tipOfTime(scene, time) {
  const row = scene.rows[firstAfter(scene.rows, time)];
  const here = row && row.start <= time ? row : null;
  const sample = scene.samples.findLast((one) => one.time <= time);
  const facts = [];
  if (here) {
    facts.push([here.count > 1 ? say("{number} steps, mean", { number: number(here.count) }) : say("step"), seconds(here.seconds / here.count)]);
    if (here.count > 1) facts.push([say("shortest – longest"), `${seconds(here.min)} – ${seconds(here.max)}`]);
    const spent = Object.entries(here.states).sort((a, b) => b[1] - a[1]).slice(0, 4);
    const whole = sum(Object.values(here.states)) || 1;
    for (const [state, value] of spent) if (value / whole > 0.005) facts.push([titleOf("states", state), percent(value / whole)]);
  }
  if (sample && time - sample.time < 30 && isKnown(sample.pss)) facts.push([say("memory"), bytes(sample.pss)], [say("workers"), number(sample.workers)]);
  return [
    h("b", {}, say("{clock} · {time} after the start", { clock: clock(time, 1), time: seconds(time - scene.run.started) })),
    facts.length ? h("table", {}, h("tbody", {}, facts.map(([what, value]) => h("tr", {}, h("td", {}, what), h("td", { class: "num" }, value))))) : "",
  ];
}
