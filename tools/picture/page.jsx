// The main panels of "Training stalls", drawn by @grafana/ui from what a real Prometheus answered to the dashboard's queries.
import { createTheme, dateTime, FieldType, getDisplayProcessor, renderLegendFormat, toDataFrame } from '@grafana/data';
import { BigValue, PanelChrome, ThemeContext, TimeSeries } from '@grafana/ui';
import { useLayoutEffect } from 'react';
import { createRoot } from 'react-dom/client';

import data from './data.json';

const SHOWN = [101, 102, 103, 104, 105, 106, 107, 108, 203, 204, 301, 302];
const WIDTH = 1480;
const COLUMN = WIDTH / 24;
const ROW = 38;
const GAP = 6;
const theme = createTheme({ colors: { mode: 'dark' } });
const times = { from: dateTime(data.from * 1000), to: dateTime(data.to * 1000) };
const timeRange = { ...times, raw: times };

function configOf(panel, name) {
  const defaults = structuredClone(panel.fieldConfig.defaults);
  const thresholds = defaults.thresholds ?? { mode: 'absolute', steps: [{ value: null, color: 'green' }] };
  thresholds.steps = thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity }));
  const override = panel.fieldConfig.overrides.find((o) => o.matcher.options === name);
  const own = override?.properties.find((property) => property.id === 'color')?.value;
  const mode = panel.type === 'timeseries' ? 'palette-classic' : 'thresholds';
  const interval = data.step * 1000;
  return { custom: {}, ...defaults, thresholds, interval, displayName: name, color: own ?? { mode } };
}

function framesOf({ panel, results }) {
  const series = results.flatMap((result, target) => result.map((one) => ({ ...one, target })));
  return series.map(({ metric, target, values, value }, seriesIndex) => {
    const name = renderLegendFormat(panel.targets[target].legendFormat, metric);
    const points = values ?? [value];
    const frame = toDataFrame({
      fields: [
        { name: 'Time', type: FieldType.time, values: points.map((p) => p[0] * 1000), config: { interval: data.step * 1000 } },
        { name: 'Value', type: FieldType.number, values: points.map((p) => Number(p[1])), config: configOf(panel, name) },
      ],
    });
    frame.fields[1].state = { displayName: name, seriesIndex };
    for (const field of frame.fields) {
      field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    }
    return frame;
  });
}

// Grafana's rule: points at most a step apart are one region.
const REGIONS = data.annotations.flatMap(({ color, result }) =>
  result.flatMap(({ values }) => {
    const found = [];
    for (const [at] of values) {
      const last = found.at(-1);
      if (last && at - last.to <= data.step) {
        last.to = at;
      } else {
        found.push({ from: at, to: at, color });
      }
    }
    return found;
  })
);

// As Grafana's annotations layer, which is no part of the library: a tinted area, dashed edges, a bar at the axis.
function Regions({ builder }) {
  useLayoutEffect(() => {
    builder.addHook('draw', (plot) => {
      const { ctx } = plot;
      const { top, height, left, width } = plot.bbox;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, top, width, height);
      ctx.clip();
      for (const { from, to, color } of REGIONS) {
        const [a, b] = [from, to].map((at) => plot.valToPos(at * 1000, 'x', true));
        ctx.fillStyle = ctx.strokeStyle = color;
        ctx.globalAlpha = 0.14;
        ctx.fillRect(a, top, b - a, height);
        ctx.globalAlpha = 1;
        ctx.fillRect(a, top + height - 4, Math.max(b - a, 4), 4);
        ctx.lineWidth = 2;
        ctx.setLineDash([5, 5]);
        for (const x of new Set([a, b])) {
          ctx.strokeRect(x, top - 2, 0, height + 4);
        }
      }
      ctx.restore();
    });
  }, [builder]);
  return null;
}

function Lines({ shown, width, height }) {
  const { legend } = shown.panel.options;
  return (
    <TimeSeries frames={framesOf(shown)} structureRev={1} replaceVariables={(text) => text}
      {...{ timeRange, width, height, legend }} timeZone="utc">
      {(builder) => <Regions builder={builder} />}
    </TimeSeries>
  );
}

function Stat({ shown, width, height }) {
  const field = framesOf(shown)[0]?.fields[1];
  const none = { text: shown.panel.fieldConfig.defaults.noValue, numeric: NaN, color: theme.colors.text.primary };
  const value = field ? { ...field.display(field.values[0]), title: field.config.displayName } : none;
  const textMode = shown.panel.options.textMode === 'auto' || !field ? 'value' : shown.panel.options.textMode;
  return <BigValue colorMode="value" graphMode="none" justifyMode="auto" {...{ theme, width, height, value, textMode }} />;
}

function Panel({ shown, top }) {
  const { x, w, h } = shown.panel.gridPos;
  const size = { width: w * COLUMN - GAP, height: h * ROW - GAP };
  const Inside = shown.panel.type === 'stat' ? Stat : Lines;
  return (
    <div style={{ position: 'absolute', left: x * COLUMN, top, ...size }}>
      <PanelChrome title={shown.panel.title} padding="md" {...size}>
        {(width, height) => <Inside {...{ shown, width, height }} />}
      </PanelChrome>
    </div>
  );
}

function Toggle({ name, color }) {
  const box = { background: color, width: 10, height: 10, display: 'inline-block', marginRight: 5 };
  return <span style={{ marginRight: 14 }}><span style={box} />{name}</span>;
}

function Dashboard() {
  const panels = SHOWN.map((id) => data.panels.find((shown) => shown.panel.id === id));
  const lines = [...new Map(panels.map(({ panel }) => [panel.gridPos.y, panel.gridPos.h]))].sort(([a], [b]) => a - b);
  const tops = new Map();
  let top = 40;
  for (const [y, h] of lines) {
    tops.set(y, top);
    top += h * ROW;
  }
  const { fontFamily } = theme.typography;
  return (
    <ThemeContext.Provider value={theme}>
      <div style={{ position: 'relative', width: WIDTH, height: top, color: theme.colors.text.primary, fontSize: 12, fontFamily }}>
        <div style={{ padding: '10px 6px' }}>{data.annotations.map((a) => <Toggle key={a.name} {...a} />)}</div>
        {panels.map((shown) => <Panel key={shown.panel.id} shown={shown} top={tops.get(shown.panel.gridPos.y)} />)}
      </div>
    </ThemeContext.Provider>
  );
}

createRoot(document.getElementById('root')).render(<Dashboard />);
