// Every key of the player, once: for the listener and for the help.

// Each entry: keys (as KeyboardEvent.key; "S-" is with shift), how they are shown, what they do.
const KEYS = [
  [[" "], "Space", "play, pause", (player) => player.toggle()],
  [["ArrowLeft"], "←", "one record back", (player) => player.step(-1)],
  [["ArrowRight"], "→", "one record on", (player) => player.step(1)],
  [["S-ArrowLeft"], "Shift ←", "20 records back", (player) => player.step(-20)],
  [["S-ArrowRight"], "Shift →", "20 records on", (player) => player.step(20)],
  [["Home"], "Home", "to the first record kept", (player) => player.first()],
  [["l", "End"], "L, End", "live; the end of a recording", (player) => player.live()],
  [["p"], "P", "next preemption", (player) => player.jump("preemptions", true)],
  [["S-P"], "Shift P", "preemption before", (player) => player.jump("preemptions", false)],
  [["c"], "C", "next copy-on-write", (player) => player.jump("copies", true)],
  [["S-C"], "Shift C", "copy-on-write before", (player) => player.jump("copies", false)],
  [["e"], "E", "next eviction", (player) => player.jump("evictions", true)],
  [["S-E"], "Shift E", "eviction before", (player) => player.jump("evictions", false)],
  [["<", "S-<"], "<", "slower", (player) => player.faster(-1)],
  [[">", "S->"], ">", "faster", (player) => player.faster(1)],
]
const GRID_KEYS = [
  ["Arrows", "move the cursor, when the pool has the focus"],
  ["Enter", "pin the block under the cursor"],
  ["Escape", "unpin"],
  ["+ − 0", "zoom in, out, whole pool; wheel and drag do the same"],
]

const FIELDS = "input, textarea, select, [contenteditable=true], [role=combobox], [role=grid], [role=dialog]"

// Listens on the window: the page's own fields and tables keep their keys, and so does the grid.
function listenToKeys(player, signal) {
  const byKey = new Map(KEYS.flatMap(([keys, , , act]) => keys.map((key) => [key, act])))
  const listen = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
    const path = event.composedPath()
    const target = path[0]
    if (path.some((node) => node.matches?.(FIELDS) || node.classList?.contains("cells"))) return
    // A button that has the focus is pressed by Space.
    if (event.key === " " && target.matches?.("button, a, [role=button], summary")) return
    const act = byKey.get(event.shiftKey ? `S-${event.key}` : event.key)
    if (!act) return
    event.preventDefault()
    event.stopImmediatePropagation() // Streamlit has shortcuts of its own
    act(player)
  }
  addEventListener("keydown", listen, { signal, capture: true })
}

function keyTable() {
  const table = element("dl")
  for (const [, shown, what] of KEYS) table.append(element("dt", shown), element("dd", what))
  for (const [shown, what] of GRID_KEYS) table.append(element("dt", shown), element("dd", what))
  return table
}
