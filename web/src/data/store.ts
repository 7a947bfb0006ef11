// Where the files of a page group come from: inside this HTML file, beside it, or from a notebook.

export interface Store {
  get(key: string): Promise<Uint8Array | undefined>;
}

export function bytesOf(base64: string): Uint8Array {
  const native = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array }).fromBase64;
  if (native) return native.call(Uint8Array, base64);
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  return bytes;
}

/** Files as base64 in `<script data-key>` elements of this document. */
export function embeddedStore(root: ParentNode): Store | null {
  const elements = new Map<string, Element>();
  for (const element of root.querySelectorAll("script[data-key]")) elements.set(element.getAttribute("data-key")!, element);
  if (!elements.size) return null;
  return {
    async get(key) {
      const element = elements.get(key.replace(/^\//, ""));
      return element ? bytesOf(element.textContent ?? "") : undefined;
    },
  };
}

/** Files below an address. */
export function servedStore(base: string): Store {
  return {
    async get(key) {
      const response = await fetch(base + key.replace(/^\//, ""));
      if (response.status === 404) return undefined;
      if (!response.ok) throw new Error(`The server answered ${response.status} for ${key}.`);
      return new Uint8Array(await response.arrayBuffer());
    },
  };
}
