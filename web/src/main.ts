// The page in a browser: data inside the file, or in `data/` beside it.
import { mount } from "svelte";
import App from "./App.svelte";
import { Page } from "./data/page";
import { embeddedStore, servedStore } from "./data/store";
import "./style.css";

const target = document.getElementById("floatlens")!;

function explain(sentence: string): void {
  const note = document.createElement("p");
  note.className = "cannot";
  note.textContent = sentence;
  target.replaceChildren(note);
}

async function start(): Promise<void> {
  const embedded = embeddedStore(document);
  if (!embedded && location.protocol === "file:") {
    return explain("Browsers do not let a page read the files beside it. Run `floatlens view` with the name of this folder to open it.");
  }
  try {
    const page = await Page.open(embedded ?? servedStore("data/"));
    document.title = [page.document.runs[0]?.name, "floatlens"].filter(Boolean).join(" · ");
    mount(App, { target, props: { page, linked: true } });
  } catch (error) {
    explain(`The page cannot be shown: ${error instanceof Error ? error.message : error}`);
  }
}

void start();
