// Build the page and the widget: `npm run build`, or into another folder with `npm run build -- FOLDER`.
import { build } from "vite";

const folder = process.argv[2];
for (const mode of ["page", "widget"]) {
  await build({ mode, logLevel: "warn", build: folder ? { outDir: folder } : {} });
}
