// Where in the views one can see what a claim is about: what Watch shows, which measure of the heads, which card of Why, which experiment.

import type { ArrayName, EvaluationDocument } from "../data/schema";

export interface Place {
  heat?: "layers" | "steps";
  first?: true; // the first token is pinned
  measure?: string;
  card?: string; // its title
  needs?: ArrayName; // there is nothing to see in a run without it
  asks?: Asks[]; // in order of preference
}

type Asks = (table: EvaluationDocument) => boolean;

/** The experiment that asked about a claim, of the same study where the page has experiments of it; -1 where there is none. */
export function tableOf(claim: string, tables: EvaluationDocument[], source: string): number {
  const ofStudy = (table: EvaluationDocument) => table.name === source || table.name.startsWith(`${source}: `);
  const own = tables.some(ofStudy) ? ofStudy : () => true;
  const places = (PLACES[claim]?.asks ?? [() => true]).map((asks) => tables.findIndex((table) => own(table) && asks(table)));
  return places.find((place) => place >= 0) ?? -1;
}

const describing: Asks = (table) => table.name.endsWith("masked descriptions"); // what decides where it was asked
const masking: Asks = (table) => table.points.some((point) => point.intervention);
const maskingAll: Asks = (table) => table.models.every((model) => table.points.some((point) => point.model === model && point.intervention)); // so that they can be compared
const comparingGains: Asks = (table) => table.points.some((point) => point.quantity === "interaction");
const asking = (kind: string): Asks => (table) => table.points.some((point) => point.kind === kind && !point.intervention);

export const PLACES: Record<string, Place> = {
  "fixed-sink": { first: true },
  "sink-stays": { heat: "steps", first: true },
  "floats": { heat: "steps" },
  "floats-more": { heat: "steps" },
  "strongest-key-moves": { heat: "steps" },
  "variances": { heat: "steps" },
  "frontier": { heat: "steps" },
  "retrieval-heads": { measure: "retrieval score", needs: "head_value" },
  "retrieval-when-deep": { measure: "retrieval score", needs: "head_value" },
  "small-values-arm": { card: "Value norms by layer", needs: "value_norms" },
  "small-values-mdm": { card: "Value norms by layer", needs: "value_norms" },
  "sinks-on-structure": { card: "Anchor mass by role", needs: "role_share" },
  "structure-then-content": { card: "Enrichment of roles by depth", needs: "role_enrichment" },
  "geometry": { card: "Score advantage of anchors, by direction and by norm", needs: "advantage" },
  "flows-to-gold": { card: "Direct flow into regions", needs: "flow" },
  "masking-ruins-arm": { asks: [describing, maskingAll, masking] },
  "masking-spares-mdm": { asks: [describing, maskingAll, masking] },
  "masking-tells-apart": { asks: [describing, maskingAll, masking] },
  "gains-more": { asks: [comparingGains, asking("gold")] },
  "gains-twice": { asks: [comparingGains, asking("gold")] },
  "robust-to-noise": { asks: [asking("noise")] },
  "robust-to-position": { asks: [asking("position")] },
  "robust-to-layout": { asks: [asking("layout")] },
};
