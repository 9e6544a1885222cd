// The lanes of compaction's timeline. It imports nothing, so that it also runs outside a browser.

/** Lanes of tasks, which are sorted by start: those of one kind and stream one after the other, unless they run at the same time. */
export function lanesOf(tasks) {
  const lanes = [];
  for (const task of tasks) {
    const name = `${task.kind} ${task.stream ?? "deleted"}`;
    const free = lanes.find((lane) => lane.name === name && lane.tasks.at(-1).lastMs < task.startMs);
    if (free) free.tasks.push(task);
    else lanes.push({ name, tasks: [task] });
  }
  return lanes;
}

/** At most `countMax` lanes, by name: those whose last task is quarantined, then the latest, of which those whose last task is oldest. */
export function chosenLanes(lanes, countMax) {
  const isQuarantined = (lane) => lane.tasks.at(-1).states.at(-1).state === "quarantined";
  const byInterest = (first, second) => {
    const [a, b] = [first.tasks.at(-1), second.tasks.at(-1)];
    return isQuarantined(second) - isQuarantined(first) || b.lastMs - a.lastMs || a.startMs - b.startMs || byName(first, second);
  };
  return [...lanes].sort(byInterest).slice(0, countMax).sort(byName);
}

function byName(first, second) {
  if (first.name === second.name) return first.tasks[0].startMs - second.tasks[0].startMs;
  return first.name < second.name ? -1 : 1;
}
