// Made by `make web-types` from src/floatlens/report/page/schema.py. Do not edit.


export const PAGE_VERSION = 1 as const;

export const SETS = ["first token", "strongest key", "anchors"] as const;

export const INDICES = ["float index", "no memory", "across halves", "no movement"] as const;

export const STATES = ["padding", "prompt", "masked", "committed now", "committed before"] as const;

export const ROLES = ["none", "mask", "special", "layout", "punctuation", "template", "function", "content", "number"] as const;

export const ANCHOR = 1 as const;

export const NOT_MEASURED = 2 as const;

export interface Quantised {
  kind: string;
  step: number;
  floor: number;
}

export interface SampleDocument {
  path: string;
  question: string;
  title: string;
  completion: string;
  steps: number;
  positions: number;
  arrays: string[];
  measures: string[];
  measure_units: string[];
  roles: string[];
  regions: string[];
  skipped: Record<string, string>;
}

export interface RunDocument {
  name: string;
  model: string;
  revision: string | null;
  family: string;
  autoregressive: boolean;
  sampler: Record<string, string>;
  seed: number;
  dtype: string;
  device: string;
  versions: Record<string, string>;
  edits: string[];
  layers: number[];
  heads: number;
  groups: string[];
  chosen: number[][];
  rule: string;
  eps: number;
  samples: SampleDocument[];
}

export interface Number {
  says: string;
  value: number | null;
  low: number | null;
  high: number | null;
  prompts: number;
  side: string;
  line: number;
  beside: number | null;
  beside_says: string;
  unit: string;
  verdict: string;
  reason: string;
}

export interface ClaimDocument {
  name: string;
  paper: string;
  statement: string;
  rule: string;
  verdict: string;
  reason: string;
  numbers: Number[];
  view: string;
  models: string[];
}

export interface ClaimsDocument {
  source: string;
  caution: string;
  models: string[];
  about: Record<string, string>;
  claims: ClaimDocument[];
}

export interface Point {
  quantity: string;
  outcome: string;
  model: string;
  other: string;
  context: string;
  kind: string;
  level: number | null;
  intervention: string;
  control: string;
  reference: string;
  estimate: number | null;
  low: number | null;
  high: number | null;
  samples: number;
  p_value: number | null;
  reason: string;
  shortcut: number | null;
  removed: number | null;
  answers: string | null;
}

export interface EvaluationDocument {
  name: string;
  models: string[];
  points: Point[];
}

export interface AnswerDocument {
  sample: string;
  prompt: string;
  prediction: string;
  answer: string;
  accuracy: number | null;
  log_likelihood: number | null;
}

export interface CurveDocument {
  name: string;
  runs: string[];
  objective: string;
  mask: string;
  group: string;
  over: string;
  count: number;
  updates: number[];
}

export interface TrainingDocument {
  name: string;
  path: string;
  arrays: string[];
  curves: CurveDocument[];
  measures: string[];
  updates: number[];
  layers: number[];
  unit: string;
}

export interface PageDocument {
  format: string;
  version: number;
  floatlens: string;
  runs: RunDocument[];
  claims: ClaimsDocument[];
  evaluations: EvaluationDocument[];
  training: TrainingDocument[];
}

export type ArrayName = "canvas" | "state" | "role" | "confidence" | "final" | "committed" | "mass" | "visible" | "null" | "rows" | "standing" | "absorbed" | "absorbed_null" | "entropy" | "centroid" | "centroid_null" | "commits" | "commit_confidence" | "float_index" | "top_key" | "top_weight" | "written" | "lift_by_head" | "entropy_by_head" | "first_by_head" | "first_by_head_null" | "head_value" | "head_null" | "pattern" | "geometry" | "geometry_standing" | "geometry_means" | "advantage" | "value_norms" | "role_share" | "role_null" | "role_enrichment" | "flow" | "flow_null" | "flow_fair" | "rollout" | "rollout_null" | "curve" | "curve_low" | "curve_high" | "curve_null";

export const AXES: Record<ArrayName, readonly string[]> = {
  canvas: ["step", "position"],
  state: ["step", "position"],
  role: ["step", "position"],
  confidence: ["step", "position"],
  final: ["position"],
  committed: ["position"],
  mass: ["step", "layer", "group", "key"],
  visible: ["step", "layer", "group", "key"],
  null: ["step", "layer", "group", "key"],
  rows: ["step", "layer", "group"],
  standing: ["step", "layer", "group", "key"],
  absorbed: ["step", "layer", "group", "set"],
  absorbed_null: ["step", "layer", "group", "set"],
  entropy: ["step", "layer", "group"],
  centroid: ["step", "layer", "group"],
  centroid_null: ["step", "layer", "group"],
  commits: ["step"],
  commit_confidence: ["step"],
  float_index: ["layer", "group", "index"],
  top_key: ["layer", "head", "written", "rank"],
  top_weight: ["layer", "head", "written", "rank"],
  written: ["written"],
  lift_by_head: ["step", "layer", "head", "group", "key"],
  entropy_by_head: ["step", "layer", "head", "group"],
  first_by_head: ["step", "layer", "head", "group"],
  first_by_head_null: ["step", "layer", "head", "group"],
  head_value: ["measure", "layer", "head", "group"],
  head_null: ["measure", "layer", "head", "group"],
  pattern: ["step", "chosen", "query", "key"],
  geometry: ["quantity", "layer", "group", "key"],
  geometry_standing: ["layer", "group", "key"],
  geometry_means: ["quantity", "layer", "group", "kind"],
  advantage: ["layer", "group", "part"],
  value_norms: ["layer", "group", "kind"],
  role_share: ["layer", "group", "role"],
  role_null: ["layer", "group", "role"],
  role_enrichment: ["layer", "group", "role"],
  flow: ["layer", "region"],
  flow_null: ["layer", "region"],
  flow_fair: ["layer", "region"],
  rollout: ["layer", "region"],
  rollout_null: ["layer", "region"],
  curve: ["update", "curve", "measure", "depth"],
  curve_low: ["update", "curve", "measure", "depth"],
  curve_high: ["update", "curve", "measure", "depth"],
  curve_null: ["update", "curve", "measure", "depth"],
};
