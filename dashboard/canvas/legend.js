// What the colours and glyphs mean, with how many blocks are of each.

class Legend {
  constructor(root) {
    this.root = root
  }

  get height() {
    return this.root.offsetHeight
  }

  // Build it anew at the next show: the theme or the reading is another one.
  forget() {
    this.of = null
  }

  // `counts[i]` blocks have the i-th colour of the reading. True where it was built anew.
  show(reading, theme, counts, known) {
    const { legend } = READINGS[reading]
    const anew = this.of !== reading
    if (anew) {
      this.of = reading
      this.counts = legend.map(() => element("b"))
      const items = legend.flatMap((name, i) => (name === null ? [] : [this.item(reading, theme, name, i)]))
      if (reading === "owner") items.push(element("span", "a colour for each request"))
      this.root.replaceChildren(...items, flashLegend(theme))
    }
    this.counts.forEach((node, i) => (node.textContent = known ? number(counts[i]) : "–"))
    return anew
  }

  item(reading, theme, name, i) {
    const item = element("span")
    const words = reading === "state" ? { copied: "copied (CoW)" } : {}
    item.append(swatch(reading, theme, i), element("span", words[name] ?? name), this.counts[i])
    return item
  }
}

// One cell of each state, in the palette's order: see dashboard/cells.py for the bits.
const SAMPLES = [
  0,
  1 | (175 << 8) | (1 << 16),
  2 | (255 << 8),
  3 | (255 << 8) | (2 << 16),
  1 | (1 << 3) | (175 << 8),
  2 << 3,
]

// The same drawing as in the grid, so that the glyphs are explained too.
function swatch(reading, theme, index) {
  const ratio = devicePixelRatio || 1
  const size = Math.round(18 * ratio)
  const canvas = element("canvas", undefined, "swatch")
  canvas.width = canvas.height = size
  const colour = READINGS[reading].colours(theme)[index]
  const view = { cell: size, gap: 0, grid: { ratio }, font: theme.font }
  const sample = reading === "state" ? SAMPLES[index] : index ? 1 | (255 << 8) | (1 << 16) : 0
  const look = { theme, colour, owner: null, fillsKnown: true }
  paintRich(canvas.getContext("2d"), view, 0, 0, "", sample, look)
  return canvas
}

function flashLegend(theme) {
  const box = element("span", undefined, "flashes")
  box.title = "Outlines and glyphs for what happened in this step; while playing they fade within a second"
  const names = { allocated: "allocated", copied: "copied from →", preempted: "preempted", evicted: "evicted" }
  box.append(element("span", "just now:"))
  for (const [kind, text] of Object.entries(names)) {
    const ratio = devicePixelRatio || 1
    const canvas = element("canvas", undefined, "swatch")
    const size = (canvas.width = canvas.height = Math.round(18 * ratio))
    const context = canvas.getContext("2d")
    context.strokeStyle = css(kind === "allocated" ? theme.text : theme.palette[FLASH_COLOUR[TOUCH[kind]]])
    context.lineWidth = 1.5 * ratio
    if (kind === "evicted") context.setLineDash([3 * ratio, 2 * ratio])
    context.strokeRect(1.5 * ratio, 1.5 * ratio, size - 3 * ratio, size - 3 * ratio)
    context.setLineDash([])
    context.beginPath()
    flashShape(context, TOUCH[kind], size / 2, size / 2, size * 0.2)
    context.stroke()
    const item = element("span")
    item.append(canvas, element("span", text))
    box.append(item)
  }
  return box
}
