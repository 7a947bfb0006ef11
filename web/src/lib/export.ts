// Tables as CSV, charts as SVG and PNG. Everything is made in the page and handed to the browser as a download.

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

const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline"];

/** A chart with its colours written into it, so that it looks the same elsewhere. */
export function svgOf(chart: SVGSVGElement, background: string): string {
  const copy = chart.cloneNode(true) as SVGSVGElement;
  const originals = [chart, ...chart.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, place) => {
    const style = getComputedStyle(originals[place]);
    for (const name of KEPT) element.setAttribute(name, style.getPropertyValue(name));
    element.removeAttribute("class");
    element.removeAttribute("style");
  });
  const { width, height } = chart.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(Math.round(width)));
  copy.setAttribute("height", String(Math.round(height)));
  if (!copy.getAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${Math.round(width)} ${Math.round(height)}`);
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of Object.entries({ width: "100%", height: "100%", fill: background })) ground.setAttribute(name, value);
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy);
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
