// The cursor that all views share, and the link that restores it.

import { getContext, setContext, untrack } from "svelte";
import type { Page } from "./data/page";
import type { RunDocument, SampleDocument, TrainingDocument } from "./data/schema";

export const VIEWS = ["run", "heads", "why", "claims", "contexts", "training", "tour"] as const;
export type View = (typeof VIEWS)[number];
export const NAMES: Record<View, string> = {
  run: "Watch",
  heads: "Heads",
  why: "Why",
  claims: "Claims",
  contexts: "Contexts",
  training: "Training",
  tour: "Tour",
};

const SOON_READ = 100_000; // steps times keys: more of them would keep the first view waiting

export interface Hover {
  x: number;
  y: number;
  title: string;
  lines: [string, string][];
}

const NUMBERS = ["step", "layer", "head", "key", "row", "otherKey", "otherRow", "update", "depth", "training", "stop", "claims", "table"] as const;
const WORDS = ["group", "heat", "colour", "scale", "measure", "outcome", "point"] as const;

export class Cursor {
  view = $state<View>("run");
  run = $state(0);
  sample = $state(0); // place in the run's list
  other = $state<number | null>(null); // a second run beside the first
  step = $state(0);
  layer = $state(0); // place along the axis, not the label
  head = $state<number | null>(null); // null: the mean over heads
  group = $state("");
  key = $state<number | null>(null); // pinned
  row = $state<number | null>(null); // the written token whose row is shown
  otherKey = $state<number | null>(null); // the same in the second run
  otherRow = $state<number | null>(null);
  texts = $state.raw<Record<number, string[]>>({}); // what stands at every position in the end, by run
  heat = $state("layers");
  colour = $state("lift");
  scale = $state("log");
  measure = $state("");
  outcome = $state("");
  point = $state("");
  update = $state<number | null>(null); // null: the last that all curves have
  depth = $state(0); // along a training: 0 is the mean over all layers, then every layer
  training = $state(0);
  stop = $state(0);
  claims = $state(0);
  table = $state(0);
  playing = $state(false);
  speed = $state(4); // steps per second
  loop = $state(true);
  theme = $state<"auto" | "light" | "dark">("auto");
  hover = $state<Hover | null>(null);
  private told = 0;
  bounds = $state<Record<string, [number, number]>>({}); // of charts, by their name and run
  arranged = -1; // the stop of the tour that the views have been arranged for
  card = $state(""); // the one to be scrolled to, once
  wrong = $state(""); // what could not be read
  searching = $state(false);
  query = $state(""); // what is searched for
  help = $state(false);

  constructor(readonly page: Page) {
    const run = page.document.runs[0];
    if (run) this.settle(run);
    else this.view = page.document.claims.length ? "claims" : page.document.evaluations.length ? "contexts" : "training";
  }

  /** A good place to begin: the rows that both runs have, along the steps, in the middle of the run and of the model. */
  private settle(run: RunDocument): void {
    this.layer = Math.floor(run.layers.length / 2);
    this.step = Math.floor((this.sampleOf(0)?.steps ?? 1) / 3);
    this.other = this.partners[0] ?? null;
    const beside = this.other === null ? run : this.page.document.runs[this.other];
    this.group = ["masked", "predicting"].find((group) => run.groups.includes(group) && beside.groups.includes(group)) ?? run.groups[0];
    const { steps, positions } = run.samples[0] ?? { steps: 1, positions: 1 };
    this.heat = steps > 1 && steps * positions <= SOON_READ ? "steps" : "layers";
  }

  get runDocument(): RunDocument | undefined {
    return this.page.document.runs[this.run];
  }

  get sampleDocument(): SampleDocument | undefined {
    return this.runDocument?.samples[this.sample];
  }

  sampleOf(run: number): SampleDocument | undefined {
    const samples = this.page.document.runs[run]?.samples ?? [];
    if (run === this.run) return samples[this.sample];
    return samples.find((sample) => sample.question === this.sampleDocument?.question);
  }

  /** Other runs of the same prompt: diffusion beside autoregressive first. */
  get partners(): number[] {
    const runs = this.page.document.runs;
    const places = [...runs.keys()].filter((place) => place !== this.run && this.sampleOf(place));
    return places.sort((a, b) => Number(runs[a].autoregressive === this.runDocument?.autoregressive) - Number(runs[b].autoregressive === this.runDocument?.autoregressive));
  }

  get steps(): number {
    return this.sampleDocument?.steps ?? 1;
  }

  /** The step of another run that is as far along. */
  stepIn(run: number): number {
    const steps = this.sampleOf(run)?.steps ?? 1;
    return run === this.run || this.steps < 2 ? Math.min(this.step, steps - 1) : Math.round((this.step / (this.steps - 1)) * (steps - 1));
  }

  /** The layer of another run that is as deep. */
  layerIn(run: number): number {
    const own = this.runDocument?.layers.length ?? 1;
    const layers = this.page.document.runs[run].layers.length;
    return run === this.run || own < 2 ? Math.min(this.layer, layers - 1) : Math.round((this.layer / (own - 1)) * (layers - 1));
  }

  headIn(run: number): number | null {
    return this.head === null ? null : Math.min(this.head, this.page.document.runs[run].heads - 1);
  }

  /** The group in another run: the same rows, or those that predict, which every model has. */
  groupIn(run: number): number {
    const groups = this.page.document.runs[run].groups;
    const same = groups.indexOf(this.group);
    return same >= 0 ? same : Math.max(0, groups.indexOf("predicting"));
  }

  get trainingDocument(): TrainingDocument | undefined {
    const all = this.page.document.training;
    return all[Math.min(this.training, all.length - 1)];
  }

  /** The place of the update along the axis; where none is asked for, the last one that all curves have. */
  get updateAt(): number {
    const { updates = [], curves = [] } = this.trainingDocument ?? {};
    const place = this.update === null ? -1 : updates.indexOf(this.update);
    const shared = updates.findLastIndex((update) => curves.every((curve) => curve.updates.includes(update)));
    return place >= 0 ? place : shared >= 0 ? shared : updates.length - 1;
  }

  goToUpdate(place: number): void {
    const updates = this.trainingDocument?.updates ?? [];
    this.update = updates[Math.max(0, Math.min(updates.length - 1, place))] ?? null;
  }

  goTo(step: number): void {
    this.step = Math.max(0, Math.min(this.steps - 1, step));
  }

  /** Go to a step of a run, or to the one that is as far along where it is the run beside. */
  goToStepOf(run: number, step: number): void {
    const steps = this.sampleOf(run)?.steps ?? 1;
    this.goTo(run === this.run || steps < 2 ? step : Math.round((step / (steps - 1)) * (this.steps - 1)));
  }

  /** Choose a layer of a run, or the one that is as deep where it is the run beside. */
  chooseLayerOf(run: number, layer: number): void {
    const [own, layers] = [this.runDocument?.layers.length ?? 1, this.page.document.runs[run].layers.length];
    this.layer = run === this.run || layers < 2 ? layer : Math.round((layer / (layers - 1)) * (own - 1));
  }

  /** Play or pause, and begin anew at the end. */
  play(): void {
    if (!this.playing && this.view === "training" && this.updateAt + 1 >= (this.trainingDocument?.updates.length ?? 0)) this.goToUpdate(0);
    if (!this.playing && this.view !== "training" && this.step + 1 >= this.steps) this.goTo(0);
    this.playing = !this.playing;
  }

  /** Tell of what is hovered once it is read, unless something else or nothing is hovered by then. */
  async tell(hover: Promise<Hover>): Promise<void> {
    const own = ++this.told;
    try {
      const read = await hover;
      if (own === this.told) this.hover = read;
    } catch (error) {
      this.wrong = String(error);
    }
  }

  leave(): void {
    this.told++;
    this.hover = null;
  }

  pinnedIn(run: number): { key: number | null; row: number | null } {
    return run === this.run ? { key: this.key, row: this.row } : { key: this.otherKey, row: this.otherRow };
  }

  pin(run: number, key: number | null, row: number | null = null): void {
    if (run === this.run) [this.key, this.row] = [key, row];
    else [this.otherKey, this.otherRow] = [key, row];
  }

  unpin(): void {
    this.key = this.row = this.otherKey = this.otherRow = null;
  }

  /** The key to mark in a run: what is pinned there, or in the run beside if both have the same token there. */
  keyIn(run: number): number | null {
    const { key } = this.pinnedIn(run);
    const beside = run === this.run ? this.other : this.run;
    const theirs = beside === null ? null : this.pinnedIn(beside).key;
    if (key !== null || theirs === null) return key;
    const text = this.texts[run]?.[theirs];
    return text !== undefined && text === this.texts[beside!]?.[theirs] ? theirs : null;
  }

  /** The positions of a run whose token holds what is searched for. */
  foundIn(run: number): Set<number> {
    const wanted = this.query.trim().toLowerCase();
    const texts = wanted ? (this.texts[run] ?? []) : [];
    return new Set([...texts.keys()].filter((place) => texts[place].toLowerCase().includes(wanted)));
  }

  chooseRun(run: number): void {
    const question = this.sampleDocument?.question;
    const kept = this.page.document.runs[run].samples.findIndex((sample) => sample.question === question);
    const progress = this.steps > 1 ? this.step / (this.steps - 1) : 0;
    const depth = this.layerIn(run);
    const before = this.run;
    this.group = this.page.document.runs[run].groups[this.groupIn(run)];
    this.layer = depth;
    this.head = this.headIn(run);
    this.run = run;
    this.sample = Math.max(0, kept);
    this.step = Math.round(progress * (this.steps - 1));
    this.unpin();
    if (this.other === run) this.other = this.partners.includes(before) ? before : null;
    else if (this.other !== null && !this.partners.includes(this.other)) this.other = this.partners[0] ?? null;
  }

  /** Put another run beside this one, or none. */
  chooseOther(run: number | null): void {
    this.other = run;
    this.otherKey = this.otherRow = null;
  }

  chooseSample(sample: number): void {
    this.sample = sample;
    this.goTo(this.step);
    this.unpin();
    if (this.other !== null && !this.partners.includes(this.other)) this.other = this.partners[0] ?? null;
  }

  /** The state as a link: `#/run/twin-mdm/12?step=14&layer=3&head=1`. */
  get link(): string {
    const run = this.runDocument;
    const number = this.sampleDocument?.path.split("/").at(-1);
    const path = ["", this.view, ...(run ? [encodeURIComponent(run.name), number] : [])].join("/");
    const parts: string[] = [];
    const add = (name: string, value: string | number | null) => value !== null && value !== "" && parts.push(`${name}=${encodeURIComponent(value)}`);
    if (run) {
      add("step", this.step);
      add("layer", this.runDocument!.layers[this.layer]);
      add("head", this.head);
      add("group", this.group);
      if (this.other !== null) add("with", this.page.document.runs[this.other].name);
      add("key", this.key);
      add("row", this.row);
      add("otherKey", this.otherKey);
      add("otherRow", this.otherRow);
      if (this.heat !== "layers") add("heat", this.heat);
      if (this.colour !== "lift") add("colour", this.colour);
      if (this.scale !== "log") add("scale", this.scale);
    }
    if (this.view === "heads") add("measure", this.measure);
    if (this.view === "claims" && this.claims) add("claims", this.claims);
    if (this.view === "contexts") {
      if (this.table) add("table", this.table);
      add("outcome", this.outcome);
      add("point", this.point);
    }
    if (this.view === "training") {
      if (this.training) add("training", this.training);
      add("measure", this.measure);
      if (this.depth) add("depth", this.depth);
      add("update", this.update);
    }
    if (this.view === "tour") add("stop", this.stop);
    return `#${path}${parts.length ? `?${parts.join("&")}` : ""}`;
  }

  /** Take over what a link says; what it does not say or cannot mean stays as it is. */
  follow(link: string): void {
    const [path, query] = link.replace(/^#/, "").split("?");
    const [, view, name, number] = path.split("/").map((part) => safely(part));
    if ((VIEWS as readonly string[]).includes(view)) this.view = view as View;
    const runs = this.page.document.runs;
    const run = runs.findIndex((own) => own.name === name);
    if (run >= 0) {
      this.run = run;
      this.sample = Math.max(0, runs[run].samples.findIndex((sample) => sample.path.split("/").at(-1) === number));
    }
    const said = new Map((query ?? "").split("&").map((part) => part.split("=").map(safely) as [string, string]));
    if (run >= 0) {
      this.head = this.other = null;
      this.heat = "layers";
      this.unpin();
      this.group = runs[run].groups.includes(this.group) ? this.group : runs[run].groups[0];
    }
    for (const name of NUMBERS) {
      const value = Number(said.get(name));
      if (said.has(name) && Number.isInteger(value) && value >= 0) this[name] = value;
    }
    for (const name of WORDS) if (said.has(name)) this[name] = said.get(name)!;
    this.arranged = said.has("step") ? this.stop : -1;
    const own = this.runDocument;
    if (!own) return;
    this.goTo(this.step);
    if (said.has("layer")) this.layer = Math.max(0, own.layers.indexOf(Number(said.get("layer"))));
    this.layer = Math.min(this.layer, own.layers.length - 1);
    if (this.head !== null && this.head >= own.heads) this.head = null;
    if (!own.groups.includes(this.group)) this.group = own.groups[0];
    const positions = this.sampleDocument?.positions ?? 0;
    if (this.key !== null && this.key >= positions) this.key = null;
    if (this.row !== null && this.row >= positions) this.row = null;
    const other = runs.findIndex((run) => run.name === said.get("with"));
    if (other >= 0 && this.partners.includes(other)) this.other = other;
    const theirs = this.other === null ? 0 : (this.sampleOf(this.other)?.positions ?? 0);
    if (this.otherKey !== null && this.otherKey >= theirs) this.otherKey = null;
    if (this.otherRow !== null && this.otherRow >= theirs) this.otherRow = null;
  }
}

function safely(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}

const KEY = Symbol("cursor");

export function provide(cursor: Cursor): void {
  setContext(KEY, cursor);
}

export function useCursor(): Cursor {
  return getContext<Cursor>(KEY);
}

const PLACE = Symbol("place");

/** Say of which run the charts below are. */
export function showing(place: () => number): void {
  setContext(PLACE, place);
}

/** The bounds of a chart: its own, or those of both charts where two runs are compared. */
export function useBounds(name: () => string, own: () => [number, number] | null): () => [number, number] | null {
  const cursor = useCursor();
  const place = getContext<(() => number) | undefined>(PLACE);
  if (!place) return own;
  $effect(() => {
    const value = own();
    const key = `${name()}/${place()}`;
    untrack(() => {
      const known = cursor.bounds[key];
      if (value && (known?.[0] !== value[0] || known[1] !== value[1])) cursor.bounds[key] = value;
    });
  });
  return () => {
    const value = own();
    const beside = place() === cursor.run ? cursor.other : cursor.run;
    const theirs = beside === null ? undefined : cursor.bounds[`${name()}/${beside}`];
    return value && theirs ? [Math.min(value[0], theirs[0]), Math.max(value[1], theirs[1])] : value;
  };
}
