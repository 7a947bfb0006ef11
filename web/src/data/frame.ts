// One step of one sample: what the canvas held and where the rows looked.

import { liftOf, ranksOf, shareOf } from "../lib/numbers";
import type { Page, PageArray, Values } from "./page";
import { ANCHOR, type ArrayName, NOT_MEASURED, type Quantised, type RunDocument, type SampleDocument } from "./schema";

const BY_STEP: ArrayName[] = ["canvas", "state", "role", "confidence", "mass", "visible", "null", "rows", "standing", "absorbed", "absorbed_null", "entropy", "centroid"];

export class Frame {
  constructor(
    readonly run: RunDocument,
    readonly sample: SampleDocument,
    readonly step: number,
    private readonly rows: Map<ArrayName, Values>,
    private readonly arrays: Map<ArrayName, PageArray>,
  ) {}

  whole(name: ArrayName): Values | null {
    return this.rows.get(name) ?? null;
  }

  /** What an array by layer and group holds along its last axis. */
  along(name: ArrayName, layer: number, group: number): Values | null {
    const row = this.rows.get(name);
    if (!row) return null;
    const [, layers, groups, last = 1] = this.arrays.get(name)!.shape;
    const start = ((layers === 1 ? 0 : layer) * groups + group) * last;
    return row.subarray(start, start + last);
  }
}

export async function loadFrame(page: Page, run: RunDocument, sample: SampleDocument, step: number): Promise<Frame> {
  const arrays = new Map<ArrayName, PageArray>();
  const rows = new Map<ArrayName, Values>();
  await Promise.all(
    BY_STEP.map(async (name) => {
      const opened = page.array(sample, name);
      if (!opened) return;
      const array = await opened;
      arrays.set(name, array);
      rows.set(name, await array.row(step));
      if (step + 1 < sample.steps) void array.stored(step + 1); // the next step will be wanted soonest
    }),
  );
  return new Frame(run, sample, step, rows, arrays);
}

/** Received attention of every key from one group of rows, in one layer, by one head or by all. */
export class Profile {
  private ranked: Int32Array | null = null;

  constructor(
    readonly lift: Values,
    readonly share: Values,
    readonly fairShare: Values,
    readonly standing: Values | null, // of the mean over heads
    readonly approximate: Quantised | null,
  ) {}

  /** Sorting costs more than all the rest, and only what is hovered needs it. */
  get ranks(): Int32Array {
    return (this.ranked ??= ranksOf(this.lift));
  }
}

export async function loadProfile(page: Page, frame: Frame, layer: number, head: number | null, group: number): Promise<Profile | null> {
  const mass = frame.along("mass", layer, group);
  const visible = frame.along("visible", layer, group);
  const fair = frame.along("null", layer, group);
  if (!mass || !visible || !fair) return null;
  const fairMass = Float32Array.from(visible, (rows, key) => rows * fair[key]);
  if (head === null) {
    return new Profile(liftOf(mass, visible, fair), shareOf(mass), shareOf(fairMass), frame.along("standing", layer, group), null);
  }
  const opened = page.array(frame.sample, "lift_by_head");
  if (!opened) return null;
  const array = await opened;
  const [, , heads, groups, keys] = array.shape;
  const lift = await array.row(frame.step, ((layer * heads + head) * groups + group) * keys, keys);
  const ofHead = Float32Array.from(fairMass, (amount, key) => (amount > 0 ? amount * lift[key] : NaN));
  return new Profile(lift, shareOf(ofHead), shareOf(fairMass), null, array.approximate);
}

export interface Matrix {
  rows: number;
  keys: number;
  lift: Float32Array;
  share: Float32Array;
  standing: Uint8Array | null;
  approximate: Quantised | null;
}

/** Layers by keys at one step. */
export async function layersByKeys(page: Page, frame: Frame, head: number | null, group: number): Promise<Matrix | null> {
  return collect(frame.run.layers.length, frame.sample.positions, (layer) => loadProfile(page, frame, layer, head, group));
}

/** Steps by keys in one layer. */
export async function stepsByKeys(page: Page, run: RunDocument, sample: SampleDocument, layer: number, head: number | null, group: number): Promise<Matrix | null> {
  return collect(sample.steps, sample.positions, async (step) => loadProfile(page, await loadFrame(page, run, sample, step), layer, head, group));
}

async function collect(rows: number, keys: number, of: (row: number) => Promise<Profile | null>): Promise<Matrix | null> {
  const profiles = await Promise.all(Array.from({ length: rows }, (_, row) => of(row)));
  if (profiles.some((profile) => !profile)) return null;
  const matrix: Matrix = {
    rows,
    keys,
    lift: new Float32Array(rows * keys),
    share: new Float32Array(rows * keys),
    standing: profiles[0]!.standing ? new Uint8Array(rows * keys) : null,
    approximate: profiles[0]!.approximate,
  };
  profiles.forEach((profile, row) => {
    matrix.lift.set(profile!.lift as Float32Array, row * keys);
    matrix.share.set(profile!.share as Float32Array, row * keys);
    matrix.standing?.set(profile!.standing as Uint8Array, row * keys);
  });
  return matrix;
}

export interface TopKey {
  key: number;
  weight: number;
  heads: number; // how many heads have it among their strongest
}

/** Where the row looked that wrote a position: of one head, or of all, in which case a weight is the least that the mean can be. */
export async function topKeys(page: Page, run: RunDocument, sample: SampleDocument, position: number, layer: number, head: number | null): Promise<{ keys: TopKey[]; approximate: Quantised | null } | null> {
  const places = await page.values(sample, "written");
  const place = places ? Array.from(places).indexOf(position) : -1;
  const keyArray = page.array(sample, "top_key");
  const weightArray = page.array(sample, "top_weight");
  if (place < 0 || !keyArray || !weightArray) return null;
  const [keys, weights] = [await keyArray, await weightArray];
  const [, heads, written, ranks] = keys.shape;
  const [ids, amounts] = [await keys.row(layer), await weights.row(layer)];
  const found = new Map<number, TopKey>();
  for (let own = 0; own < heads; own++) {
    if (head !== null && own !== head) continue;
    for (let rank = 0; rank < ranks; rank++) {
      const at = (own * written + place) * ranks + rank;
      if (ids[at] < 0 || Number.isNaN(amounts[at])) continue;
      const entry = found.get(ids[at]) ?? { key: ids[at], weight: 0, heads: 0 };
      entry.weight += amounts[at] / (head === null ? heads : 1);
      entry.heads++;
      found.set(ids[at], entry);
    }
  }
  return { keys: [...found.values()].sort((a, b) => b.weight - a.weight).slice(0, 8), approximate: weights.approximate };
}

export const STANDINGS: Record<number, string> = { 0: "no anchor", [ANCHOR]: "anchor", [NOT_MEASURED]: "not measured: too few rows see it" };
