// What our dashboards are, by Grafana's own types: @grafana/schema, and what its Prometheus data source adds to them.
import type { AnnotationQuery, AnnotationTarget, Dashboard, DataQuery, Panel, RowPanel } from '@grafana/schema';
import type { Options as BarGauge } from '@grafana/schema/dist/types/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen.d.ts';
import type {
  FieldConfig as Hidden,
  Options as Heatmap,
} from '@grafana/schema/dist/types/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen.d.ts';
import type { Options as Stat } from '@grafana/schema/dist/types/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts';
import type {
  FieldConfig as Lane,
  Options as Lanes,
} from '@grafana/schema/dist/types/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen.d.ts';
import type {
  FieldConfig as Cell,
  Options as Table,
} from '@grafana/schema/dist/types/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen.d.ts';
import type {
  FieldConfig as Line,
  Options as TimeSeries,
} from '@grafana/schema/dist/types/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts';

// JSON has the values of enums, not their names.
type Json<T> = T extends string
  ? `${T}`
  : T extends Array<infer Item>
    ? Array<Json<Item>>
    : T extends object
      ? { [Key in keyof T]: Json<T[Key]> }
      : T;

interface PrometheusQuery extends DataQuery {
  expr: string;
  format?: 'time_series' | 'table' | 'heatmap';
  instant: boolean;
  range: boolean;
  legendFormat?: string;
  interval?: string;
}

// Read by the Prometheus data source from the annotation itself, beside its query.
interface PrometheusAnnotation extends AnnotationQuery<PrometheusQuery> {
  expr: string;
  step: string;
  titleFormat: string;
  textFormat: string;
  tagKeys: string;
  useValueForTime?: boolean;
}

// Kept in Grafana itself, and asked for by tags.
interface StoredAnnotation extends Omit<AnnotationQuery, 'target'> {
  target: AnnotationTarget;
}

interface BuiltInAnnotation extends Omit<AnnotationQuery, 'target'> {
  builtIn: 1;
}

interface Of<Type extends string, Options, Field> extends Omit<Panel<never, Field>, 'type' | 'options' | 'targets'> {
  type: Type;
  options: Options;
  targets: PrometheusQuery[];
}

// The schema has no types of this panel: its own, as Grafana reads them.
interface AlertList {
  viewMode: 'list' | 'stat';
  groupMode: 'default' | 'custom';
  groupBy: string[];
  maxItems: number;
  sortOrder: 1 | 2 | 3 | 4 | 5;
  dashboardAlerts: boolean;
  alertName: string;
  alertInstanceLabelFilter: string;
  stateFilter: Record<'firing' | 'pending' | 'error' | 'noData' | 'normal', boolean>;
}

type AnyPanel =
  | Of<'alertlist', AlertList, never>
  | Of<'heatmap', Heatmap, Hidden>
  | Of<'timeseries', TimeSeries, Line>
  | Of<'stat', Stat, never>
  | Of<'state-timeline', Lanes, Lane>
  | Of<'bargauge', Omit<BarGauge, 'maxVizHeight' | 'minVizHeight' | 'minVizWidth'> & Partial<BarGauge>, never>
  | Of<'table', Table, Cell>;

interface Row extends Omit<RowPanel, 'panels'> {
  panels: AnyPanel[];
}

interface Ours extends Omit<Dashboard, 'panels' | 'annotations'> {
  panels: Array<AnyPanel | Row>;
  annotations: { list: Array<BuiltInAnnotation | PrometheusAnnotation | StoredAnnotation> };
}

export type OurDashboard = Json<Ours>;
