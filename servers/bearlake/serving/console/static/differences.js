// The lines that two texts have in common, and those that only one has.

const LINE_COUNT_MAX = 1_000;

/** The differences as [mark, line]: " " in both, "-" in the first only, "+" in the second only. Long texts: all of both. */
export function differences(first, second) {
  const [old, now] = [first.split("\n"), second.split("\n")];
  if (old.length > LINE_COUNT_MAX || now.length > LINE_COUNT_MAX) {
    return [...old.map((line) => ["-", line]), ...now.map((line) => ["+", line])];
  }
  // lengths[i][j]: the longest common sequence of old[i…] and now[j…]
  const lengths = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i -= 1) {
    for (let j = now.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = old[i] === now[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      found.push([" ", old[i]]);
      i += 1;
      j += 1;
    } else if (i < old.length && (j === now.length || lengths[i + 1][j] >= lengths[i][j + 1])) {
      found.push(["-", old[i]]);
      i += 1;
    } else {
      found.push(["+", now[j]]);
      j += 1;
    }
  }
  return found;
}
