// A page group through zarrita: documents, and arrays by step with a cache. Docs: docs/reference/page-format.md.

import * as zarr from "zarrita";
import { AXES, PAGE_VERSION, type AnswerDocument, type ArrayName, type PageDocument, type Quantised, type SampleDocument } from "./schema";
import type { Store } from "./store";

export type Values = Float32Array | Int32Array | Int8Array | Uint8Array;

const CACHED = 192 * 1024 * 1024; // bytes of decoded chunks

class Cache {
  private held = new Map<string, Promise<Values>>();
  private sizes = new Map<string, number>();
  private total = 0;

  get(key: string, make: () => Promise<Values>): Promise<Values> {
    const known = this.held.get(key);
    if (known) {
      this.held.delete(key); // the least recently used is dropped first
      this.held.set(key, known);
      return known;
    }
    const made = make();
    this.held.set(key, made);
    made.then(
      (values) => {
        this.sizes.set(key, values.byteLength);
        this.total += values.byteLength;
        for (const oldest of this.held.keys()) {
          if (this.total <= CACHED || oldest === key) break;
          this.total -= this.sizes.get(oldest) ?? 0;
          this.sizes.delete(oldest);
          this.held.delete(oldest);
        }
      },
      () => this.held.delete(key),
    );
    return made;
  }
}

/** One array of a sample. The first axis is read piece by piece; pieces hold everything of the others. */
export class PageArray {
  readonly shape: readonly number[];
  readonly approximate: Quantised | null;
  readonly rowLength: number;
  private readonly levels: Float32Array | null;

  constructor(
    readonly name: ArrayName,
    private readonly path: string,
    private readonly array: zarr.Array<zarr.DataType, zarr.AsyncReadable>,
    private readonly cache: Cache,
  ) {
    this.shape = array.shape;
    this.rowLength = array.shape.slice(1).reduce((product, size) => product * size, 1);
    this.approximate = (array.attrs.quantised as Quantised | undefined) ?? null;
    this.levels = this.approximate && levelsOf(this.approximate);
  }

  /** The length of an axis. */
  size(axis: string): number {
    return this.shape[AXES[this.name].indexOf(axis)];
  }

  private chunk(number: number): Promise<Values> {
    return this.cache.get(`${this.path}/${number}`, async () => {
      const place = [number, ...this.shape.slice(1).map(() => 0)];
      return (await this.array.getChunk(place)).data as Values;
    });
  }

  /** Everything at one place of the first axis, as it is stored. */
  async stored(index: number): Promise<Values> {
    const perChunk = this.array.chunks[0];
    const chunk = await this.chunk(Math.floor(index / perChunk));
    const start = (index % perChunk) * this.rowLength;
    return chunk.subarray(start, start + this.rowLength);
  }

  /** Numbers at one place of the first axis: all of them, or `length` from `from` on. */
  async row(index: number, from = 0, length = this.rowLength - from): Promise<Values> {
    const part = (await this.stored(index)).subarray(from, from + length);
    if (!this.levels) return part;
    const values = new Float32Array(part.length);
    for (let place = 0; place < part.length; place++) values[place] = this.levels[part[place]];
    return values;
  }

  async all(): Promise<Values> {
    const rows = await Promise.all(Array.from({ length: this.shape[0] }, (_, index) => this.row(index)));
    if (rows.length === 1) return rows[0];
    const kind = (rows[0]?.constructor ?? Float32Array) as Float32ArrayConstructor;
    const joined = new kind(this.shape[0] * this.rowLength);
    rows.forEach((row, index) => joined.set(row as Float32Array, index * this.rowLength));
    return joined;
  }
}

/** What each byte of a quantised array stands for; 255 is nothing. */
export function levelsOf(how: Quantised): Float32Array {
  const values = new Float32Array(256);
  for (let level = 0; level < 255; level++) {
    values[level] = how.kind === "linear" ? level * how.step : level ? 2 ** (how.floor + (level - 1) * how.step) : 0;
  }
  values[255] = NaN;
  return values;
}

/** From where to where a quantised number may lie. */
export function boundsOf(value: number, how: Quantised): [number, number] {
  if (how.kind === "linear") return [Math.max(0, value - how.step / 2), value + how.step / 2];
  return value === 0 ? [0, 2 ** (how.floor - how.step / 2)] : [value * 2 ** (-how.step / 2), value * 2 ** (how.step / 2)];
}

/** A group with arrays: a sample, or a training. */
type Held = Pick<SampleDocument, "path" | "arrays">;

export class Page {
  private readonly cache = new Cache();
  private readonly arrays = new Map<string, Promise<PageArray>>();
  private readonly attributes = new Map<string, Promise<Record<string, unknown>>>();

  private constructor(
    private readonly store: Store,
    readonly document: PageDocument,
    readonly leftOut: Record<string, string>,
  ) {}

  static async open(store: Store): Promise<Page> {
    const attributes = await readAttributes(store, "");
    const document = attributes.floatlens as PageDocument | undefined;
    if (document?.format !== "page") throw new Error("There is no page group here.");
    if (document.version > PAGE_VERSION) throw new Error(`This page reads page groups up to version ${PAGE_VERSION}, and this one is ${document.version}.`);
    return new Page(store, document, (attributes.left_out as Record<string, string>) ?? {});
  }

  array(sample: Held, name: ArrayName): Promise<PageArray> | null {
    if (!sample.arrays.includes(name)) return null;
    const path = `${sample.path}/${name}`;
    let opened = this.arrays.get(path);
    if (!opened) {
      const readable = { get: (key: string) => this.store.get(key) } as zarr.AsyncReadable;
      opened = zarr.open
        .v3(zarr.root(readable).resolve(path), { kind: "array" })
        .then((array) => new PageArray(name, path, array as zarr.Array<zarr.DataType, zarr.AsyncReadable>, this.cache));
      this.arrays.set(path, opened);
    }
    return opened;
  }

  /** Everything of a small array; null where the sample has none. */
  async values(sample: Held, name: ArrayName): Promise<Values | null> {
    const opened = this.array(sample, name);
    return opened ? (await opened).all() : null;
  }

  async vocabulary(sample: SampleDocument): Promise<Record<string, string>> {
    return (await this.attributesOf(sample.path)).vocabulary as Record<string, string>;
  }

  async answers(path: string): Promise<AnswerDocument[]> {
    return (await this.attributesOf(path)).answers as AnswerDocument[];
  }

  private attributesOf(path: string): Promise<Record<string, unknown>> {
    let read = this.attributes.get(path);
    if (!read) this.attributes.set(path, (read = readAttributes(this.store, path)));
    return read;
  }
}

async function readAttributes(store: Store, path: string): Promise<Record<string, unknown>> {
  const bytes = await store.get(`/${path ? `${path}/` : ""}zarr.json`);
  if (!bytes) throw new Error(`The page group has no ${path || "root"}.`);
  return JSON.parse(new TextDecoder().decode(bytes)).attributes;
}
