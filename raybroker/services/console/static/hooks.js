// Preact with its hooks and htm, and an id for what labels something.

import { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";

export { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState };

let ids = 0;
export function useId() {
  const made = useRef("");
  if (!made.current) made.current = `i${++ids}`;
  return made.current;
}
