// A value that is loaded whenever what it depends on changes; an older answer never replaces a newer one.

export class Loaded<T> {
  value = $state.raw<T | null>(null);
  wrong = $state("");

  /** `load` reads what it depends on before its first await. */
  constructor(load: () => Promise<T | null>) {
    $effect(() => {
      let stale = false;
      load().then(
        (value) => {
          if (!stale) [this.value, this.wrong] = [value, ""];
        },
        (error) => {
          if (!stale) this.wrong = String(error);
        },
      );
      return () => void (stale = true);
    });
  }
}
