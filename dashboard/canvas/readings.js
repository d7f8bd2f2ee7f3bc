// What the colour of a cell says: one reading at a time. The words are those of dashboard/cells.py.

const stateOf = (cell) => cell & 7
const markOf = (cell) => (cell >> 3) & 3
const fillOf = (cell) => ((cell >> 8) & 255) / 255
const referencesOf = (cell) => (cell >> 16) & 255
const ownerOf = (detail) => detail & 255
const touchOf = (detail) => (detail >> 8) & 15

const TOUCH = { allocated: 1, shared: 2, copied: 3, released: 4, preempted: 5, cached: 6, evicted: 7 }
const AGES = [1, 4, 16, 64, 256, 1024]

const bucket = (limits, value) => {
  const at = limits.findIndex((limit) => value <= limit)
  return at < 0 ? limits.length : at
}

// Each reading: `colours(theme)` is a list, `index` picks from it for a block's three words at record
// `seq`, `legend` names the entries in order (null: not listed).
const READINGS = {
  state: {
    label: "State",
    help: "What the block is used for; a copy or a preemption colours it for 20 records",
    colours: (theme) => theme.palette,
    // A mark colours the cell: it is what just happened there.
    index: (cell) => (markOf(cell) ? 3 + markOf(cell) : stateOf(cell)),
    legend: ["free", "used", "cached", "shared", "copied", "preempted"],
  },
  refs: {
    label: "Refs",
    help: "Ref count: how many block-table entries point at the block",
    colours: (theme) => [theme.palette[0], ...ramp(theme, 5)],
    index: (cell) => bucket([0, 1, 2, 4, 8], referencesOf(cell)),
    legend: ["0", "1", "2", "3–4", "5–8", "9 and more"],
  },
  owner: {
    label: "Owner",
    help: "A colour for each request; two may look alike, so hover to be sure",
    colours: (theme) => [theme.palette[0], ...theme.owners],
    index: (cell, detail) => ownerOf(detail),
    legend: ["no owner", ...Array(OWNER_COLOURS).fill(null)],
  },
  fill: {
    label: "Fill",
    help: "How many of the block's slots hold a token's KV",
    colours: (theme) => [theme.palette[0], ...ramp(theme, 5)],
    index: (cell) => {
      const fill = (cell >> 8) & 255
      if (!fill) return 0
      return fill === 255 ? 5 : 1 + Math.min(3, fill >> 6)
    },
    legend: ["empty", "up to ¼", "up to ½", "up to ¾", "nearly full", "full"],
  },
  age: {
    label: "Age",
    help: "How many records ago the block was last allocated, shared, copied, released, cached or evicted",
    colours: (theme) => [theme.palette[0], ...ramp(theme, 7).reverse()],
    index: (cell, detail, changed, seq) => (changed ? 1 + bucket(AGES, seq - changed + 2) : 0),
    legend: ["never", "now", "≤ 4 records", "≤ 16", "≤ 64", "≤ 256", "≤ 1,024", "older"],
  },
  event: {
    label: "Last event",
    help: "What happened to the block in the last 20 records",
    colours: (theme) => [
      mix(theme.text, theme.page, 0.1),
      theme.palette[1],
      theme.palette[3],
      theme.palette[4],
      mix(theme.text, theme.page, 0.45),
      theme.palette[5],
      theme.palette[2],
      mix(theme.palette[5], theme.page, 0.4),
    ],
    index: (cell, detail) => touchOf(detail),
    legend: ["none lately", ...Object.keys(TOUCH)],
  },
}
