// cividis for amounts: told apart without colour vision and in greyscale.

export const STOPS = ["#00224e","#00285b","#002e6a","#053371","#1a386f","#273e6e","#32436d","#3b496c","#434e6c","#4b546c","#535a6d","#5a5f6e","#61656f","#686a71","#6f7073","#767676","#7d7c78","#848279","#8c8878","#938e78","#9b9476","#a39a74","#aba072","#b4a76f","#bcae6c","#c4b468","#cdbb63","#d5c25e","#dec958","#e7d150","#f0d846","#f9e03a","#fee838"];
const RGB = STOPS.map((stop) => [1, 3, 5].map((place) => parseInt(stop.slice(place, place + 2), 16)));

/** Red, green and blue for an amount from 0 to 1. */
export function cividis(amount: number): [number, number, number] {
  const place = Math.min(1, Math.max(0, amount)) * (RGB.length - 1);
  const below = Math.min(RGB.length - 2, Math.floor(place));
  const part = place - below;
  return RGB[below].map((from, channel) => Math.round(from + (RGB[below + 1][channel] - from) * part)) as [number, number, number];
}

/** Black or white, whichever is read better on a colour. */
export function inkOn([red, green, blue]: readonly [number, number, number]): string {
  const linear = [red, green, blue].map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) ? "#000" : "#fff";
}

/** 64 grounds with the ink that is read on each: as few as the eye tells apart, so that most tokens keep theirs from step to step. */
const SHADES = Array.from({ length: 64 }, (_, level) => {
  const colour = cividis(level / 63);
  return { ground: `rgb(${colour.join(",")})`, ink: inkOn(colour) };
});

export function shadeFor(amount: number): { ground: string; ink: string } {
  return SHADES[Math.round(Math.min(1, Math.max(0, amount)) * 63)];
}

export interface Scale {
  low: number;
  high: number;
  log: boolean;
}

/** Fixed bounds, so that steps, layers and runs can be compared by colour. */
export function scaleFor(kind: "lift" | "share", log: boolean): Scale {
  if (kind === "lift") return log ? { low: 1 / 8, high: 64, log } : { low: 0, high: 16, log };
  return log ? { low: 0.0005, high: 1, log } : { low: 0, high: 0.5, log };
}

/** Where a value lies between the bounds of a scale, from 0 to 1. */
export function placeOn(scale: Scale, value: number): number {
  if (!scale.log) return (value - scale.low) / (scale.high - scale.low);
  return value <= 0 ? 0 : Math.log(value / scale.low) / Math.log(scale.high / scale.low);
}

/** Categories (Okabe and Ito), by place; the shapes and dashes that go with them tell them apart without colour. Only nulls are dotted. */
export const CATEGORIES = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"];
export const DASHES = ["", "8 3", "4 2 1 2", "12 3 2 3", "14 4", "4 3", "9 2 1 2 1 2"];
