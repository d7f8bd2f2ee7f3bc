// Drawing cells. A cell is the 32-bit number of dashboard/cells.py.

const stateOf = (cell) => cell & 7
const markOf = (cell) => (cell >> 3) & 3
const fillOf = (cell) => ((cell >> 8) & 255) / 255
const referencesOf = (cell) => (cell >> 16) & 255

// A mark colours the cell: it is what just happened there.
const colourIndex = (cell) => (markOf(cell) ? 3 + markOf(cell) : stateOf(cell))

// One rich cell: a frame in the colour of its state, the filled part from below, number and glyph.
//   .-------.
//   |12   x2|   the pale upper part is room that no token uses
//   |       |
//   |#######|   the solid part is filled slots
//   '-------'
function paintRich(context, grid, theme, block, cell, fillsKnown) {
  const [left, top] = cellOrigin(grid, block)
  const size = grid.cell - grid.gap
  const colour = theme.palette[colourIndex(cell)]
  const empty = stateOf(cell) === 0
  context.fillStyle = css(theme.page)
  context.fillRect(left, top, grid.cell, grid.cell)
  const frame = Math.max(2, Math.round(size * 0.06))
  const inner = size - 2 * frame
  const tint = empty ? theme.palette[0] : mix(colour, theme.page, 0.24)
  const filled = empty ? 0 : fillsKnown ? Math.round(fillOf(cell) * inner) : inner
  context.fillStyle = css(colour)
  context.fillRect(left, top, size, size)
  context.fillStyle = css(tint)
  context.fillRect(left + frame, top + frame, inner, inner - filled)
  if (empty && !markOf(cell)) {
    context.strokeStyle = css(mix(theme.text, theme.page, 0.26))
    context.lineWidth = 1
    context.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1)
  }
  const font = Math.min(Math.round(size * 0.27), Math.round(13 * grid.ratio))
  if (font >= 8 * grid.ratio) {
    context.font = `${font}px ${theme.font}`
    context.textAlign = "left"
    context.textBaseline = "top"
    // The number may stand half on the pale and half on the solid part: each half in its own ink.
    const level = top + frame + inner - filled
    for (const [under, from, to] of [[tint, top, level], [colour, level, top + size]]) {
      const ink = inkOn(under)
      context.save()
      context.beginPath()
      context.rect(left, from, size, to - from)
      context.clip()
      context.fillStyle = css(empty ? mix(ink, under, 0.62) : ink)
      context.fillText(String(block), left + frame * 1.7, top + frame * 1.8)
      context.restore()
    }
  }
  paintGlyph(context, theme, cell, left, top, size, frame, filled > inner * 0.45 ? colour : tint)
}

// What the colour says, once more as a shape in the lower right: copied, preempted, cached or xN.
function paintGlyph(context, theme, cell, left, top, size, frame, under) {
  const g = Math.max(size * 0.3, Math.min(size * 0.5, 8 * (devicePixelRatio || 1)))
  const x = left + size - frame - g - size * 0.05
  const y = top + size - frame - g - size * 0.05
  // At low fill levels the glyph stands on the tint above and the solid below: give it a ground.
  const ink = inkOn(under)
  context.strokeStyle = context.fillStyle = css(ink)
  context.lineWidth = Math.max(1, size * 0.05)
  const mark = markOf(cell)
  const references = referencesOf(cell)
  if (mark === 0 && stateOf(cell) !== 2 && references < 2) return
  context.save()
  context.fillStyle = css(under)
  context.fillRect(x - g * 0.15, y - g * 0.15, g * 1.3, g * 1.3)
  context.fillStyle = css(ink)
  context.beginPath()
  if (mark === 1) {
    context.strokeRect(x, y, g * 0.62, g * 0.62)
    context.fillRect(x + g * 0.38, y + g * 0.38, g * 0.62, g * 0.62)
  } else if (mark === 2) {
    context.moveTo(x, y)
    context.lineTo(x + g, y + g)
    context.moveTo(x + g, y)
    context.lineTo(x, y + g)
    context.stroke()
  } else if (stateOf(cell) === 2) {
    const c = g * 0.62
    const [dx, dy] = [x + g - c, y + g - c]
    context.moveTo(dx + c / 2, dy)
    context.lineTo(dx + c, dy + c / 2)
    context.lineTo(dx + c / 2, dy + c)
    context.lineTo(dx, dy + c / 2)
    context.closePath()
    context.globalAlpha = 0.75
    context.lineWidth = Math.max(1, size * 0.028)
    context.stroke()
  } else {
    context.font = `600 ${Math.round(g * 1.08)}px ${theme.font}`
    context.textAlign = "right"
    context.textBaseline = "bottom"
    const label = references < 255 ? `×${references}` : "×255+"
    const width = context.measureText(label).width
    context.fillStyle = css(under)
    context.fillRect(x + g - width - 1, y - g * 0.15, width + 1, g * 1.3)
    context.fillStyle = css(ink)
    context.fillText(label, x + g, y + g * 1.12)
  }
  context.restore()
}

// Every cell as one pixel of a small picture, then scaled up without smoothing.
class PlainPainter {
  constructor(grid) {
    this.grid = grid
    this.picture = document.createElement("canvas")
    this.picture.width = grid.columns
    this.picture.height = grid.rows
    this.context = this.picture.getContext("2d")
    this.image = this.context.createImageData(grid.columns, grid.rows)
    this.pixels = new Uint32Array(this.image.data.buffer)
  }

  paint(context, theme, cells) {
    const { grid } = this
    const colours = theme.palette.map(([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r)
    for (let block = 0; block < grid.count; block += 1) {
      this.pixels[block] = colours[colourIndex(cells[block])]
    }
    this.context.putImageData(this.image, 0, 0)
    const [width, height] = [grid.columns * grid.cell, grid.rows * grid.cell]
    context.clearRect(0, 0, width, height)
    context.imageSmoothingEnabled = false
    context.drawImage(this.picture, 0, 0, width, height)
    if (grid.gap) {
      // One path for all lines: free cells are told apart by it where their colour is faint.
      context.fillStyle = css(mix(theme.text, theme.page, 0.18))
      for (let i = 1; i <= grid.columns; i += 1) context.fillRect(i * grid.cell - 1, 0, 1, height)
      for (let i = 1; i <= grid.rows; i += 1) context.fillRect(0, i * grid.cell - 1, width, 1)
      const last = grid.count - (grid.rows - 1) * grid.columns
      const rest = last * grid.cell
      context.clearRect(rest, (grid.rows - 1) * grid.cell, width - rest, grid.cell)
    }
  }
}
