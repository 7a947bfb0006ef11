// Tables as CSV, charts as SVG and PNG. Everything is made in the page and handed to the browser as a download.

import { STOPS } from "./colour";

export interface Table {
  head: string[];
  rows: (string | number | null)[][];
}

export function csvOf(table: Table): string {
  const cell = (value: string | number | null) => {
    if (value === null || (typeof value === "number" && !Number.isFinite(value))) return "";
    const text = typeof value === "number" ? String(value) : value;
    const guarded = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text; // spreadsheets would run it
    return /[",\n\r]/.test(guarded) ? `"${guarded.replaceAll('"', '""')}"` : guarded;
  };
  return [table.head, ...table.rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "paint-order", "font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline"];

const SVG = "http://www.w3.org/2000/svg";

function element(name: string, attributes: Record<string, string | number>): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [own, value] of Object.entries(attributes)) made.setAttribute(own, String(value));
  return made;
}

/** A drawing with its colours written into it, so that it looks the same elsewhere. */
function painted(drawing: SVGSVGElement): SVGSVGElement {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const originals = [drawing, ...drawing.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((own, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of KEPT) own.setAttribute(name, style.getPropertyValue(name));
    own.removeAttribute("class");
    own.removeAttribute("style");
  });
  return copy;
}

export interface Picture {
  text: string;
  width: number;
  height: number;
}

const HEADING = 30; // room for the title above everything

/** All charts of a box with their legends, at their places on the page, below a title. None where it holds no chart. */
export function pictureOf(box: HTMLElement, title: string, background: string): Picture | null {
  if (!box.querySelector("svg[data-chart]")) return null;
  const frame = box.getBoundingClientRect();
  const [width, height] = [Math.round(frame.width), Math.round(frame.height) + HEADING];
  const ink = getComputedStyle(box);
  const whole = element("svg", { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` });
  const at = (own: DOMRect) => ({ x: own.left - frame.left, y: own.top - frame.top + HEADING, width: own.width, height: own.height });
  const write = (text: string, x: number, y: number, style: CSSStyleDeclaration, weight = style.fontWeight) => {
    const made = element("text", { x, y, fill: style.color, "font-size": style.fontSize, "font-family": style.fontFamily, "font-weight": weight });
    made.textContent = text;
    whole.append(made);
  };
  whole.append(element("rect", { width: "100%", height: "100%", fill: background }));
  write(title, 6, 18, ink, "600");
  for (const own of box.querySelectorAll("svg")) {
    const place = at(own.getBoundingClientRect());
    if (!place.width || own.closest("button")) continue;
    const copy = painted(own);
    for (const [name, value] of Object.entries(place)) copy.setAttribute(name, String(value));
    if (!copy.getAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${place.width} ${place.height}`);
    whole.append(copy);
  }
  for (const ramp of box.querySelectorAll(".ramp")) {
    const stops = element("linearGradient", { id: "ramp" });
    STOPS.forEach((colour, place) => stops.append(element("stop", { offset: place / (STOPS.length - 1), "stop-color": colour })));
    whole.append(stops, element("rect", { ...at(ramp.getBoundingClientRect()), fill: "url(#ramp)" }));
  }
  for (const swatch of box.querySelectorAll(".swatch")) {
    const style = getComputedStyle(swatch);
    const place = at(swatch.getBoundingClientRect());
    const y = place.y + place.height / 2;
    whole.append(swatch.classList.contains("dotted") ? element("line", { x1: place.x, x2: place.x + place.width, y1: y, y2: y, stroke: style.color, "stroke-width": place.height, "stroke-dasharray": "3 3" }) : element("rect", { ...place, fill: style.backgroundColor }));
  }
  // word by word, as lines break where they break on the page
  const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT, (node) => (node.parentElement!.closest("svg, button, select, .hidden") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT));
  const range = document.createRange();
  while (texts.nextNode()) {
    const node = texts.currentNode as Text;
    for (const word of node.data.matchAll(/\S+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const place = at(range.getBoundingClientRect());
      if (place.width) write(word[0], place.x, place.y + 0.78 * place.height, getComputedStyle(node.parentElement!));
    }
  }
  return { text: new XMLSerializer().serializeToString(whole), width, height };
}

export function download(name: string, kind: string, content: BlobPart): void {
  const address = URL.createObjectURL(new Blob([content], { type: kind }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export async function pngOf(svg: string, width: number, height: number): Promise<Blob> {
  const picture = new Image();
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    await new Promise((resolve, reject) => {
      picture.onload = resolve;
      picture.onerror = () => reject(new Error("The chart could not be drawn."));
      picture.src = address;
    });
    const canvas = document.createElement("canvas");
    canvas.width = width * 2;
    canvas.height = height * 2;
    canvas.getContext("2d")!.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The picture is empty."))), "image/png"),
    );
  } finally {
    URL.revokeObjectURL(address);
  }
}

export function fileName(title: string, ending: string): string {
  return `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart"}.${ending}`;
}
