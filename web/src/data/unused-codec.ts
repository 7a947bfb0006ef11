// Stands for a codec that page groups do not use.
export default {
  fromConfig() {
    throw new Error("Page groups use gzip only.");
  },
};
