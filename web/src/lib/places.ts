// Where in the views one can see what a claim is about: what Watch shows, which measure of the heads, which card of Why, which experiment.

import type { EvaluationDocument } from "../data/schema";

export interface Place {
  heat?: "layers" | "steps";
  first?: true; // the first token is pinned
  measure?: string;
  card?: string; // its title
  asks?: Asks[]; // in order of preference
}

type Asks = (table: EvaluationDocument) => boolean;

/** The experiment that asked about a claim, of the same study if it has one; -1 where there is none. */
export function tableOf(claim: string, tables: EvaluationDocument[], source: string): number {
  const ofStudy = (table: EvaluationDocument) => table.name === source || table.name.startsWith(`${source}: `);
  const wanted = PLACES[claim]?.asks ?? [() => true];
  for (const own of [ofStudy, () => true]) {
    for (const asks of wanted) {
      const place = tables.findIndex((table) => own(table) && asks(table));
      if (place >= 0) return place;
    }
  }
  return -1;
}

const describing: Asks = (table) => table.name.endsWith("masked descriptions"); // what decides where it was asked
const masking: Asks = (table) => table.points.some((point) => point.intervention);
const asking = (kind: string): Asks => (table) => table.points.some((point) => point.kind === kind && !point.intervention);

export const PLACES: Record<string, Place> = {
  "fixed-sink": { first: true },
  "sink-stays": { heat: "steps", first: true },
  "floats": { heat: "steps" },
  "floats-more": { heat: "steps" },
  "strongest-key-moves": { heat: "steps" },
  "variances": { heat: "steps" },
  "frontier": { heat: "steps" },
  "retrieval-heads": { measure: "retrieval score" },
  "retrieval-when-deep": { measure: "retrieval score" },
  "small-values-arm": { card: "Value norms by layer" },
  "small-values-mdm": { card: "Value norms by layer" },
  "sinks-on-structure": { card: "Anchor mass by role" },
  "structure-then-content": { card: "Enrichment of roles by depth" },
  "geometry": { card: "Score advantage of anchors, by direction and by norm" },
  "flows-to-gold": { card: "Direct flow into regions" },
  "masking-ruins-arm": { asks: [describing, masking] },
  "masking-spares-mdm": { asks: [describing, masking] },
  "masking-tells-apart": { asks: [describing, masking] },
  "gains-more": { asks: [asking("gold")] },
  "gains-twice": { asks: [asking("gold")] },
  "robust-to-noise": { asks: [asking("noise")] },
  "robust-to-position": { asks: [asking("position")] },
  "robust-to-layout": { asks: [asking("layout")] },
};
