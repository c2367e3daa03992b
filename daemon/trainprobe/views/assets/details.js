// Everything about one stall or event: what, why, who waited for whom, where in the code, what to do, what went before.

const BEFORE = 60; // seconds of the black box

function showDetails(scene, timeline) {
  const item = scene.items.find((one) => one.id === scene.chosen);
  const place = byId("details");
  if (!item) {
    fill(place, "none", () => [h("div", { class: "head" }, h("h2", { id: "details-title" }, say("Details"))),
      h("p", { class: "empty" }, scene.items.length ? say("Choose a stall in the timeline or in the list.") : say("No stall so far. When one comes, its evidence stands here."))]);
    return;
  }
  place.style.setProperty("--tone", causeTone(item.cause));
  fill(place, item, () => [
    h("div", { class: "head" }, swatch(causeTone(item.cause)), h("h2", { id: "details-title" }, capital(titleOf("causes", item.cause))),
      h("code", { class: "soft" }, item.cause), h("span", { class: "grow" }),
      h("span", { class: "tools" }, h("button", { type: "button", onclick: () => timeline.lookAt(item) }, say("show in timeline")))),
    h("p", { class: "summary" }, capital(item.summary)),
    facts(item),
    ...part(say("What to change"), item.advice.length && h("ul", { class: "do" }, item.advice.map((line) => h("li", {}, line)))),
    ...part(say("Who waited for whom"), item.chain.length && h("ol", { class: "chain" }, item.chain.map((link) => h("li", {}, link)))),
    ...part(say("Evidence"), item.evidence.length && evidence(item)),
    ...part(say("Python stack during the stall"), item.python_stack?.length && frames(item.python_stack)),
    ...part(say("Shares of the lost time"), shares(item)),
    ...blackBox(scene, item),
  ]);
}

function part(title, content) {
  return content ? [h("h3", {}, title), content] : [];
}

function facts(item) {
  const told = [[say("at"), `${date(item.start)} ${clock(item.start, 3)}`]];
  if (item.kind === "stall") {
    told.push([say("lost"), seconds(item.seconds)], [say("step"), item.steps > 1 ? say("{first} and {more} more", { first: number(item.first_step), more: number(item.steps - 1) }) : number(item.first_step)]);
    if (item.open) told.push(["", UNOPENED]);
    if (item.period) told.push([say("again every"), [item.period.steps ? many(item.period.steps, "{number} step", "{number} steps") : "", seconds(item.period.seconds)].filter(Boolean).join(say(", "))]);
  } else if (isKnown(item.eta_seconds)) told.push([say("in"), seconds(item.eta_seconds)]);
  return h("p", { class: "facts" }, told.map(([name, value]) => h("span", {}, `${name} `, h("b", {}, value))));
}

function evidence(item) {
  return h("table", {}, h("tbody", {}, item.evidence.map((one) => h("tr", {},
    h("td", {}, one.what, one.path ? h("div", { class: "soft mono wrap" }, one.path) : null),
    h("td", { class: "num" }, measured(one.value, one.unit)),
    h("td", { class: "num soft" }, one.pid ? `pid ${one.pid}` : "")))));
}

// The innermost call of the training's own code is the line to look at: the last one before a library's.
function frames(stack) {
  return h("pre", { class: "frames" }, stack.map((frame, place) => [place ? "\n" : "", "  ".repeat(Math.min(place, 12)), place === stack.length - 1 ? h("b", {}, frame) : frame]));
}

// What rounds to 0.0 % of it is not shown, nor is a single cause.
function shares(item) {
  const worth = Object.entries(item.shares).filter(([, value]) => value >= 0.0005 * item.seconds);
  if (worth.length < 2) return null;
  const parts = worth.sort((a, b) => b[1] - a[1]).map(([key, value]) => ({ key, value, kind: "lost", title: titleOf("causes", key), tone: causeTone(key) }));
  return h("div", {}, stack(parts, item.seconds, "thin", say("Shares of the lost time")), shareList(parts, item.seconds));
}

// The minute before: was it getting slower, or did it come out of the blue?
function blackBox(scene, item) {
  const rows = scene.rows.filter((row) => row.start + row.seconds > item.start - BEFORE && row.start < Math.min(item.until, item.start + BEFORE));
  if (rows.length < 2) return [];
  const canvas = h("canvas", { class: "box", role: "img", "aria-label": spoken(rows, item) });
  requestAnimationFrame(() => drawBox(canvas, scene, item, rows));
  return [h("h3", {}, say("Black box: the {seconds} seconds before", { seconds: BEFORE })), canvas, h("p", { class: "soft" }, spoken(rows, item))];
}

function spoken(rows, item) {
  const before = rows.filter((row) => row.start + row.seconds <= item.start);
  if (!before.length) return say("No steps are known from before.");
  const count = sum(before.map((row) => row.count));
  const lengths = before.map((row) => row.seconds / row.count).sort((a, b) => a - b);
  return say("{steps} before it, {usual} in the median, the longest {longest}.", {
    steps: many(count, "{number} step", "{number} steps"), usual: seconds(lengths[lengths.length >> 1]), longest: seconds(Math.max(...before.map((row) => row.max))),
  });
}

function drawBox(canvas, scene, item, rows) {
  const width = canvas.clientWidth;
  if (!width) return;
  const axis = Object.assign(new Axis(), { from: item.start - BEFORE, to: Math.min(item.until, item.start + BEFORE) + 2, width });
  const context = sized(canvas, width, 120);
  const stall = new Painter(context, axis, 0, 120);
  context.globalAlpha = 0.25;
  stall.bar(item.start, item.until, 0, 120, causeTone(item.cause), 2);
  context.globalAlpha = 1;
  const part = { ...scene, rows, seen: rows, shownStalls: [] };
  drawSteps(new Painter(context, axis, 0, 66), part);
  drawStates(new Painter(context, axis, 70, 34), part);
  for (const { time, label } of axis.ticks()) stall.text(label, axis.x(time) + 2, 117, "var(--soft)", 10);
}
