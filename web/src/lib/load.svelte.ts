// A value that is loaded whenever what it depends on changes; an older answer never replaces a newer one. What cannot be read is told above the view.

import { useCursor } from "../state.svelte";

export class Loaded<T> {
  value = $state.raw<T | null>(null);

  /** `load` reads what it depends on before its first await. */
  constructor(load: () => Promise<T | null>) {
    const cursor = useCursor();
    $effect(() => {
      let stale = false;
      load().then(
        (value) => {
          if (!stale) this.value = value;
        },
        (error) => {
          if (!stale) cursor.wrong = String(error);
        },
      );
      return () => void (stale = true);
    });
  }
}
