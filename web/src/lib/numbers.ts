// The few things the page computes itself: lift, shares, ranks, means over heads; and how numbers and tokens are written.

import type { Values } from "../data/page";

/** Received attention over its null; 1 is a fair share. */
export function liftOf(mass: Values, visible: Values, fair: Values): Float32Array {
  const lift = new Float32Array(mass.length);
  for (let key = 0; key < mass.length; key++) {
    const expected = visible[key] * fair[key];
    lift[key] = expected > 0 ? mass[key] / expected : NaN;
  }
  return lift;
}

/** The part of all attention that lies on each key. */
export function shareOf(mass: Values): Float32Array {
  let total = 0;
  for (let key = 0; key < mass.length; key++) if (mass[key] > 0) total += mass[key];
  const share = new Float32Array(mass.length);
  for (let key = 0; key < mass.length; key++) share[key] = total > 0 ? mass[key] / total : NaN;
  return share;
}

/** The place of each key by strength, from 1; 0 where it has none. Equal keys share the best place. */
export function ranksOf(strength: Values): Int32Array {
  const order = Array.from(strength.keys()).filter((key) => !Number.isNaN(strength[key]));
  order.sort((a, b) => strength[b] - strength[a] || a - b);
  const ranks = new Int32Array(strength.length);
  order.forEach((key, place) => {
    const before = place ? order[place - 1] : -1;
    ranks[key] = before >= 0 && strength[before] === strength[key] ? ranks[before] : place + 1;
  });
  return ranks;
}

/** The mean of what exists. */
export function meanOf(values: Iterable<number>): number {
  let sum = 0;
  let count = 0;
  for (const value of values) {
    if (!Number.isNaN(value)) {
      sum += value;
      count++;
    }
  }
  return count ? sum / count : NaN;
}

export type Maybe = number | null | undefined;

export function exists(value: Maybe): value is number {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** A number in four digits at most; a dash where there is none. */
export function written(value: Maybe, digits = 3): string {
  if (!exists(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return String(value).replace("-", "−");
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-4) return value.toExponential(digits - 1).replace("-", "−");
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return value.toFixed(Math.min(decimals, 6)).replace("-", "−");
}

/** Round positions to be written along an axis, at least so many pixels apart. */
export function ticksOf(positions: number, pixels: number, apart: number): number[] {
  const rough = (positions / pixels) * apart;
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((step) => step >= rough) ?? 2000;
  return Array.from({ length: Math.ceil(positions / every) }, (_, tick) => tick * every);
}

// controls, marks of direction, fillers and tags: what is drawn as nothing, or changes how its neighbours are drawn
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0000}-\u{e0fff}]/gu;
const JOINERS = /^[\u200c\u200d\ufe00-\ufe0f]+$/; // they belong to what they join, and alone they are nothing
const HALVES = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
export const LONGEST = 48; // characters of a token that are shown

function spelled(character: string): string {
  const code = character.codePointAt(0)!.toString(16);
  return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
}

/** A text in which nothing is invisible: control and direction characters are spelled out. */
export function visibleText(text: string): string {
  if (/^ +$/.test(text)) return "␣".repeat(text.length); // a token of blanks would look like none
  if (JOINERS.test(text)) return Array.from(text, spelled).join("");
  return text.replace(/\r?\n/g, "⏎").replace(/\t/g, "⇥").replace(UNSEEN, spelled).replace(HALVES, spelled);
}

/** A text in which what is subtracted stands behind a minus sign. */
export function withMinus(text: string): string {
  return text.replaceAll(" - ", " − ");
}

/** A token for the canvas: visible, and cut where it is endless. */
export function tokenText(text: string): string {
  const whole = visibleText(text);
  const characters = Array.from(whole.slice(0, 3 * LONGEST)); // a half of one would be shown as �
  return characters.length > LONGEST ? `${characters.slice(0, LONGEST - 1).join("")}…` : whole;
}

/** A prompt of several lines, with what is invisible spelled out. */
export function proseText(text: string): string {
  return text.split(/\r?\n/).map(visibleText).join("\n");
}
