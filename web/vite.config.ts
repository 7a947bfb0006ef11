// Two builds from one source: the page (a classic script, which HTML can hold inline) and the widget (a module, which anywidget loads).
import { fileURLToPath } from "node:url";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
// zarrita offers codecs that page groups never use and that would need WebAssembly
const unused = Object.fromEntries(["blosc", "lz4", "zstd"].map((name) => [`numcodecs/${name}`, here("src/data/unused-codec.ts")]));

export default defineConfig(({ mode }) => ({
  plugins: [svelte()],
  resolve: { alias: unused },
  build: {
    outDir: here("../src/floatlens/report/app"),
    emptyOutDir: false,
    target: "es2022",
    cssCodeSplit: false,
    lib: {
      entry: here(mode === "widget" ? "src/widget.ts" : "src/main.ts"),
      formats: [mode === "widget" ? "es" : "iife"],
      name: "floatlens",
      fileName: () => (mode === "widget" ? "widget.js" : "page.js"),
      cssFileName: mode === "widget" ? "widget" : "page",
    },
    rollupOptions: { output: { codeSplitting: false, minify: true } }, // Vite alone leaves the white space of modules as it is
    minify: true,
    reportCompressedSize: false,
  },
}));
