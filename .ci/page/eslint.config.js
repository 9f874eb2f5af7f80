// Rules for the scripts of the pages. The names of the browser that they use are listed one by one: most of its others,
// such as `name`, `status` or `event`, would hide a misspelt variable.

import js from "@eslint/js";

const BROWSER = [
  "addEventListener",
  "atob",
  "Blob",
  "clearTimeout",
  "DecompressionStream",
  "dispatchEvent",
  "document",
  "Event",
  "fetch",
  "getSelection",
  "HashChangeEvent",
  "history",
  "HTMLElement",
  "HTMLInputElement",
  "HTMLSelectElement",
  "HTMLTextAreaElement",
  "innerWidth",
  "IntersectionObserver",
  "location",
  "navigator",
  "performance",
  "ResizeObserver",
  "Response",
  "scrollTo",
  "scrollX",
  "scrollY",
  "setTimeout",
  "SVGElement",
  "TextDecoder",
  "URLSearchParams",
  "window",
];

export default [
  js.configs.recommended,
  {
    languageOptions: {
      ecmaVersion: 2023,
      sourceType: "module",
      globals: Object.fromEntries(BROWSER.map((name) => [name, "readonly"])),
    },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "no-duplicate-imports": "error",
      "no-shadow-restricted-names": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
    },
  },
];
