// One step of one sample: what the canvas held and where the rows looked.

import { liftOf, ranksOf, shareOf } from "../lib/numbers";
import type { Page, PageArray, Values } from "./page";
import { ANCHOR, type ArrayName, NOT_MEASURED, type Quantised, type RunDocument, type SampleDocument } from "./schema";

const BY_STEP: ArrayName[] = ["canvas", "state", "role", "confidence", "mass", "visible", "null", "rows", "standing", "absorbed", "absorbed_null", "entropy", "centroid"];
const RECEIVED: ArrayName[] = ["mass", "visible", "null", "standing"];

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

export async function loadFrame(page: Page, run: RunDocument, sample: SampleDocument, step: number, names: ArrayName[] = BY_STEP): Promise<Frame> {
  const arrays = new Map<ArrayName, PageArray>();
  const rows = new Map<ArrayName, Values>();
  await Promise.all(
    names.map(async (name) => {
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

/** Received attention of every key from one group of rows, in one layer, by one head or by all. What is not looked at is not computed. */
export class Profile {
  private ranked: Int32Array | null = null;
  private shared: Float32Array | null = null;
  private fairly: Float32Array | null = null;

  constructor(
    readonly lift: Values,
    private readonly visible: Values,
    private readonly fair: Values,
    readonly standing: Values | null, // of the mean over heads
    readonly approximate: Quantised | null,
  ) {}

  get ranks(): Int32Array {
    return (this.ranked ??= ranksOf(this.lift));
  }

  get share(): Float32Array {
    return (this.shared ??= shareOf(this.amounts(this.lift)));
  }

  get fairShare(): Float32Array {
    return (this.fairly ??= shareOf(this.amounts(null)));
  }

  /** Mass, or the mass of a fair share. */
  private amounts(lift: Values | null): Float32Array {
    const amounts = new Float32Array(this.visible.length);
    for (let key = 0; key < amounts.length; key++) {
      const expected = this.visible[key] * this.fair[key];
      amounts[key] = expected > 0 ? expected * (lift ? lift[key] : 1) : NaN;
    }
    return amounts;
  }
}

export async function loadProfile(page: Page, frame: Frame, layer: number, head: number | null, group: number): Promise<Profile | null> {
  if (head === null) return profileOf(frame, layer, group);
  const visible = frame.along("visible", layer, group);
  const fair = frame.along("null", layer, group);
  const opened = page.array(frame.sample, "lift_by_head");
  if (!opened || !visible || !fair) return null;
  const array = await opened;
  const [, , heads, groups, keys] = array.shape;
  const lift = await array.row(frame.step, ((layer * heads + head) * groups + group) * keys, keys);
  return new Profile(lift, visible, fair, null, array.approximate);
}

/** The mean over heads, which a frame holds. */
export function profileOf(frame: Frame, layer: number, group: number): Profile | null {
  const mass = frame.along("mass", layer, group);
  const visible = frame.along("visible", layer, group);
  const fair = frame.along("null", layer, group);
  return mass && visible && fair ? new Profile(liftOf(mass, visible, fair), visible, fair, frame.along("standing", layer, group), null) : null;
}

export class Matrix {
  readonly lift: Float32Array;
  readonly standing: Uint8Array | null;
  readonly approximate: Quantised | null;
  private shared: Float32Array | null = null;

  constructor(
    private readonly profiles: Profile[],
    readonly keys: number,
  ) {
    this.lift = this.joined((profile) => profile.lift);
    this.approximate = profiles[0].approximate;
    this.standing = profiles[0].standing ? new Uint8Array(profiles.length * keys) : null;
    if (this.standing) profiles.forEach((profile, row) => this.standing!.set(profile.standing as Uint8Array, row * keys));
  }

  get rows(): number {
    return this.profiles.length;
  }

  get share(): Float32Array {
    return (this.shared ??= this.joined((profile) => profile.share));
  }

  private joined(of: (profile: Profile) => Values): Float32Array {
    const cells = new Float32Array(this.profiles.length * this.keys);
    this.profiles.forEach((profile, row) => cells.set(of(profile) as Float32Array, row * this.keys));
    return cells;
  }
}

/** Layers by keys at one step. */
export async function layersByKeys(page: Page, frame: Frame, head: number | null, group: number): Promise<Matrix | null> {
  const layers = frame.run.layers.map((_, layer) => layer);
  const profiles = head === null ? layers.map((layer) => profileOf(frame, layer, group)) : await Promise.all(layers.map((layer) => loadProfile(page, frame, layer, head, group)));
  return matrixOf(profiles, frame.sample.positions);
}

/** Steps by keys in one layer. */
export async function stepsByKeys(page: Page, run: RunDocument, sample: SampleDocument, layer: number, head: number | null, group: number): Promise<Matrix | null> {
  const steps = Array.from({ length: sample.steps }, (_, step) => step);
  const profiles = await Promise.all(steps.map(async (step) => loadProfile(page, await loadFrame(page, run, sample, step, RECEIVED), layer, head, group)));
  return matrixOf(profiles, sample.positions);
}

function matrixOf(profiles: (Profile | null)[], keys: number): Matrix | null {
  return profiles.length && profiles.every((profile) => profile !== null) ? new Matrix(profiles, keys) : null;
}

export interface TopKey {
  key: number;
  weight: number;
  heads: number; // how many heads have it among their strongest
}

export interface Looks {
  keys: TopKey[];
  fair: number | null; // what even attention would give to each key of the row
  approximate: Quantised | null;
}

/** Where the row looked that wrote a position: of one head, or of all, in which case a weight is the least that the mean can be. */
export async function topKeys(page: Page, run: RunDocument, sample: SampleDocument, position: number, layer: number, head: number | null): Promise<Looks | null> {
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
  const strongest = [...found.values()].sort((a, b) => b.weight - a.weight).slice(0, 8);
  return { keys: strongest, fair: strongest.length ? await fairWeight(page, run, sample, position, layer, strongest[0].key) : null, approximate: weights.approximate };
}

/** The null of a key at the step that wrote a position, from the rows that predict. */
async function fairWeight(page: Page, run: RunDocument, sample: SampleDocument, position: number, layer: number, key: number): Promise<number | null> {
  const group = run.groups.indexOf("predicting");
  const step = (await page.values(sample, "committed"))?.[position] ?? -1;
  const array = await page.array(sample, "null");
  if (group < 0 || step < 0 || !array) return null;
  const [, layers, groups, keys] = array.shape;
  const fair = (await array.row(step, ((layers === 1 ? 0 : layer) * groups + group) * keys + key, 1))[0];
  return Number.isNaN(fair) ? null : fair;
}

export const STANDINGS: Record<number, string> = { 0: "no anchor", [ANCHOR]: "anchor", [NOT_MEASURED]: "not measured: too few rows see it" };
