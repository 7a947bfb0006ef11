// What is said of a key when it is hovered or pinned: where and what it is, and what it receives beside its null.

import { type Frame, type Profile, STANDINGS } from "../data/frame";
import { boundsOf, type Values } from "../data/page";
import { type Quantised, ROLES, STATES } from "../data/schema";
import { exists, visibleText, written } from "./numbers";

/** A number, or from where to where it may lie. */
export function about(value: number, how: Quantised | null, digits = 5): string {
  if (!how || !exists(value)) return written(value, digits);
  const [low, high] = boundsOf(value, how);
  return `≈ ${written(value, 3)} (${written(low, 2)} to ${written(high, 2)})`;
}

/** What stands at a position at the step of a frame. */
export function textAt(frame: Frame | null, vocabulary: Record<string, string>, final: Values, position: number): string {
  const state = frame?.whole("state")?.[position];
  if (state === 2) return "mask";
  if (!state) return "nothing yet";
  return visibleText(vocabulary[state === 3 ? final[position] : frame!.whole("canvas")![position]] ?? "");
}

/** A key at the step of a frame, as one layer and group of rows sees it. */
export function keyLines(frame: Frame, profile: Profile | null, key: number, layer: number, head: number | null, group: number): [string, string][] {
  const role = frame.whole("role")?.[key];
  const confidence = frame.whole("confidence")?.[key];
  const lines: [string, string][] = [["position", String(key)]];
  if (role) lines.push(["role", ROLES[role]]);
  lines.push(["state", STATES[frame.whole("state")?.[key] ?? 0]]);
  if (exists(confidence)) lines.push(["confidence", written(confidence, 4)]);
  if (profile) {
    const rounded = profile.approximate ? "≈ " : "";
    lines.push(["lift", `${about(profile.lift[key], profile.approximate)} · null 1`]);
    lines.push(["share", `${rounded}${written(100 * profile.share[key], 5)} % · null ${written(100 * profile.fairShare[key], 5)} %`]);
    lines.push(["rank", profile.ranks[key] ? `${rounded}${profile.ranks[key]} of ${profile.ranks.filter(Boolean).length}` : "–"]);
    if (profile.standing) lines.push(["standing", STANDINGS[profile.standing[key]]]);
  }
  lines.push(["layer", `${frame.run.layers[layer]}, ${head === null ? "mean over heads" : `head ${head}`}`], ["step", `${frame.step} · ${frame.run.groups[group]} rows`]);
  return lines;
}
