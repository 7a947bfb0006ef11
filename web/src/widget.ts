// The page in a notebook (anywidget): the files of the page group come with the widget, nothing is fetched.
import { mount, unmount } from "svelte";
import App from "./App.svelte";
import { Page } from "./data/page";
import "./style.css";

interface Model {
  get(name: "files"): Record<string, DataView>;
}

export default {
  async render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
    const files = model.get("files");
    const store = {
      async get(key: string) {
        const view = files[key.replace(/^\//, "")];
        return view && new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
      },
    };
    const page = await Page.open(store);
    const app = mount(App, { target: el, props: { page, linked: false } });
    return () => void unmount(app);
  },
};
