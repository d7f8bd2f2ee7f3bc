// Drawing cells, rich ones and plain ones.

// One rich cell at (left, top): a frame in the reading's colour, the filled part from below, the
// owner's colour as a strip, number, ref count and glyph.
//   .-------.
//   |12   x2|   the pale upper part is room that no token uses
//   |       |
//   |#######|   the solid part is filled slots
//   '-------'
// `look` has theme, colour (of the reading), owner (colour or null), fillsKnown, plain (no glyphs).
function paintRich(context, view, left, top, block, cell, look) {
  const { theme, colour } = look
  const size = view.cell - view.gap
  const empty = stateOf(cell) === 0
  context.fillStyle = css(theme.page)
  context.fillRect(left, top, view.cell, view.cell)
  const frame = Math.max(2, Math.round(size * 0.06))
  const inner = size - 2 * frame
  const faint = empty && !markOf(cell)
  const tint = faint ? colour : mix(colour, theme.page, 0.24)
  const filled = empty ? 0 : look.fillsKnown ? Math.round(fillOf(cell) * inner) : inner
  context.fillStyle = css(colour)
  context.fillRect(left, top, size, size)
  context.fillStyle = css(tint)
  context.fillRect(left + frame, top + frame, inner, inner - filled)
  if (faint) {
    context.strokeStyle = css(mix(theme.text, theme.page, 0.26))
    context.lineWidth = 1
    context.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1)
  }
  const level = top + frame + inner - filled
  const strip = look.owner ? Math.max(2, Math.round(size * 0.09)) : 0
  if (strip) {
    context.fillStyle = css(theme.page)
    context.fillRect(left + frame, top + frame, strip + 1, inner)
    context.fillStyle = css(look.owner)
    context.fillRect(left + frame, top + frame, strip, inner)
  }
  paintNumber(context, view, block, left + frame + strip + (strip && 1), top + frame, size, level, [tint, colour], faint)
  paintGlyph(context, view, theme, cell, left, top, size, frame, filled > inner * 0.45 ? colour : tint)
}

// The number, in the ink that can be read on the pale part above or on the solid part below.
function paintNumber(context, view, block, left, top, size, level, [above, below], faint) {
  const { ratio } = view.grid
  const font = Math.min(Math.max(size * 0.27, Math.min(8 * ratio, size * 0.36)), 13 * ratio)
  const text = String(block)
  const room = size * 0.86 - (left % 1)
  if (font < 7.4 * ratio || text.length * font * 0.56 > room) return
  context.font = `${font}px ${view.font}`
  context.textAlign = "left"
  context.textBaseline = "top"
  const inset = Math.max(1, size * 0.04)
  const foot = top + inset + font
  const under = level > top + inset ? above : below
  if (level > top + inset && level < foot) {
    // The level runs through the number: it gets the ground of the pale part.
    context.fillStyle = css(under)
    context.fillRect(left, top, context.measureText(text).width + 2 * inset, foot - top)
  }
  const ink = inkOn(under)
  context.fillStyle = css(faint ? mix(ink, under, 0.72) : ink)
  context.fillText(text, left + inset, top + inset)
}

// What the colour says, once more as a shape in the lower right: copied, preempted, cached or xN.
function paintGlyph(context, view, theme, cell, left, top, size, frame, under) {
  const mark = markOf(cell)
  const references = referencesOf(cell)
  if (mark === 0 && stateOf(cell) !== 2 && references < 2) return
  const g = Math.max(size * 0.3, Math.min(size * 0.5, 8 * view.grid.ratio))
  const x = left + size - frame - g - size * 0.05
  const y = top + size - frame - g - size * 0.05
  // At low fill levels the glyph stands on the tint above and the solid below: give it a ground.
  const ink = inkOn(under)
  context.save()
  context.strokeStyle = css(ink)
  context.lineWidth = Math.max(1, size * 0.05)
  context.fillStyle = css(under)
  if (references < 2) context.fillRect(x - g * 0.15, y - g * 0.15, g * 1.3, g * 1.3)
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
    context.font = `600 ${Math.round(g * 1.08)}px ${view.font}`
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

// The whole pool as a small picture of one pixel a block, to be scaled up without smoothing.
class Picture {
  constructor(grid) {
    this.grid = grid
    this.canvas = document.createElement("canvas")
    this.canvas.width = grid.columns
    this.canvas.height = grid.rows
    this.context = this.canvas.getContext("2d")
    this.image = this.context.createImageData(grid.columns, grid.rows)
    this.pixels = new Uint32Array(this.image.data.buffer)
  }

  // `indices[block]` picks from `colours`.
  update(indices, colours) {
    const packed = Uint32Array.from(colours, ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r)
    for (let block = 0; block < this.grid.count; block += 1) this.pixels[block] = packed[indices[block]]
    this.context.putImageData(this.image, 0, 0)
  }

  // Plain cells: the part of the picture that the view shows, with lines between where there is room.
  paint(context, view, theme) {
    const { grid, canvas } = this
    context.clearRect(0, 0, view.width, view.height)
    context.imageSmoothingEnabled = false
    context.drawImage(canvas, -view.left, -view.top, grid.columns * view.cell, grid.rows * view.tall)
    const rest = (grid.count - (grid.rows - 1) * grid.columns) * view.cell - view.left
    const bottom = (grid.rows - 1) * view.tall - view.top
    if (view.gap) {
      // Free cells are told apart by lines where their colour is faint.
      context.fillStyle = css(mix(theme.text, theme.page, 0.18))
      const end = { x: grid.columns * view.cell - view.left, y: grid.rows * view.tall - view.top }
      for (let x = view.cell - (view.left % view.cell); x <= view.width; x += view.cell) {
        context.fillRect(x - 1, 0, 1, Math.min(view.height, end.y))
      }
      for (let y = view.tall - (view.top % view.tall); y <= view.height; y += view.tall) {
        context.fillRect(0, y - 1, Math.min(view.width, end.x), 1)
      }
    }
    context.clearRect(rest, bottom, view.width, view.tall)
  }
}
