// The library of components, under one name, so that only this file knows where it comes from.
export {
  html, render, useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect,
} from "./vendor/preact.js";
